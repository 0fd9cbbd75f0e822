"""Workflow files: the design document's own, the richer form, and every mistake with its line."""

import json
import re
import sys
from pathlib import Path

import pytest

from kaname import Agent, ConfigError, ScriptedModel, Workflow, tool
from kaname.cli.main import main
from kaname.serve import app
from kaname.workflows import draw
from kaname.workflows.file import SCHEMA

DOCUMENT = (Path(__file__).parents[1] / "corpora" / "workflow.yaml").read_text("utf-8")


@tool(effect="pure")
async def data_collector() -> dict:
    """Collect."""
    return {"rows": [3, 4, 5]}


@tool(effect="pure")
async def data_preprocessor(data: dict) -> list:
    """Clean."""
    return sorted(data["rows"], reverse=True)


@tool(effect="pure")
async def analyzer(values: list) -> dict:
    """Analyse."""
    return {"sum": sum(values), "max": max(values)}


@tool(effect="pure")
async def report_generator(result: dict) -> str:
    """Report."""
    return f"合計 {result['sum']}、最大 {result['max']}"


@tool(effect="pure")
async def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


@tool
async def send(text: str, to: str = "") -> str:
    """Send."""
    return f"sent {text}"


TOOLS = [data_collector, data_preprocessor, analyzer, report_generator, add, send]


def read(tmp_path, text, **more):
    path = tmp_path / "workflow.yaml"
    path.write_text(text, encoding="utf-8")
    return Workflow.from_file(path, TOOLS, journal="memory", **more)


async def test_workflow_file_of_the_document_runs_unchanged(tmp_path):
    made = read(tmp_path, DOCUMENT)
    result = await made.run()
    assert result.output == "合計 12、最大 5"
    assert made.name == "データ分析パイプライン"
    assert [one["status"] for one in (await made.progress(result.run_id)).told().values()] == ["done"] * 4


RICH = """
workflow:
  name: rich
  params:
    numbers: {type: array, items: {type: integer}}
    limit: 10
  max_parallel: 4
  outputs: {total: "${total}", said: "${note}", text: "The total is ${total}."}
  steps:
    - name: doubled
      tool: add
      for_each: params.numbers
      args: {a: "${item}", b: "${item}"}
    - name: total
      tool: add
      args: {a: "${doubled[0]}", b: "${doubled[1]}"}
    - name: large
      tool: send
      condition: total > limit
      args: {text: "large: ${total}"}
    - name: small
      tool: send
      condition: ${total <= limit}
      args: {text: "small: ${total}"}
    - name: note
      tool: send
      depends_on: [large, small]
      needs: any
      args: {text: "${large or small}"}
"""


async def test_workflow_file_with_items_branches_and_outputs(tmp_path):
    made = read(tmp_path, RICH)
    result = await made.run({"numbers": [1, 2]})
    assert result.output == {"total": 6, "said": "sent sent small: 6", "text": "The total is 6."}
    assert (await made.run({"numbers": [9, 9]})).output["said"] == "sent sent large: 36"
    with pytest.raises(ConfigError, match="params"):
        made.run({"numbers": "x"})
    with pytest.raises(ConfigError, match="numbers"):
        made.run()


async def test_workflow_file_with_person_agent_and_other_file(tmp_path):
    (tmp_path / "inner.yaml").write_text(
        "workflow:\n  name: inner\n  params: {n: {type: integer}}\n  steps:\n"
        "    - {name: more, tool: add, args: {a: '${params.n}', b: 1}}\n"
    )
    text = """
workflow:
  steps:
    - name: sum
      workflow: inner.yaml
      with: {n: 4}
    - name: think
      agent: thinker
      input: "Is ${sum} good?"
    - name: sure
      ask: "The agent says ${think}. Send it?"
      options: ["yes", "no"]
    - name: out
      tool: send
      condition: sure == "yes"
      args: {text: "${think}"}
"""
    made = read(tmp_path, text, agents={"thinker": Agent(ScriptedModel(["Very."]), name="thinker", journal="memory")})
    result = await made.run()
    ((key, asked),) = result.questions.items()
    assert asked.prompt == "The agent says Very.. Send it?"
    assert (await made.resume(result.run_id, {key: "yes"})).output == "sent Very."


async def test_workflow_files_may_name_the_same_tools(tmp_path):
    (tmp_path / "steps.py").write_text(
        "from kaname import tool\n@tool(effect='pure')\ndef one() -> int:\n    'One.'\n    return 1\n"
    )
    (tmp_path / "inner.yaml").write_text("workflow:\n  tools: [steps.py]\n  steps:\n    - {name: a, tool: one}\n")
    made = read(
        tmp_path,
        "workflow:\n  tools: [steps.py]\n  steps:\n    - {name: a, tool: one}\n    - {name: b, workflow: inner.yaml}\n",
    )
    assert (await made.run()).output == {"a": 1, "b": 1}


WRONG = [  # what stands in the file after `workflow:`, the line of the mistake, and what is said of it
    ("  name: x\n", 1, "'steps' is missing"),
    ("  steps: []\n", 2, "has no steps"),
    ("  steps:\n    - tool: add\n", 3, "'name' is missing"),
    ("  steps:\n    - {name: a, tool: add, args: {a: 1}, colour: red}\n", 3, "unknown key"),
    ("  step:\n    - {name: a}\n", 2, "unknown key"),
    ("  steps:\n    - {name: a}\n", 3, "exactly one of tool, ask, agent, workflow"),
    ("  steps:\n    - {name: a, tool: add, ask: Why}\n", 3, "not tool \\+ ask"),
    ("  steps:\n    - name: a\n      tool: ad\n", 4, "there is no tool 'ad'.*add"),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: 1, c: 2}\n", 5, "add has no argument 'c'"),
    ("  steps:\n    - name: a\n      tool: add\n      args: {b: 2}\n", 5, "add is missing the required argument 'a'"),
    ("  steps:\n    - name: a\n      tool: add\n      args:\n        a: one\n", 6, "expected integer"),
    ("  steps:\n    - {name: a, tool: add, args: {a: 1}}\n    - {name: a, tool: add, args: {a: 1}}\n", 4, "used twice"),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      depends_on: [b]\n", 6, "there is no task 'b'"),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      depends_on: a\n", 6, "depends on itself"),
    (
        "  steps:\n    - {name: a, tool: add, args: {a: 1}, depends_on: b}\n    - {name: b, tool: add, args: {a: 1}, depends_on: a}\n",
        4,
        "circular dependency: (a → b → a|b → a → b)",
    ),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: '${x.y}'}\n", 5, "there is no 'x'"),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: '${params.'}\n", 5, "has no closing|is not a valid expression"),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: '${len(params)}'}\n", 5, "cannot call functions"),
    (
        "  steps:\n    - name: a\n      tool: add\n      args: {a: '${params.__class__}'}\n",
        5,
        "must not begin with an underscore",
    ),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      condition: 1 >\n", 6, "is not a valid expression"),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      condition: false\n", 6, "can never run"),
    (
        "  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      condition: on_failure\n",
        6,
        "depends on no other step",
    ),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      timeout: soon\n", 6, "soon"),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      on_failure: explode\n", 6, "is not a valid value"),
    ("  steps:\n    - name: a\n      tool: send\n      args: {text: x}\n      retries: 3\n", 6, "is not retried automatically"),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      needs: 2\n", 6, "2 tasks are needed.* only 0"),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      undo: ad\n", 6, "there is no tool 'ad'"),
    ("  steps:\n    - name: a\n      agent: nobody\n", 4, "there is no agent 'nobody'"),
    ("  steps:\n    - name: a\n      workflow: nothing.yaml\n", 4, "nothing.yaml"),
    ("  steps:\n    - name: a\n      workflow: workflow.yaml\n", 4, "includes itself"),
    ("  outputs: '${b}'\n  steps:\n    - {name: a, tool: add, args: {a: 1}}\n", 2, "there is no 'b'"),
    ("  steps:\n    - name: 'a[0]'\n      tool: add\n      args: {a: 1}\n", 3, "cannot be used as a name"),
    (
        "  params: {n: {type: text}}\n  steps:\n    - {name: a, tool: add, args: {a: 1}}\n",
        2,
        "the type of n must be one of string",
    ),
    (
        "  params:\n    n: {type: integer, default: one}\n  steps:\n    - {name: a, tool: add, args: {a: 1}}\n",
        3,
        "default: n: expected",
    ),
    (
        "  params:\n    n: {typ: integer}\n  steps:\n    - {name: a, tool: add, args: {a: 1}}\n",
        3,
        "'typ' cannot be used here.*type",
    ),
    ("  steps:\n    - name: a\n      tool: add\n      args:\n        b: 1\n        a: '${a}'\n", 7, "its own result"),
    (
        "  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      condition: steps.a.status == 'done'\n",
        6,
        "its own result",
    ),
    (
        "  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      retries: -1\n",
        6,
        "must be an integer of at least 0, not -1",
    ),
    (
        "  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      max_rounds: 4\n",
        6,
        "without 'until'",
    ),
    (
        "  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      with: {}\n",
        6,
        "'with' cannot be used in a step with 'tool'",
    ),
    (
        "  max_parallel: 0\n  steps:\n    - {name: a, tool: add, args: {a: 1}}\n",
        2,
        "max_parallel must be an integer of at least 1",
    ),
    ("  steps:\n    - name: a\n      tool: add\n      args: {a: '${params.n}'}\n", 5, "there is no parameter 'n'"),
    (
        "  steps:\n    - {name: a, tool: add, args: {a: 1}}\n    - name: b\n      tool: add\n      args: {a: 1}\n"
        "      condition: steps.a.staus == 'done'\n",
        7,
        "a step has no field 'staus' .fields: status, output, error",
    ),
    (
        "  steps:\n    - name: a\n      tool: add\n      args: {a: 1}\n      condition: steps['x'].status == 'done'\n",
        6,
        "there is no task 'x'",
    ),
    ("  tools: [nothing.py]\n  steps:\n    - {name: a, tool: add, args: {a: 1}}\n", 2, "nothing.py"),
]


@pytest.mark.parametrize(("text", "line", "told"), WRONG, ids=range(len(WRONG)))
def test_workflow_file_with_a_mistake_says_its_line(text, line, told, tmp_path):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"workflow:\n{text}")
    said = str(caught.value)
    assert re.search(told, said), said
    assert re.search(rf"workflow\.yaml:{line}:.*({told})", said), said


def test_all_mistakes_of_a_workflow_file_are_told_at_once(tmp_path):
    text = (
        "workflow:\n  steps:\n    - {name: a, tool: ad}\n    - {name: b, tool: add, args: {c: 1}, depends_on: x}\n"
        "    - {name: c, tool: add, args: {a: '${nobody}'}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert len(caught.value.mistakes) == 5


def test_mistakes_of_form_do_not_hide_those_of_content(tmp_path):
    text = (
        "workflow:\n  steps:\n    - {name: a, tool: add, args: {a: 1}, colour: red, retries: many}\n"
        "    - {name: b, tool: ad, depends_on: a}\n    - {name: c, tool: add, args: {a: '${a}', b: '${nobody}'}}\n    - 7\n"
    )
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    told = "\n".join(caught.value.mistakes)
    for words in ("3: .*unknown key", "3: .*expected an integer", "4: .*no tool 'ad'", "5: .*no 'nobody'", "6: .*expected"):
        assert re.search(words, told), (words, told)
    assert len(caught.value.mistakes) == 5


def test_one_mistake_hides_no_other_and_makes_up_none(tmp_path):
    (tmp_path / "sub.yaml").write_text("workflow: {steps: [{name: s, tool: nothing}]}")
    text = (
        "workflow:\n  colour: red\n  steps:\n    - {name: a, tool: add, retry: 3, args: {a: '${nobody}', b: '${1 +}'}}\n"
        "    - {name: b, workflow: sub.yaml}\n    - {name: c, tool: add, args: {a: '${b}'}, condition: zz > 1, depends_on: b}\n"
        "  outputs: {x: '${nowhere}', y: '${1 +}'}\n"
    )
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    told = "\n".join(caught.value.mistakes)
    wanted = [
        "2: .*colour",
        "4: .*retry",
        "4: .*no 'nobody'",
        "4: .*is not a valid expression",
        "5: .*no tool 'nothing'",
        "6: .*no 'zz'",
    ]
    for words in [*wanted, "7: .*no 'nowhere'", "7: .*is not a valid expression"]:
        assert re.search(words, told), (words, told)
    assert len(caught.value.mistakes) == 8


async def test_same_workflow_file_is_used_twice(tmp_path):
    sub = "workflow: {name: sub, params: {n: 1}, steps: [{name: s, tool: add, args: {a: '${params.n}', b: 1}}]}"
    (tmp_path / "sub.yaml").write_text(sub)
    text = "workflow:\n  steps:\n    - {name: a, workflow: sub.yaml, with: {n: 1}}\n    - {name: b, workflow: sub.yaml, with: {n: 5}}\n"
    assert (await read(tmp_path, text).run()).output == {"a": 2, "b": 6}


def test_workflow_drawn_in_three_ways(tmp_path):
    graph = read(tmp_path, RICH).graph
    assert "  note: send (after 1 of its dependencies)  ← large, small" in draw.terminal(graph)
    assert draw.mermaid(graph).startswith("flowchart TD\n")
    assert 't1 -->|"total #gt; limit"| t2' in draw.mermaid(graph)
    picture = draw.svg(graph)
    assert picture.startswith("<svg")
    import xml.etree.ElementTree as xml

    assert len(xml.fromstring(picture).findall(".//{http://www.w3.org/2000/svg}rect")) == 5


def test_schema_of_workflow_files_is_written_down():
    written = Path(__file__).parents[2] / "docs" / "workflow.schema.json"
    assert json.loads(written.read_text("utf-8")) == SCHEMA


DESK = """
agents: {desk: {model: scripted/script.json, tools: [calculator]}}
workflows: [flows/order.yaml]
journal: memory
"""
ORDER = """
workflow:
  name: order
  params: {count: 2}
  outputs: {price: "${price}", said: "${said}"}
  steps:
    - {name: price, tool: calculator, args: {expression: "${params.count} * 300"}}
    - {name: said, agent: desk, input: "${price}"}
"""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flows").mkdir()
    (tmp_path / "kaname.yaml").write_text(DESK)
    (tmp_path / "script.json").write_text('["with pleasure"]')
    (tmp_path / "flows" / "order.yaml").write_text(ORDER)
    return tmp_path


async def test_workflows_that_the_configuration_names_are_served_with_its_agents_and_tools(desk):
    service = app(desk / "kaname.yaml").service
    assert (list(service.agents), list(service.workflows)) == (["desk", "order"], ["order"])
    order = service.agent("order")
    result = await order.run(service.input_of(order, '{"count": 3}'))
    assert result.output == {"price": "900", "said": "with pleasure"}
    assert order.origin["workflow"] == str(desk / "flows" / "order.yaml")
    assert order.origin["config"] == [str(desk / "kaname.yaml")]


def test_workflow_with_the_name_of_an_agent_or_of_another_workflow_is_reported(desk, capsys):
    (desk / "flows" / "again.yaml").write_text(ORDER)
    (desk / "flows" / "desk.yaml").write_text(ORDER.replace("  name: order\n", ""))
    (desk / "kaname.yaml").write_text(DESK.replace("order.yaml", "order.yaml, flows/again.yaml, flows/desk.yaml"))
    assert main(["config", "check"]) == 2
    told = capsys.readouterr().err
    assert f"{desk}/flows/again.yaml: the workflow in {desk}/flows/order.yaml is also named 'order'" in told
    assert f"{desk}/flows/desk.yaml: an agent is also named 'desk'" in told
    with pytest.raises(ConfigError, match="an agent is also named 'desk'"):
        app(desk / "kaname.yaml")


@pytest.mark.parametrize(
    "command",
    [("run", "-a", "order", '{"count": 3}'), ("workflow", "run", "-a", "order", "-p", "count=3")],
    ids=["run", "workflow run"],
)
@pytest.mark.parametrize("where", [(), ("-c", "kaname.yaml")], ids=["here", "by its file"])
def test_workflow_that_the_configuration_names_is_run_by_its_name(desk, capsys, monkeypatch, command, where):
    monkeypatch.setattr(sys, "stdin", None)
    (desk / "kaname.yaml").write_text(DESK.replace("journal: memory", "journal: runs.db"))
    assert main([*command, *where]) == 0
    assert '"price": "900"' in capsys.readouterr().out
    assert main(["runs", "list", "-a", "order", *where]) == 0
    assert "completed" in capsys.readouterr().out
    assert main(["runs", "replay", "last", "-a", "order", *where]) == 0
    assert "the same decisions" in capsys.readouterr().out


def test_workflow_that_the_configuration_names_is_checked_and_drawn_by_its_name(desk, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["workflow", "check", "-a", "order"]) == 0
    assert "order: 2 tasks, no errors" in capsys.readouterr().out
    assert main(["workflow", "show", "-a", "order"]) == 0
    assert "price" in capsys.readouterr().out
    assert main(["run", "-a", "order"]) == 0, "its parameters have defaults"
    assert main(["run", "-a", "ordre", "x"]) == 2
    assert "there is no agent 'ordre'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [("config", "check"), ("workflow", "check", "-a", "order"), ("workflow", "show", "-a", "order")]
)
def test_checking_and_drawing_a_workflow_needs_no_key(desk, monkeypatch, capsys, command):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (desk / "kaname.yaml").write_text(DESK.replace("scripted/script.json", "openai/some-model"))
    assert main([*command]) == 0, capsys.readouterr().err
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["workflow", "run", "-a", "order"]) == 2
    assert "needs a key: set OPENAI_API_KEY" in capsys.readouterr().err


def test_mistakes_in_a_workflow_that_the_configuration_names_are_told_with_their_place(desk, capsys):
    assert main(["config", "check"]) == 0
    assert "agents: desk; workflows: order" in capsys.readouterr().err
    (desk / "flows" / "order.yaml").write_text(ORDER.replace("tool: calculator", "tool: calculater"))
    assert main(["config", "check"]) == 2
    told = capsys.readouterr().err
    assert "order.yaml:7:" in told
    assert "calculater" in told
    (desk / "kaname.yaml").write_text(DESK.replace("order", "ordre"))
    assert main(["config", "check"]) == 2
    assert "ordre.yaml:1: cannot be read" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="ordre"):
        app(desk / "kaname.yaml")
