"""Twenty small tasks of five kinds, half of them Japanese, for the local model: through kaname, and through plain native tools.

    uv run python benchmarks/local_tasks.py [kaname|plain|text] [task numbers…]

A task is solved when the answer holds what must be in it. One model, twenty tasks: a difference of one or two is chance.
"""

import asyncio
import json
import re
import sqlite3
import sys
import time
import unicodedata

from kaname import Agent, max_steps, tool
from kaname.models import Local

TABLE = sqlite3.connect(":memory:", check_same_thread=False)
TABLE.executescript(
    """
    CREATE TABLE products (id INTEGER, name TEXT, price INTEGER, stock INTEGER);
    INSERT INTO products VALUES (1, 'teapot', 4200, 7), (2, 'cup', 800, 120), (3, 'tray', 2500, 0), (4, 'fan', 1900, 33);
    CREATE TABLE orders (id INTEGER, product_id INTEGER, quantity INTEGER, day TEXT);
    INSERT INTO orders VALUES (1, 2, 6, '2026-11-01'), (2, 1, 1, '2026-11-02'), (3, 4, 2, '2026-11-02'),
                              (4, 2, 10, '2026-11-03');
    """
)
DOCUMENTS = {
    "holidays.md": "The office is closed from 29 December to 4 January. Requests for leave go to Ms Tanaka.",
    "expenses.md": "Travel costs are refunded up to 30,000 yen a trip. Receipts are kept for seven years.",
    "経理.md": "出張費の精算は月末までに山田さんへ提出します。領収書は七年間保管します。",
    "設備.md": "会議室の予約は内線 4512 で受け付けます。プロジェクターは三階にあります。",
}


@tool(effect="pure")
def calculator(expression: str) -> str:
    """Work out an arithmetic expression.

    Args:
        expression: only numbers and + - * / ( )
    """
    plain = unicodedata.normalize("NFKC", expression).replace(",", "").replace("×", "*").replace("÷", "/")
    if not re.fullmatch(r"[0-9+\-*/(). ]{1,100}", plain) or "**" in plain:
        raise ValueError(f"{expression!r} is not arithmetic: use only numbers and + - * / ( )")
    return f"{eval(plain):.10g}"


@tool(effect="pure")
def database(sql: str) -> list[dict]:
    """Run one SQL SELECT (SQLite) on the shop's tables products(id, name, price, stock), orders(id, product_id, quantity, day).

    Args:
        sql: a SELECT statement
    """
    cursor = TABLE.execute(sql)
    return [dict(zip([column[0] for column in cursor.description], row, strict=True)) for row in cursor.fetchmany(20)]


@tool(effect="pure")
def search(query: str) -> list[str]:
    """Search the company's documents (rules, people, rooms, office hours), English and Japanese.

    Args:
        query: a few words
    """

    def grams(text):
        text = text.lower()
        return set(re.findall(r"[a-z]{3,}", text)) | {text[i : i + 2] for i in range(len(text) - 1) if ord(text[i]) > 0x3000}

    scored = [(len(grams(query) & grams(name + " " + text)), name, text) for name, text in DOCUMENTS.items()]
    return [f"{name}: {text}" for score, name, text in sorted(scored, reverse=True) if score][:2]


TASKS = [  # kind, question, what must be in the answer
    ("calculator", "What is 73,829 * 4,617?", "340868493"),
    ("calculator", "A trip costs 12,480 yen, and 5 people share it. How much does each pay?", "2496"),
    ("calculator", "1,234 と 8,766 の和に 3 を掛けるといくつですか。", "30000"),
    ("calculator", "987654 ÷ 6 を計算してください。", "164609"),
    ("database", "How many cups are in stock?", "120"),
    ("database", "Which product is sold out?", "tray"),
    ("database", "teapot の値段はいくらですか。", "4200"),
    ("database", "2026-11-02 の注文は何件ありますか。", "2"),
    ("search", "Who receives requests for leave?", "Tanaka"),
    ("search", "How long must receipts be kept?", "seven"),
    ("search", "会議室の予約の内線番号は何番ですか。", "4512"),
    ("search", "出張費の精算は誰に提出しますか。", "山田"),
    ("two steps", "What do 15 teapots cost at the price in the database?", "63000"),
    ("two steps", "What is the value of all fans in stock (price times stock)?", "62700"),
    ("two steps", "データベースの cup の値段で 24 個買うといくらですか。", "19200"),
    ("two steps", "出張費の上限額(円)を文書で調べ、3 回分の合計を計算してください。", "90000"),
    ("no tool", "Translate 'good morning' into French.", "bonjour"),
    ("no tool", "Which is larger, an elephant or a mouse? One word.", "elephant"),
    ("no tool", "日本語で「ありがとう」を英語に訳してください。", "thank"),
    ("no tool", "「海」の反対語としてよく使われる、木の多い高い土地を漢字一字で答えてください。", "山"),
]
TOOLS = [calculator, database, search]


def solved(answer, wanted):
    plain = unicodedata.normalize("NFKC", str(answer)).lower().replace(",", "").replace(" ", "")
    if wanted == "seven":
        return "seven" in plain or "7" in plain or "七" in plain
    return wanted.lower() in plain


async def through_kaname(question):
    agent = Agent(Local(), TOOLS, stops=max_steps(10), journal="memory")
    result = await agent.run(question)
    return result.text, [
        f"{step.action}({json.dumps(step.action_input, ensure_ascii=False)})" for step in result.steps if step.action
    ]


async def plainly(question):
    """What the popular frameworks do: native tools, whatever comes back."""
    agent = Agent(Local(tool_mode="native"), TOOLS, stops=max_steps(10), journal="memory")
    result = await agent.run(question)
    return result.text, [f"{step.action}" for step in result.steps if step.action]


async def by_text(question):
    """The ReAct protocol: the model only writes text."""
    agent = Agent(Local(tool_mode="text"), TOOLS, stops=max_steps(10), journal="memory")
    result = await agent.run(question)
    return result.text, [f"{step.action}" for step in result.steps if step.action]


WAYS = {"kaname": through_kaname, "plain": plainly, "text": by_text}


async def main(way, numbers):
    total, kinds = 0, {}
    for number, (kind, question, wanted) in enumerate(TASKS):
        if numbers and number not in numbers:
            continue
        begun = time.perf_counter()
        answer, calls = await WAYS[way](question)
        right = solved(answer, wanted)
        total += right
        kinds[kind] = kinds.get(kind, 0) + right
        print(f"{number:2} {'ok ' if right else 'NO '} {time.perf_counter() - begun:5.1f} s  {question}", flush=True)
        print(f"      {' '.join(calls)} -> {str(answer)[:160]!r}", flush=True)
    print(f"{way}: {total} of {len(numbers) or len(TASKS)} {kinds}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "kaname", [int(n) for n in sys.argv[2:]]))
