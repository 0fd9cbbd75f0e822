"""Past runs: each failure has one cause, tasks of a kind are found in English and Japanese, and what went well is shown."""

from __future__ import annotations

import asyncio
import json

import pytest

from kaname import (
    Agent,
    Approve,
    ConfigError,
    Guardrails,
    MemoryJournal,
    ScriptedModel,
    SharedSession,
    SqliteJournal,
    call,
    cost,
    max_steps,
    no_repeats,
    tool,
)
from kaname.cli.main import main
from kaname.core.errors import ModelDenied
from kaname.core.messages import Usage
from kaname.evals import Evaluation, LessonBook, case_from_run, find_patterns, group_failures, make_lesson, read_history
from kaname.evals.files import load_evaluation
from kaname.evals.recorded import add_case
from kaname.evals.records import read_rating
from kaname.memory.lessons.history import PastRun, UsedTool
from kaname.memory.lessons.patterns import group_tasks, telling_words
from kaname.memory.lessons.propose import suggest
from kaname.run.figures import rate


@tool(effect="pure")
def price(item: str) -> int:
    """The price of an item."""
    if item == "moon":
        raise ValueError("there is none")
    return 300


@tool(effect="pure")
def look(place: str) -> str:
    """Look somewhere."""
    return "nothing"


@tool
def refund(order: str) -> str:
    """Give money back."""
    return "done"


def insist(name, **args):
    """Call a tool with other arguments each time."""

    def reply(request):
        varied = {key: f"{value} {len(request.messages)}" if value.endswith("…") else value for key, value in args.items()}
        return call(name, **varied)

    return reply


def agent(model, journal, **more):
    return Agent(model if isinstance(model, ScriptedModel) else ScriptedModel(model), journal=journal, name="shop", **more)


def unreachable(request):
    raise ModelDenied("no such key")


CAUSES = [
    ("tool error", "price", insist("price", item="moon"), {"stops": [max_steps(4)]}),
    ("wrong arguments", "price", insist("price", thing="tea…"), {"stops": [max_steps(4)]}),
    ("wrong arguments", "prize", insist("prize", item="tea…"), {"stops": [max_steps(4)]}),
    ("loop", "look", insist("look", place="here"), {"stops": [no_repeats(2)]}),
    ("loop", "look", insist("look", place="here"), {"stops": [max_steps(4), no_repeats(None)]}),
    ("limit", "", insist("look", place="here…"), {"stops": [max_steps(3)]}),
    ("limit", "", insist("look", place="here…"), {"stops": [cost("$0.002")]}),
    ("refused", "refund", insist("refund", order="A…"), {"policies": [Approve("refund")], "stops": [max_steps(2)]}),
    ("refused", "", ["fine"], {"policies": [Guardrails(blocked_patterns=["tea"])]}),
    ("bad form", "", lambda request: "no number", {"output": int}),
    ("error", "", unreachable, {}),
    ("", "", [call("look", place="here"), "nothing"], {}),
    ("", "", [call("price", item="moon"), "There is none."], {}),
]


@pytest.mark.parametrize(("cause", "name", "model", "more"), CAUSES)
async def test_failed_run_has_the_one_cause_that_its_facts_show(cause, name, model, more):
    journal = MemoryJournal()
    made = agent(ScriptedModel(model, usage=Usage(10, 5, cost=0.001)), journal, tools=[price, look, refund], **more)
    try:
        result = await made.run("How much is tea?")
        while result.questions:
            result = await made.resume(result.run_id, dict.fromkeys(result.questions, "no"))
    except ModelDenied:
        pass
    (run,) = await read_history(journal)
    assert (run.cause, run.tool) == (cause, name)
    groups = group_failures([run])
    advice = [lesson.advice for group in group_failures([run, run]) for lesson in suggest(group, [run])]
    assert bool(advice) == (cause not in ("", "error") and bool(name or cause != "refused"))
    assert not any("prize" in one for one in advice), "a name that the model made up is not quoted"
    assert [(one.cause, one.tool, len(one.runs)) for one in groups] == ([(cause, name, 1)] if cause else [])


@pytest.mark.parametrize(
    ("first", "second", "unhappy"),
    [
        ("Write to Ann", "No, I meant Anna", True),
        ("Write to Ann", "No, write to Anna", False),  # the user may have another idea
        ("Write to Ann", "That's wrong: she is called Anna.", True),
        ("アンに書いて", "違います。アンナです", True),
        ("アンに書いて", "ちがいます。アンナです", True),
        ("アンに書いて", "アンではなくアンナに書いて", False),
        ("Write to Ann", "write to ann!", True),
        ("Write to Ann", "Now write to Ben", False),
        ("アンに書いて", "ベンにも書いて", False),
        ("Write to Ann", "No problem, thanks", False),
    ],
)
async def test_correction_or_repetition_in_the_same_conversation_marks_the_run_before(first, second, unhappy):
    journal = MemoryJournal()
    made = agent(lambda request: "Dear …", journal)
    for text in (first, second):
        await made.run(text, session_id="s", user_id="ken")
    await made.run(second, session_id="other", user_id="ken")
    before, *others = await read_history(journal)
    assert (before.cause, before.note) == (("user unhappy", second) if unhappy else ("", ""))
    assert [one.cause for one in others] == ["", ""]


async def test_bad_rating_marks_its_own_run_and_not_the_next_of_the_session():
    journal = MemoryJournal()
    made = agent(lambda request: "Dear …", journal)
    first = await made.run("Write to Ann", session_id="s")
    await rate(journal, first.run_id, "bad", "too long")
    second = await made.run("Write to Ben", session_id="s")
    assert [(one.cause, one.note) for one in await read_history(journal)] == [("user unhappy", "too long"), ("", "")]
    assert [await read_rating(journal, one.run_id) for one in (first, second)] == ["bad", ""]
    assert "reference" in await case_from_run(journal, second.run_id)


async def test_runs_of_evaluations_do_not_push_out_those_that_count():
    journal = MemoryJournal()
    made = agent(lambda request: "x", journal)
    await made.run("How much is tea?")
    await Evaluation("e", [f"case {number}" for number in range(20)]).run(made)
    assert [one.task for one in await read_history(journal, agent="shop", limit=5)] == ["How much is tea?"]


def test_last_run_is_neither_an_attempt_nor_the_place_of_lessons(tmp_path, capsys):
    async def make():
        journal = SqliteJournal(tmp_path / "j.db")
        made = agent(lambda request: "Tea is 300.", journal)
        await made.run("How much is tea?", user_id="ken")
        await LessonBook(journal).put(make_lesson("shop", "ken", "Be brief."))
        await Evaluation("e", ["case"]).run(made)
        await journal.close()

    asyncio.run(make())
    place, added = ["--journal", str(tmp_path / "j.db")], tmp_path / "evals.jsonl"
    assert main(["runs", "rate", "last", "bad", *place]) == 0
    assert main(["eval", "add", "last", str(added), *place]) == 0
    case = json.loads(added.read_text())
    assert (case["input"], case["from_user"]) == ("How much is tea?", "ken")


async def test_case_from_a_shared_session_or_from_an_attempt_names_all_users_whose_words_it_has(tmp_path):
    journal, talk = MemoryJournal(), SharedSession("meeting")
    made = agent(lambda request: "Tea is 300.", journal)
    await made.run("I am ann", user_id="ann", session_id=talk)
    last = await made.run("And I am ken", user_id="ken", session_id=talk)
    case = await case_from_run(journal, last.run_id)
    assert case["from_user"] == ["ann", "ken"]
    for name in ("evals.jsonl", "evals.yaml"):
        (tried,) = load_evaluation(add_case(tmp_path / name, case)).cases
        assert tried.people == {"ann", "ken"}
    report = await Evaluation("meeting-of-two", [tried]).run(made)
    (attempt,) = report.attempts
    again = await case_from_run(journal, attempt.run_ids[0])
    assert again["from_user"] == ["ann", "ken"], "a case of a case has the same words"
    (tmp_path / "wrong.jsonl").write_text(json.dumps({"input": "x", "from_user": [5]}))
    with pytest.raises(ConfigError, match="from_user"):
        load_evaluation(tmp_path / "wrong.jsonl")


async def test_cancelled_and_inner_runs_are_not_judged():
    journal = MemoryJournal()
    inner = agent(["no number"] * 9, journal, output=int)
    outer = Agent(
        ScriptedModel([call("delegate_to_agent", agent="shop", task="count"), "seven"]),
        journal=journal,
        name="outer",
        team=[inner],
    )
    await outer.run("How many?")
    assert [one.agent for one in await read_history(journal)] == ["outer"]


TASKS = {
    "price": ["How much is tea?", "How much is coffee?", "how much is a cake", "How much is cocoa?"],
    "weather": ["What is the weather in Kyoto?", "What's the weather in Oslo", "Weather in Rome tomorrow?"],
    "ja price": ["紅茶はいくらですか", "珈琲はいくらですか?", "ケーキはいくら"],
    "ja weather": ["京都の天気は?", "大阪の天気はどう", "明日の天気は?"],
}


def test_tasks_of_a_kind_are_found_in_english_and_japanese():
    every = [(kind, task) for place in range(4) for kind, tasks in TASKS.items() for task in tasks[place : place + 1]]
    groups = group_tasks([task for _, task in every])
    kinds = [{every[place][0] for place in group} for group in groups]
    assert all(len(kind) == 1 for kind in kinds), kinds
    assert len(groups) <= 6, [[every[place][1] for place in group] for group in groups]


def test_words_tell_tasks_apart():
    assert telling_words(TASKS["price"], TASKS["weather"]) == ("how much is",)
    (japanese,) = telling_words(TASKS["ja price"], TASKS["ja weather"])
    assert {"いく", "くら"} <= {*japanese.split()}
    assert telling_words(TASKS["price"], TASKS["price"]) == (), "nothing tells them apart"


def test_success_pattern_shows_the_tools_in_their_order_that_work_for_a_kind_of_task():
    def run(number, task, tools, cause=""):
        return PastRun(f"{number}", "shop", "", "", 0.0, task, tuple([UsedTool(one) for one in tools]), cause)

    runs = [run(n, task, ("find", "find", "price")) for n, task in enumerate(TASKS["price"])]
    runs += [run(10 + n, task, ("guess",), "user unhappy" if n else "") for n, task in enumerate(TASKS["price"])]
    runs += [run(20 + n, task, ("forecast",)) for n, task in enumerate(TASKS["ja weather"])]
    first, second = find_patterns(runs)
    assert (first.kind, first.tools, first.good, first.runs) == ("How much is tea?", ("find", "price"), 4, 4)
    assert (second.kind, second.tools, second.good) == ("京都の天気は?", ("forecast",), 3)
    assert first.examples == ("1", "2", "3")


# The terminal


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A folder with an agent that fails on prices, until it is told how to ask."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KANAME_LANG", raising=False)
    (tmp_path / "shop.py").write_text(
        "from kaname import ScriptedModel, call, tool\n"
        "@tool(effect='pure')\ndef price(item: str, currency: str) -> int:\n    'The price.'\n    return 300\n"
        "def say(request):\n"
        "    said = next(one.text for one in reversed(request.messages) if one.role == 'user')\n"
        "    told = 'price' in ''.join([one.text for one in request.messages if one.role == 'system'])\n"
        "    if 'much' not in said: return 'hello'\n"
        "    if any(one.role == 'tool' for one in request.messages) and told: return '300'\n"
        "    return call('price', item='tea', currency='yen') if told else call('price', thing=str(len(request.messages)))\n"
        "model = ScriptedModel(say)\n"
    )
    shop = "{model: shop.py:model, tools: [shop.py:price], stops: {max_steps: 3}, lessons: suggest}"
    (tmp_path / "kaname.yaml").write_text(f"agents:\n  shop: {shop}\n")
    cases = [{"input": f"How much is cake {number}?", "contains": "300"} for number in range(7)]
    cases += [{"input": f"Good day {number}", "contains": "hello"} for number in range(33)]
    (tmp_path / "evals.jsonl").write_text("\n".join([json.dumps(case) for case in cases]))
    for _ in range(2):
        assert main(["run", "How much is tea?"]) == 1
        assert main(["run", "Hello there"]) == 0
    return tmp_path


def test_kaname_learn_shows_failures_and_manages_a_lesson_from_trial_to_rollback(recorded, capsys, monkeypatch):
    capsys.readouterr()
    assert main(["learn"]) == 0
    shown = capsys.readouterr().out
    assert "Failures: 2 of 4 runs" in shown
    assert "2  wrong arguments  price" in shown
    assert "Check the parameters of price before you call it." in shown
    assert main(["learn", "lessons", "--json"]) == 0
    (lesson,) = json.loads(capsys.readouterr().out)["lessons"]
    assert main(["learn", "approve", lesson["id"]]) == 2
    assert "no trial has shown" in capsys.readouterr().err
    assert main(["learn", "try", lesson["id"], "--repeat", "1"]) == 0
    assert "helps (+100 points in 7 cases, p = 0.047; others +0, at worst -10)" in capsys.readouterr().out
    assert main(["learn", "approve", lesson["id"]]) == 0
    assert main(["run", "How much is cocoa?"]) == 0
    assert "300" in capsys.readouterr().out
    assert main(["learn", "rollback", lesson["id"]]) == 0
    assert main(["run", "How much is cocoa?"]) == 1
    monkeypatch.setenv("KANAME_LANG", "ja")
    capsys.readouterr()
    assert main(["learn"]) == 0
    japanese = capsys.readouterr().out
    assert "引数の誤り" in japanese
    assert "price を呼び出す前に" in japanese
    assert "取り下げ" in japanese


async def test_every_state_of_a_lesson_stays_in_the_journal(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    lesson = await LessonBook(journal).put(make_lesson("shop", "", "Be brief."))
    await LessonBook(journal).drop(lesson.id)
    (card,) = await journal.runs(agent="lessons")
    states = [
        event.body.data["status"] async for event in journal.read(card.run_id) if getattr(event.body, "name", "") == "lesson"
    ]
    assert states == ["suggested", "dropped"]
    await journal.close()
