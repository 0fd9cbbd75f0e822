"""The drawings of workflows and plans: conditions in words, plans read by the reader of plans, and nothing else drawn."""

from __future__ import annotations

import json

from kaname import Agent, AgentOrchestrator, ScriptedModel, TaskPlanner, Workflow, tool
from kaname.core.events import Event, ModelReplied, Opened, ToolFinished
from kaname.core.messages import Message, ModelReply, Text, ToolResult
from kaname.core.steps import CallModel
from kaname.run.recipe import describe
from kaname.serve.page.graphs import Graphs, draw_graph


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def replied(text):
    return Event("r", 2, 1.0, "a", ModelReplied(ModelReply(Message("assistant", (Text(text),)), "end_turn"), CallModel()))


def opened(recipe):
    return Event("r", 1, 1.0, "a", Opened(recipe=recipe))


def test_drawing_of_a_workflow_says_when_and_how_often_each_task_runs():
    flow = Workflow("flow", params={"limit": 5, "many": [1, 2]})
    first = flow.options(name="first", until="result > 3", rounds=3).task(add, 1, 2)
    flow.options(name="each", each=flow.param("many")).task(add, flow.item, first)
    flow.options(name="large", when=first > flow.param("limit")).task(add, first, 1)
    flow.options(name="other", when="on_failure", after=["large"]).task(add, 1, 1)
    flow.options(name="report", when="always", after=["large", "each"]).task(add, 1, 1)
    flow.options(name="some", needs=1, after=["large", "each"]).task(add, 1, 1)
    told = draw_graph(describe(flow.agent.recipe)["graph"])
    assert {task["name"]: [one["text"] for one in task.get("conditions", [])] for task in told["tasks"]} == {
        "first": ["until result > 3"],
        "each": ["for each of params['many']"],
        "large": ["if first > params['limit']"],
        "other": ["on failure"],
        "report": ["always"],
        "some": ["after 1 of its dependencies"],
    }
    assert len(told["edges"]) == sum(len(task["after"]) for task in told["tasks"]) == 7


def test_drawing_of_a_plan_is_made_of_the_reply_that_is_one():
    steps = [
        {"tool_name": "add", "name": "one", "arguments": {"a": 1, "b": 2}},
        {"tool_name": "add", "name": "two", "arguments": {"a": "${one}", "b": 2}},
    ]
    text = f"Here it is:\n{json.dumps({'description': 'd', 'steps': steps})}"
    graphs = Graphs()
    planner = AgentOrchestrator(TaskPlanner(ScriptedModel("x"), [add]))
    assert graphs.take(opened(describe(planner.agent.recipe))) is None
    told = graphs.take(replied(text))
    assert {task["name"]: task["after"] for task in told["tasks"]} == {"one": [], "two": ["one"]}
    assert graphs.take(replied("It is done.")) is None
    own = ToolFinished(ToolResult({"plan": {"steps": steps}}, call_id="plan1?generate", name="planner:generate_plan"))
    told = graphs.take(Event("r", 3, 1.0, "a", own))
    assert {task["name"]: task["after"] for task in told["tasks"]} == {"one": [], "two": ["one"]}, "of one's own planner"
    assert graphs.take(replied('{"steps": [1]}')) is None
    plain = Graphs()
    plain.take(opened(describe(Agent(ScriptedModel("x"), [add]).recipe)))
    assert plain.take(replied(text)) is None, "JSON of somebody else is no plan"


def test_drawing_refuses_what_is_no_list_of_tasks():
    for odd in (
        None,
        3,
        "abc",
        {},
        [1],
        [{"name": "a"}],
        [{"name": 1, "tool": "t", "after": []}],
        [{"name": "a", "tool": "t", "after": [1]}],
    ):
        assert draw_graph(odd) is None, odd
