"""Evaluations in files: YAML, JSONL and Python; recorded runs as cases; reports; the terminal and pytest."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from kaname import Agent, ConfigError, RunNotFound, ScriptedModel, Sessions, call
from kaname.cli.main import main
from kaname.evals import Case, Evaluation, add_case, as_test, case_from_run, load_evaluation
from kaname.evals.results.formats import as_html, as_junit
from kaname.run.figures import rate
from tests.evals.test_evaluation import price, shop

PROGRAM = """
from kaname import Agent, ScriptedModel, call, tool
from kaname.evals import Case, Evaluation

@tool(effect="pure")
def price(item: str) -> int:
    "The price of an item."
    return 300

def say(request):
    replies = sum(message.role == "assistant" for message in request.messages)
    return "It is 300 yen." if replies else call("price", item="tea")

shop = Agent(ScriptedModel(say), [price], name="shop", journal="j.db")
kinder = Agent(ScriptedModel(say), [price], name="shop", journal="j.db", instructions="Be kind.")
evaluation = Evaluation("program", [Case("tea?", contains="300")])
made = []

def is_short(outcome):
    return len(outcome.text) < 100

def make(folder):
    made.append(folder)
    (folder / "seen.txt").write_text("yes")
    return Agent(ScriptedModel(say), [price], name="shop", journal=folder / "own.db")
"""
YAML = """
name: shop
agent: program.py:shop
repeat: 2
checks:
  steps: 4
cases:
  - name: tea
    input: How much is tea?
    contains: "300"
    calls: [price: {item: tea}]
    predicate: program.py:is_short
  - name: cake   # it says the price of tea
    input: How much is cake?
    number: {is: 450, within: 10}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KANAME_JOURNAL", str(tmp_path / "j.db"))
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "evals.yaml").write_text(YAML)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "program", raising=False)
    return tmp_path


def test_an_evaluation_is_read_from_yaml_jsonl_and_python(folder):
    made = load_evaluation("evals.yaml")
    assert (made.name, made.agent, made.repeat) == ("shop", "program.py:shop", 2)
    assert [(case.name, [*case.expect]) for case in made.cases] == [
        ("tea", ["steps", "contains", "calls", "predicate"]),
        ("cake", ["steps", "number"]),
    ]
    (folder / "more.jsonl").write_text(
        '"hello"\n\n{"input": "tea?", "user": {"goal": "tea", "turns": 2}, "stop": "completed"}\n'
    )
    hello, tea = load_evaluation("more.jsonl").cases
    assert (hello.input, tea.user.turns) == ("hello", 2)
    (folder / "both.yaml").write_text("cases: more.jsonl\njudge: local")
    assert len(load_evaluation("both.yaml").cases) == 2
    assert load_evaluation("program.py").name == load_evaluation("program.py:evaluation").name == "program"
    with pytest.raises(ConfigError, match="must define one Evaluation"):
        load_evaluation("program.py:shop")


def test_every_mistake_of_a_file_is_told_with_its_line(folder):
    (folder / "bad.yaml").write_text("cases:\n  - inptu: x\n  - input: a\n    cost: many\n    stop: done\n  - {name: empty}\n")
    with pytest.raises(ConfigError) as caught:
        load_evaluation("bad.yaml")
    told = str(caught.value)
    assert "bad.yaml:2: cases.0.inptu: unknown key; did you mean 'input'?" in told
    assert "bad.yaml:4: cases.1.cost" in told
    assert "bad.yaml:5: cases.1.stop" in told
    (folder / "bad.jsonl").write_text('"fine"\nno\n{"input": "x", "contain": 1}\n[]\n')
    with pytest.raises(ConfigError) as caught:
        load_evaluation("bad.jsonl")
    assert [line.split(": ")[0].strip() for line in str(caught.value).splitlines()[1:]] == [
        "bad.jsonl:2",
        "bad.jsonl:3",
        "bad.jsonl:4",
    ]
    for text in ("cases: []", "name: x", "[1]"):
        (folder / "bad.yaml").write_text(text)
        with pytest.raises(ConfigError):
            load_evaluation("bad.yaml")
    with pytest.raises(ConfigError, match="does not exist"):
        load_evaluation("nothing.yaml")


async def test_a_recorded_run_becomes_a_case(folder):
    agent = shop(folder / "j.db")
    result = await agent.run("How much is tea?")
    case = await case_from_run(agent.journal, result.run_id)
    assert case == {
        "name": f"How much is tea? ({result.run_id[-6:]})",
        "input": "How much is tea?",
        "calls_in_order": ["price"],
        "reference": "It is 300 yen.",
    }
    await rate(agent.journal, result.run_id, "bad")
    assert {*await case_from_run(agent.journal, result.run_id)} == {"name", "input"}, "it is no example of how it should be"
    first = await agent.run("tea?", session_id="s")
    second = await agent.run("and cake?", session_id="s")
    later = await case_from_run(agent.journal, second.run_id)
    assert [one["role"] for one in later["input"]] == ["user", "assistant", "tool", "assistant", "user"]
    assert (await Evaluation("e", [Case(later["input"], contains="450")]).run(shop())).rate == 1.0
    with pytest.raises(RunNotFound):
        await case_from_run(agent.journal, "nothing")
    assert first.completed


def test_a_case_is_added_to_a_file_and_the_rest_stays(folder):
    case = {"name": "new\n: 'one'", "input": "Wie viel?\nこれは?", "calls_in_order": ["price"]}
    assert add_case("evals.yaml", case).read_text("utf-8").startswith(YAML), "comments, too"
    assert [one.input for one in load_evaluation("evals.yaml").cases][2] == case["input"]
    with pytest.raises(ConfigError, match="already"):
        add_case("evals.yaml", case)
    for name in ("made.yaml", "made.jsonl"):
        add_case(name, case)
        add_case(name, {**case, "name": "other"})
        assert [one.name for one in load_evaluation(name).cases] == [case["name"], "other"]
    (folder / "flow.yaml").write_text("cases: [{input: a}]\nname: x\n")
    with pytest.raises(ConfigError, match="must be a list at its end"):
        add_case("flow.yaml", case)
    assert (folder / "flow.yaml").read_text() == "cases: [{input: a}]\nname: x\n"
    with pytest.raises(ConfigError, match=r"\.jsonl or \.yaml"):
        add_case("x.txt", case)


async def test_a_report_is_json_junit_and_html():
    cases = [Case("tea?", "good", contains="300"), Case("<tea>&\x01?", "bad", contains=']]>"<b>')]
    report = await Evaluation("x<y", cases, repeat=2).run(shop())
    told = json.loads(json.dumps(report.to_json()))
    assert [one["passed"] for one in told["results"]] == [True, False]
    suite = ElementTree.fromstring(as_junit(report))
    assert (suite.get("tests"), suite.get("failures"), suite.get("name")) == ("2", "1", "x<y")
    failure = suite.find("testcase[@name='bad']/failure")
    assert failure.get("message") == "0 of 2 attempts passed"
    assert report.attempts[2].run_ids[0] in failure.text
    page = as_html(report)
    assert "<b>'" not in page
    assert "50% of the attempts passed" in page


def run(capsys, *words):
    code = main(["eval", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_terminal_runs_lists_compares_and_adds(folder, capsys):
    code, out, err = run(capsys)
    assert code == 1
    assert "too few cases to compare two agents: 2" in err
    assert "✓ tea  2/2" in out
    assert "✗ cake 0/2" in out
    assert "shop: 1 of 2 cases passed; 50% of attempts (95 % interval 9% to 91%)" in out
    assert "all 2 attempts pass in 50% of cases (pass^2)" in out
    assert "runs show eval-shop-" in out
    assert run(capsys, "--at-least", "0.5", "--junit", "r.xml", "--html", "r.html")[0] == 0
    assert (folder / "r.xml").exists()
    assert (folder / "r.html").exists()
    assert run(capsys, "--case", "tea", "-k", "1", "--label", "one", "-q")[0] == 0
    code, out, _ = run(capsys, "-a", "program.py:kinder", "--label", "kind", "--json")
    assert json.loads(out)["label"] == "kind"
    code, out, _ = run(capsys, "list")
    assert [line.split()[-1] for line in out.splitlines()] == ["[kind]", "[one]"]
    code, out, _ = run(capsys, "compare", "one", "kind")
    assert (code, "too few cases to say: +0.0 points" in out) == (0, True)
    assert json.loads(run(capsys, "compare", "one", "kind", "--json")[1])["verdict"] == "too few"
    assert "✗ cake 0/2" in run(capsys, "show", "kind")[1]
    code, out, err = run(capsys, "add", "last")
    assert code == 0
    assert "evals.jsonl" in err
    assert len(load_evaluation("evals.jsonl").cases) == 1
    assert run(capsys, "compare", "one")[0] == 2
    assert run(capsys, "show", "nothing")[0] == 2
    assert run(capsys, "nothing.yaml")[0] == 2


def test_the_terminal_makes_an_agent_for_each_attempt(folder, capsys):
    (folder / "state.yaml").write_text("agent: program.py:make\ncases:\n  - {input: 'tea?', files: {seen.txt: 'yes'}}\n")
    code, out, err = run(capsys, "state.yaml")
    assert "eval-state-" in run(capsys, "list")[1], "in the journal of the program, not in that of a folder"
    assert (code, err) == (0, "too few cases to compare two agents: 1, and at least 6 are needed\n"), out


def test_cases_are_tests_of_pytest(folder):
    good = as_test("evals.yaml", lambda: shop(), repeat=1)
    (names,) = [mark.args[1] for mark in good.pytestmark]
    assert names == ["tea", "cake"]
    good("tea")
    agent = Agent(ScriptedModel([call("price", item="tea"), "300"]), [price], journal="memory")
    test = as_test(Evaluation("e", [Case("x", contains="300"), Case("y", contains="z")]), agent)
    test("x")
    with pytest.raises(pytest.fail.Exception, match="0 of 1 attempts passed"):
        test("y")
    as_test(Evaluation("e", [Case("y", contains="z")]), agent, at_least=0.0)("y")


async def test_conversations_of_an_agent_are_not_touched_by_its_evaluation(folder):
    agent = shop(folder / "j.db")
    await agent.run("tea?", session_id="mine")
    await Evaluation("e", [Case("cake?")]).run(agent)
    assert [one.id for one in await Sessions(agent.journal).all()] == ["mine"]
