"""Forty tasks for the local model with the tools that come with kaname, in two halves: changes are made on `tune` and reported on
`report`, whose tasks nobody looks at in between. Half are Japanese, a third take two steps.

    uv run python benchmarks/small_model.py [tune|report] [json|text|native] [task numbers…]
    uv run kaname eval benchmarks/small_model.py:tune -a benchmarks/small_model.py:agent -k 3 --label before
    uv run kaname eval compare before after

Both halves are evaluations (`docs/evaluation.md`): attempts are kept in the journal, and `compare` says whether a change of a
prompt has helped. A task is solved when the answer holds what must be in it. Twenty tasks show differences of 30 points or more.
"""

import asyncio
import re
import sqlite3
import sys
import tempfile
import time
import unicodedata
from functools import partial
from pathlib import Path

from kaname import Agent, CalculatorTool, DatabaseTool, MemoryJournal, RAGPipeline, SearchTool
from kaname.evals import Case, Evaluation
from kaname.models import Local

TABLES = """
    CREATE TABLE bikes (id INTEGER, model TEXT, kind TEXT, price_per_day INTEGER, available INTEGER);
    INSERT INTO bikes VALUES (1, 'City 3', 'city', 1500, 8), (2, 'Trail X', 'mountain', 2800, 3),
        (3, 'E-Road', 'electric', 4200, 2), (4, 'Mini', 'child', 900, 5), (5, 'Tandem', 'tandem', 5000, 1);
    CREATE TABLE rentals (id INTEGER, bike_id INTEGER, customer TEXT, days INTEGER, day TEXT);
    INSERT INTO rentals VALUES (1, 1, 'Sato', 3, '2026-10-01'), (2, 3, 'Miller', 1, '2026-10-02'),
        (3, 1, 'Mori', 2, '2026-10-02'), (4, 2, 'Sato', 5, '2026-10-05'), (5, 4, 'Chen', 2, '2026-10-06'),
        (6, 1, 'Miller', 1, '2026-10-06');
    CREATE TABLE staff (name TEXT, role TEXT, shift TEXT);
    INSERT INTO staff VALUES ('Aoki', 'manager', 'morning'), ('Brown', 'mechanic', 'afternoon'), ('Ito', 'reception', 'morning');
"""
DOCUMENTS = {
    "returns.md": "# Late returns\nA bike that comes back late costs 500 yen for each hour. Returns are taken until 19:00.",
    "insurance.md": "# Insurance\nThe insurance costs 300 yen a day and covers damage up to 50,000 yen. Theft is not covered.",
    "members.md": "# Members\nMembers pay a yearly fee of 2,400 yen and get 10 percent off every rental.",
    "repairs.md": "# Repairs\nFlat tyres are repaired free of charge. Call 0120-555-214 and say where you are.",
    "営業時間.md": "# 営業時間\n営業時間は平日 9 時から 19 時まで、土日は 8 時から 20 時まで。水曜日は定休日です。",
    "子ども.md": "# 子ども\n13 歳未満の子どもはヘルメットの着用が必要です。ヘルメットの貸し出しは無料です。",
    "キャンセル.md": "# キャンセル\n前日までのキャンセルは無料です。当日のキャンセルは料金の 50 パーセントをいただきます。",
    "駐輪場.md": "# 駐輪場\n駅前店の駐輪場は地下一階にあり、自転車を 40 台まで停められます。",
}


def exchange(yen: float, currency: str) -> str:
    """Change an amount in yen into another currency.

    Args:
        yen: the amount
        currency: USD, EUR or GBP
    """
    rates = {"USD": 150, "EUR": 160, "GBP": 190}
    return f"{yen / rates[currency]:.2f} {currency}" if currency in rates else f"Error: unknown currency {currency!r}"


TASKS = {  # kind, question, what must be in the answer
    "tune": [
        ("calculator", "What is 48,219 + 7,784?", "56003"),
        ("calculator", "3.5 時間は何分ですか。計算してください。", "210"),
        ("calculator", "What is 15 percent of 8,640?", "1296"),
        ("database", "How much does the Trail X cost per day?", "2800"),
        ("database", "How many rentals did Miller make?", "2|two"),
        ("database", "available が一番少ない自転車の model は何ですか。", "tandem"),
        ("database", "Who works as a mechanic?", "brown"),
        ("search", "What does a late return cost per hour?", "500"),
        ("search", "Is theft covered by the insurance?", "not|no"),
        ("search", "定休日は何曜日ですか。", "水曜"),
        ("search", "駅前店の駐輪場には何台停められますか。", "40"),
        ("two steps", "What does it cost to rent two City 3 bikes for one day?", "3000"),
        ("two steps", "How much is it to rent the E-Road for 4 days?", "16800"),
        ("two steps", "A member rents the Tandem for one day. What does he pay after the members' discount?", "4500"),
        ("two steps", "Mini を 6 日借りるといくらですか。", "5400"),
        ("two steps", "保険を 9 日分かけるといくらですか。", "2700"),
        ("two steps", "What is the income from all rentals of the Trail X?", "14000"),
        ("two steps", "Trail X の 1 日の予約を当日にキャンセルすると、いくらかかりますか。", "1400"),
        ("no tool", "Say 'thank you' in Spanish.", "gracias"),
        ("function", "How much is 15,000 yen in US dollars?", "100"),
    ],
    "report": [
        ("calculator", "Multiply 318 by 407.", "129426"),
        ("calculator", "126,000 を 7 で割るといくつですか。", "18000"),
        ("calculator", "A bill of 9,750 yen plus 8 % tax: how much is it in total?", "10530"),
        ("database", "Which bike is the cheapest?", "mini"),
        ("database", "How many different customers are there?", "4|four"),
        ("database", "E-Road は何台使えますか。", "2"),
        ("database", "Sato さんは合計で何日借りましたか。", "8"),
        ("search", "Which number do I call for a flat tyre?", "0120-555-214"),
        ("search", "How much is the yearly fee for members?", "2400"),
        ("search", "ヘルメットは何歳未満の子どもに必要ですか。", "13"),
        ("search", "土日は何時に開きますか。", "8"),
        ("two steps", "How much do 5 hours of late return cost?", "2500"),
        ("two steps", "What do three Trail X bikes cost for one day?", "8400"),
        ("two steps", "City 3 を 12 日借りるといくらですか。", "18000"),
        ("two steps", "How much is the insurance for 14 days?", "4200"),
        ("two steps", "A member rents the E-Road for one day. What does she pay after the members' discount?", "3780"),
        ("two steps", "Tandem と Mini を 1 日ずつ借りると、合計いくらですか。", "5900"),
        ("two steps", "E-Road の 1 日の予約を当日にキャンセルすると、いくらかかりますか。", "2100"),
        ("no tool", "Translate 'dog' into German.", "hund"),
        ("function", "12,000 円はユーロでいくらですか。", "75"),
    ],
}


def solved(answer, wanted):
    plain = unicodedata.normalize("NFKC", str(answer)).lower().replace(",", "")
    return any(
        re.search(rf"(?<![\d.]){re.escape(one)}(?![\d])" if one[0].isdigit() else re.escape(one), plain)
        for one in wanted.split("|")
    )


def tools(folder):
    if not (folder / "shop.db").exists():  # an attempt may be resumed
        database = sqlite3.connect(folder / "shop.db")
        database.executescript(TABLES)
        database.close()
    for name, text in DOCUMENTS.items():
        (folder / "docs").mkdir(exist_ok=True)
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    documents = RAGPipeline(folder / "index.db")
    documents.add(folder / "docs")
    return [CalculatorTool(), DatabaseTool(folder / "shop.db"), SearchTool(documents), exchange]


def cases(half):
    return [
        Case(question, f"{number:02} {kind}", predicate=partial(is_solved, wanted=wanted))
        for number, (kind, question, wanted) in enumerate(TASKS[half])
    ]


def is_solved(outcome, wanted):
    return solved(outcome.last.text, wanted)


def agent(folder, mode="json"):
    """Make the agent in a folder of its own."""
    model = Local() if mode == "json" else Local(tool_mode=mode)
    return Agent(model, tools(folder))


tune, report = [Evaluation(f"small-{half}", cases(half)) for half in TASKS]


async def main(half, mode, *only):
    begun = time.perf_counter()

    def tell(attempt, done, total):
        said = "" if half == "report" else f"{attempt.seconds:5.1f} s  {attempt.output[:200]!r}"  # nobody looks at what it said
        print(f"{attempt.case:20} {'ok' if attempt.passed else 'NO'} {said}", flush=True)

    evaluation = {"tune": tune, "report": report}[half]
    chosen = [case.name for number, case in enumerate(evaluation.cases) if not only or str(number) in only]
    with tempfile.TemporaryDirectory() as folder:
        made = await evaluation.only(chosen).run(agent(Path(folder), mode), journal=MemoryJournal(), at_once=1, progress=tell)
    kinds = {}
    for case in made.cases:
        kind = kinds.setdefault(case.name.partition(" ")[2], [0, 0])
        kind[0] += case.passed
        kind[1] += 1
    low, high = made.interval
    told = ", ".join([f"{kind} {passed}/{of}" for kind, (passed, of) in kinds.items()])
    right = sum([case.passed for case in made.cases])
    print(
        f"{half}, {mode}: {right} of {len(made.cases)} ({low:.0%} to {high:.0%}); {told}; {time.perf_counter() - begun:.0f} s"
    )


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] + ["tune", "json"][len(sys.argv) - 1 :])))
