"""Evaluations: cases and checks, attempts that are made once, judges, simulated users, workspaces."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kaname import (
    Agent,
    Approve,
    ConfigError,
    DatabaseTool,
    MemoryJournal,
    ScriptedModel,
    SqliteJournal,
    Workflow,
    call,
    max_steps,
    tool,
)
from kaname.core.errors import ModelDenied
from kaname.core.events import ModelReplied, Stopped
from kaname.core.messages import Usage
from kaname.evals import Case, Evaluation, SimulatedUser, compare, find_report, list_reports, read_report
from kaname.kernel.load import read_run
from kaname.run.figures import rate
from tests import warm

YES = '{"reason": "it is polite", "verdict": "pass"}'
NO = '{"reason": "it is rude", "verdict": "fail"}'


@tool(effect="pure")
def price(item: str) -> int:
    """The price of an item."""
    return {"tea": 300, "cake": 450}[item]


def question(request):
    """What was asked, and how many replies there were since."""
    last = max(place for place, message in enumerate(request.messages) if message.role == "user")
    return request.messages[last].text, sum(message.role == "assistant" for message in request.messages[last:])


class Shop(ScriptedModel):
    """Asks for the price of what is named, and counts how often it is asked."""

    def __init__(self, **more):
        self.asked = []
        super().__init__(self._say, usage=Usage(10, 5, cost=0.001), **more)

    def _say(self, request):
        words, replies = question(request)
        self.asked.append(words)
        item = "cake" if "cake" in words else "tea"
        if "price" not in {one.name for one in request.tools}:
            return "no tools"
        return call("price", item=item) if not replies else f"It is {price.function(item)} yen."

    identity = "shop"


def shop(journal="memory", model=None, **more):
    return Agent(model or Shop(), [price], journal=journal, **more)


async def outcome_of(case, agent=None):
    report = await Evaluation("one", [case]).run(agent or shop())
    return report.attempts[0]


GOOD = {
    "equals": "It is 300 yen.",
    "contains": ["300", "yen"],
    "matches": r"\d+ yen\.$",
    "number": {"is": 310, "within": "5%"},
    "predicate": lambda outcome: outcome.steps == 2,
    "calls": ["price"],
    "calls_in_order": [{"price": {"item": "tea"}}],
    "no_calls": ["refund", {"price": {"item": "cake"}}],
    "stop": "completed",
    "cost": "$0.01",
    "steps": 2,
    "time": "1m",
}
BAD = {
    "equals": "It is 300 Yen.",
    "contains": "euro",
    "matches": "^yen",
    "number": 30,
    "schema": {"type": "object"},
    "predicate": lambda outcome: "it is too dear",
    "calls": ["price", "price"],
    "calls_in_order": ["price", "refund"],
    "no_calls": "price",
    "files": {"a.txt": "x"},
    "stop": ["max_steps", "budget"],
    "cost": 0.0001,
    "steps": 1,
    "time": 1e-9,
}


@pytest.mark.parametrize("check", GOOD)
async def test_a_check_that_holds_passes(check):
    attempt = await outcome_of(Case("How much is tea?", **{check: GOOD[check]}))
    assert (attempt.passed, attempt.why) == (True, "")


@pytest.mark.parametrize(
    ("answer", "number", "holds"),
    [
        ("It arrives on 2026-12-01.", 12, False),
        ("It arrives on 2026-12-01.", -1, False),
        ("2026/12/1 10:12 に届きます", 12, False),
        ("2026年12月1日", 12, False),
        ("since 2026-12", 12, False),
        ("Version 1.12.3 of 192.168.12.1", 12, False),
        ("12 pieces until 2026-12-01", 12, True),
        ("It takes 10-12 days.", 12, True),
        ("三百円です", 300, True),
        ("合計300円です", 300, True),
        ("１，２００円", 1200, True),
        ("1万円", 10_000, True),
        ("1万円", 1, False),
        ("3万5千円", 35_000, True),
        ("-1万円", -10_000, True),
        ("三百二人", 302, True),
        ("三百二人", 2, False),
        ("二人です", 2, True),
        ("十円", 10, True),
        ("千葉へ行きます", 1000, False),
        ("1.5e3", 1500, True),
        ("1,234,567 yen", 1_234_567, True),
    ],
)
async def test_number_is_read_as_people_write_it(answer, number, holds):
    attempt = await outcome_of(Case("How much?", number=number), Agent(ScriptedModel([answer]), journal="memory"))
    assert attempt.passed is holds, attempt.why


@pytest.mark.parametrize(("answer", "text"), [("ＡＢＣ−１２３号室", "ABC"), ("アレルギーは卵", "ｱﾚﾙｷﾞｰ"), ("300円", "３００円")])
async def test_text_that_an_answer_contains_has_any_width(answer, text):
    attempt = await outcome_of(Case("Which?", contains=text), Agent(ScriptedModel([answer]), journal="memory"))
    assert attempt.passed, attempt.why


@pytest.mark.parametrize("check", BAD)
async def test_a_check_that_does_not_hold_fails_and_says_why(check):
    attempt = await outcome_of(Case("How much is tea?", **{check: BAD[check]}))
    assert not attempt.passed
    assert [one.check for one in attempt.findings if not one.passed] == [check]
    assert attempt.why


@pytest.mark.parametrize(
    ("check", "value"),
    [
        ("cost", "much"),
        ("matches", "("),
        ("stop", "done"),
        ("number", {"about": 3}),
        ("sql", {"query": "select 1"}),
        ("steps", "x"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_at_once(check, value):
    with pytest.raises(ConfigError):
        Case("x", **{check: value})
    with pytest.raises(ConfigError, match="did you mean 'contains'"):
        Case("x", contain="y")


async def test_typed_outputs_are_compared_by_value():
    agent = Agent(ScriptedModel(['{"yen": 300}']), output=dict, journal="memory")
    schema = {"type": "object", "properties": {"yen": {"type": "integer"}}, "required": ["yen"]}
    assert (await outcome_of(Case("?", equals={"yen": 300.0}, schema=schema), agent)).passed
    wrong = await outcome_of(Case("?", schema={"required": ["euro"]}), agent)
    assert wrong.why == "output: the required 'euro' is missing"


async def test_a_run_that_does_not_complete_fails_unless_the_case_expects_it():
    agent = shop(stops=max_steps(1))
    assert (await outcome_of(Case("tea?"), agent)).why.startswith("the run ended with 'max_steps'")
    assert (await outcome_of(Case("tea?", stop="max_steps"), agent)).passed


async def test_a_predicate_that_raises_fails_the_case_and_no_other():
    def broken(outcome):
        raise KeyError("x")

    report = await Evaluation("e", [Case("tea?", predicate=broken), Case("cake?")]).run(shop())
    assert [case.passed for case in report.cases] == [False, True]
    assert "KeyError" in report.attempts[0].why


async def test_attempts_are_made_once_and_another_version_of_the_agent_is_measured_anew(tmp_path):
    agent = shop(tmp_path / "j.db")
    evaluation = Evaluation("shop", [Case("tea?", contains="300"), Case("cake?", contains="450")], repeat=3)
    first = await evaluation.run(agent, label="first")
    asked = len(agent.recipe.model.asked)
    assert (first.rate, len(first.attempts), asked) == (1.0, 6, 12)
    again = await evaluation.run(agent)
    assert (again.job, again.label, len(agent.recipe.model.asked)) == (first.job, "first", asked), "all of it was known"
    more = await evaluation.run(agent, repeat=4)
    assert (len(more.attempts), len(agent.recipe.model.asked)) == (8, asked + 4), "only what is missing"
    stricter = await Evaluation("shop", [Case("tea?", contains="301"), Case("cake?", contains="450")], repeat=3).run(agent)
    assert ([case.passed for case in stricter.cases], len(agent.recipe.model.asked)) == ([False, True], asked + 4), "runs stay"
    other = await evaluation.run(shop(tmp_path / "j.db", instructions="Be kind."), label="kind")
    assert other.job != first.job
    fresh = await evaluation.run(agent, fresh=True)
    assert fresh.job == f"{first.job}-2"
    assert {one.job for one in await list_reports(agent.journal)} == {first.job, other.job, fresh.job}
    assert (await find_report(agent.journal, "kind")).job == other.job
    assert (await find_report(agent.journal, "last")).job == fresh.job
    assert compare(other, fresh).verdict == "too few"
    with pytest.raises(ConfigError, match="no evaluation 'nothing'"):
        await find_report(agent.journal, "nothing")
    assert first.cost == pytest.approx(0.012)


async def test_a_changed_tool_is_another_version():
    def version(function):
        return Agent(Shop(), [tool(function, effect="pure")], journal="memory")

    def price(item: str) -> int:
        """The price of an item."""
        return 300

    first = price

    def price(item: str) -> int:
        """The price of an item."""
        return 301

    one, other = [await Evaluation("e", [Case("tea?")]).run(version(function)) for function in (first, price)]
    assert one.job != other.job


async def test_an_error_of_the_provider_is_no_verdict_and_is_tried_again():
    down = [True]

    def say(request):
        return ModelDenied("no credit") if down[0] else "fine"

    agent = Agent(ScriptedModel(say), journal="memory")
    broken = await Evaluation("e", [Case("x")]).run(agent)
    assert (broken.errors, broken.rate) == (1, 0.0)
    down[0] = False
    mended = await Evaluation("e", [Case("x")]).run(agent)
    assert (mended.job, mended.errors, mended.rate) == (broken.job, 0, 1.0)


async def test_questions_are_answered_as_the_case_says():
    @tool(effect="irreversible")
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    def agent():
        return Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal="memory")

    assert (await outcome_of(Case("go", calls=["pay"], answer="yes"), agent())).passed
    assert (await outcome_of(Case("go", stop="waiting"), agent())).passed
    assert (await outcome_of(Case("go"), agent())).why.startswith("the run ended with 'waiting'")


async def test_a_rubric_is_judged_once_and_calibrated_by_peoples_ratings():
    asked = []

    def judge(request):
        asked.append(request)
        return NO if "cake" in request.messages[-1].text else YES

    model, agent = ScriptedModel(judge, usage=Usage(1, 1, cost=0.01)), shop()
    cases = [Case(f"{item} {n}?", rubric="Be polite.", reference="300") for n in range(10) for item in ("tea", "cake")]
    with pytest.raises(ConfigError, match="needs a model that judges"):
        await Evaluation("e", cases).run(agent)
    evaluation = Evaluation("e", cases, judge=model)
    report = await evaluation.run(agent)
    assert (report.rate, report.agreement, report.overhead) == (0.5, (None, 0), pytest.approx(0.2))
    assert report.cases[1].attempts[0].why == "the judge says: it is rude"
    assert "Rubric: Be polite." in asked[0].messages[-1].text
    assert "A good answer: 300" in asked[0].messages[-1].text
    for place, one in enumerate(report.attempts):
        await rate(agent.journal, one.run_ids[0], "good" if (place % 2 == 0) != (place == 0) else "bad")
    rated = await read_report(agent.journal, report.job)
    assert rated.agreement == (pytest.approx(0.9), 20), "one of twenty is seen otherwise"
    assert (await evaluation.run(agent)).agreement[1] == 20
    assert len(asked) == 20


async def test_a_judge_that_cannot_be_read_gives_no_verdict():
    evaluation = Evaluation("e", [Case("tea?", rubric="x")], judge=ScriptedModel(lambda request: "well …"))
    report = await evaluation.run(shop())
    assert report.errors == 1
    assert not report.attempts[0].passed


async def test_a_simulated_user_talks_until_the_goal_is_reached():
    def person(request):
        heard = [message.text for message in request.messages if message.role == "user"][-1]
        if "begins" in heard:
            return '{"message": "How much is it?", "done": false}'
        return '{"message": "bye", "done": true}' if "300" in heard else '{"message": "the tea", "done": false}'

    def assistant(request):
        words, replies = question(request)
        if "tea" not in words:
            return "How much is what?"
        return call("price", item="tea") if not replies else "300 yen."

    user = SimulatedUser("Learn what tea costs", facts={"drink": "tea"}, model=ScriptedModel(person, usage=Usage(cost=0.5)))
    agent = Agent(ScriptedModel(assistant), [price], journal="memory")
    evaluation = Evaluation("talk", [Case(user=user, calls=["price"], contains="300")], repeat=2)
    report = await evaluation.run(agent)
    assert (report.rate, [len(one.run_ids) for one in report.attempts]) == (1.0, [2, 2])
    assert report.overhead == pytest.approx(3.0)
    runs = len(await agent.journal.runs(limit=100))
    assert (await evaluation.run(agent)).rate == 1.0
    assert len(await agent.journal.runs(limit=100)) == runs
    endless = Evaluation(
        "e", [Case(user=SimulatedUser("x", turns=3, model=ScriptedModel(lambda r: '{"message": "no", "done": false}')))]
    )
    assert [len(one.run_ids) for one in (await endless.run(agent)).attempts] == [3]


async def test_an_agent_that_is_made_for_a_folder_is_checked_by_what_it_leaves_there(tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    with sqlite3.connect(files / "shop.db") as database:
        database.execute("create table orders (item text)")
    database.close()

    def make(folder):
        @tool(effect="idempotent")
        def order(item: str) -> str:
            """Order."""
            (folder / "order.txt").write_text(item)
            with sqlite3.connect(folder / "shop.db") as database:
                database.execute("insert into orders values (?)", (item,))
            database.close()
            return "ordered"

        return Agent(
            ScriptedModel([call("order", item="tea"), "done"]),
            [order, DatabaseTool(folder / "shop.db")],
            instructions=f"Work in {folder}.",
        )

    sql = {"database": "shop.db", "query": "select item from orders", "equals": "tea"}
    cases = [
        Case("a", files={"order.txt": "tea", "x.txt": None}, sql=sql),
        Case("b", files={"order.txt": {"contains": "cake"}}),
        Case("c", sql={**sql, "equals": [["tea"], ["tea"]]}),
        Case("d", files={"../../secret": None}),
    ]
    report = await Evaluation("state", cases, files=files).run(make, journal=SqliteJournal(tmp_path / "j.db"))
    assert [case.passed for case in report.cases] == [True, False, False, False]
    assert "outside of the workspace" in report.attempts[3].why
    again = await Evaluation("state", cases, files=files).run(make, journal=SqliteJournal(tmp_path / "j.db"))
    assert again.job == report.job, "the folder is no part of what the agent is"
    assert (await Evaluation("state", cases[:1], files=files).run(make, journal=MemoryJournal())).rate == 1.0


async def test_a_workflow_is_evaluated_with_its_parameters():
    flow = Workflow("shopping", params={"item": "tea"}, journal="memory")
    flow.promise({"yen": flow.task(price, flow.param("item"))})
    cases = [Case("{}", "default", equals={"yen": 300}), Case('{"item": "cake"}', "cake", equals={"yen": 450}, calls=["price"])]
    report = await Evaluation("flow", cases).run(flow)
    assert [(case.passed, case.attempts[0].why) for case in report.cases] == [(True, ""), (True, "")]


async def test_an_agent_with_tool_servers_is_the_same_version_before_and_after_they_start(tmp_path):
    servers = {"bare": {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "mcp_servers" / "bare.py")]}}
    agent = Agent(ScriptedModel(["yes"]), mcp_servers=servers, journal="memory")
    evaluation = Evaluation("e", [Case("x")])
    one = await evaluation.run(agent)
    assert (await evaluation.run(agent)).job == one.job
    await agent.close()


async def test_a_run_that_ended_at_a_limit_is_not_continued_by_a_second_try(tmp_path):
    """Its verdict was lost in a crash: it is judged as it ended, and does not get new limits."""
    agent, evaluation = shop(tmp_path / "j.db", stops=max_steps(1)), Evaluation("e", [Case("tea?", stop="max_steps")])
    report = await evaluation.run(agent)
    await agent.journal.delete(report.job)
    again = await evaluation.run(agent)
    assert again.rate == 1.0
    stops = [one for one in await read_run(agent.journal, again.attempts[0].run_ids[0]) if isinstance(one.body, Stopped)]
    assert len(stops) == 1


WORKER = """
import asyncio, os, sys, time
from kaname import Agent, ScriptedModel
from kaname.evals import Case, Evaluation

def say(request):
    time.sleep(0.002)
    return "answer to " + request.messages[-1].text

cases = [Case(f"question {n}", f"c{n}", contains=f"question {n}") for n in range(250)]
report = asyncio.run(Evaluation("many", cases, repeat=2).run(Agent(ScriptedModel(say), journal=sys.argv[1]), at_once=16))
print(report.rate, len(report.attempts), report.errors)
"""


@pytest.mark.slow
async def test_an_evaluation_that_is_killed_at_random_repeats_no_finished_case_and_loses_none(tmp_path):
    journal, chance, kills = tmp_path / "j.db", random.Random(7), 0
    (tmp_path / "worker.py").write_text(WORKER)
    while True:
        process = warm.Popen([sys.executable, tmp_path / "worker.py", journal], stdout=subprocess.PIPE, text=True)
        if kills < 6:
            while not journal.exists() and process.poll() is None:
                time.sleep(0.01)
            time.sleep(chance.uniform(0.3, 0.9))  # a random moment is the point
        if kills < 6 and process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            kills += 1
            continue
        said, _ = process.communicate(timeout=120)
        break
    assert said.split() == ["1.0", "500", "0"]
    assert kills >= 3
    kept = SqliteJournal(journal)
    (report,) = await list_reports(kept)
    runs = [one.run_ids[0] for one in report.attempts]
    assert len(set(runs)) == 500
    for run in runs:
        facts = [type(event.body) for event in await read_run(kept, run)]
        assert (facts.count(ModelReplied), facts.count(Stopped)) == (1, 1), run
    await kept.close()


@pytest.mark.slow
async def test_a_case_costs_little_more_than_its_run():
    """300 cases: at most 1.5 ms of CPU each over the runs themselves."""
    cases = [Case(f"question {n}", f"c{n}", contains="yes", stop="completed", steps=3) for n in range(300)]

    async def runs():
        agent = Agent(ScriptedModel(["yes"]), journal="memory")
        await agent.map([case.input for case in cases])

    async def evaluation():
        await Evaluation("e", cases).run(Agent(ScriptedModel(["yes"]), journal="memory"))

    async def seconds(work):
        took = []
        for _ in range(3):
            begun = time.process_time()
            await work()
            took.append(time.process_time() - begun)
        return min(took)

    await runs()
    more = (await seconds(evaluation) - await seconds(runs)) * 1000 / len(cases)
    assert more < 1.5, f"{more:.2f} ms a case"


async def test_looks_at_a_comparison_are_counted_by_the_journal():
    agent = Agent(Shop(), [price], journal="memory")
    other = Agent(Shop(), [price], journal=agent.journal, instructions="Be kind.")
    made = Evaluation("shop", [Case(f"How much is tea? {number}", contains="300", group="tea") for number in range(3)])
    first = made.only([case.name for case in made.cases][:2])
    once = compare(await first.run(agent), await first.run(other))
    again = compare(await first.run(agent), await first.run(other))
    assert (once.looks, again.looks) == (1, 1), "nothing is new"
    grown = compare(await made.run(agent), await made.run(other))
    assert (grown.looks, grown.cases) == (2, 3)
    assert set(grown.groups.values()) == {"tea"}
    fresh = await made.run(other, fresh=True)
    assert compare(await made.run(agent), fresh).looks == 3
    stored = [await find_report(agent.journal, one.job) for one in (grown.baseline, fresh)]
    assert compare(*stored).looks == 3
    later = Agent(Shop(), [price], journal=agent.journal, instructions="Be quick.")
    assert compare(await made.run(agent), await made.run(later)).looks == 1, "another version"
