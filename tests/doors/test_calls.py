"""Calls: one rule says when two are equal, and what people are shown of a call is never run."""

import ast
import json
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

import kaname
from kaname import Agent, Budget, Cache, Policy, Privacy, ScriptedModel, ToolSearch, call, tool
from kaname.core.calls import call_key, same_call
from kaname.core.events import ToolFinished
from kaname.core.messages import Message, ModelReply, ToolCall
from kaname.core.record import replace
from kaname.designs.orchestrator.orchestrator import AgentOrchestrator, TaskPlanner

SOURCE = Path(kaname.__file__).parent
LEFT_TO_THE_OUT_DOOR = {"policies/approve.py", "policies/lasting.py", "policies/flow/outbox.py"}


class Size(Enum):
    small = "small"


class Address(BaseModel):
    city: str
    zip: int = 0


@tool
def pay(yen: float, to: str = "shop", at: Annotated[datetime, Field(default_factory=datetime.now)] = ...) -> str:  # type: ignore[assignment]
    """Pay."""
    return "paid"


@tool
def order(key: SecretStr, data: bytes = b"", size: Size = Size.small, address: Address | None = None) -> str:
    """Order."""
    return "ordered"


def made(tool_name: str, **args: Any) -> ToolCall:
    return ToolCall("c1_0", tool_name, args)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"yen": 100}, {"yen": 100.0}),
        ({"yen": 100}, {"to": "shop", "yen": 100}),
        ({"yen": 100, "to": "bob"}, {"to": "bob", "yen": "100"}),
        ({"yen": 100}, '{"yen": 100}'),
    ],
)
def test_calls_are_equal_if_the_tool_receives_the_same(one, other):
    assert same_call(ToolCall("a", "pay", one), ToolCall("b", "pay", other), pay)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"key": "a"}, {"key": "b"}),
        ({"key": "a", "data": "x"}, {"key": "a", "data": "y"}),
        ({"key": "a", "address": {"city": "Kyoto"}}, {"key": "a", "address": {"city": "Nara"}}),
        ({"key": "a"}, {"key": 1}),
        ({"key": "a"}, "{"),
    ],
)
def test_calls_differ_in_what_is_hidden_from_people(one, other):
    assert not same_call(ToolCall("a", "order", one), ToolCall("b", "order", other), order)
    assert same_call(ToolCall("a", "order", one), ToolCall("b", "order", one), order)


def test_calls_are_compared_as_sent_without_the_tool():
    assert same_call(made("pay", yen=100, x={"a": 1, "b": [2.0]}), made("pay", x={"b": [2], "a": 1.0}, yen=100.0))
    assert not same_call(made("pay", yen=1), made("pay", yen=True))
    assert not same_call(made("pay", yen=1), made("pay", yen="1"))
    assert not same_call(made("pay", yen=1), made("pay", yen=1, to="shop"))
    assert not same_call(made("pay"), made("buy"))
    assert same_call(ToolCall("a", "pay", ""), made("pay"))


def test_calls_that_are_nested_too_deeply_equal_no_other():
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": deep}
    assert not same_call(made("pay", x=deep), made("pay", x={"a": deep}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda held: st.lists(held) | st.dictionaries(st.text(), held),
    max_leaves=10,
)


@given(JSON, JSON)
def test_keys_of_calls_are_equal_as_their_arguments_are(one, other):
    keys = [call_key(made("any", x=value)) for value in (one, json.loads(json.dumps(one)), other)]
    assert keys[0] == keys[1]
    assert hash(keys[0]) == hash(keys[1])
    if json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True):
        assert keys[0] == keys[2]


async def test_revised_plan_does_not_pay_again():
    paid = []

    @tool
    def pay(yen: float, to: str = "shop") -> str:
        """Pay."""
        paid.append((yen, to))
        return "paid"

    def plan(**args: Any) -> str:
        return json.dumps({"description": "pay", "steps": [{"name": "a", "tool_name": "pay", "arguments": args}]})

    def verdict(ok: bool) -> str:
        return json.dumps({"is_successful": ok, "should_retry": not ok, "feedback": "", "reason": "", "answer": "done"})

    script = [
        plan(yen=100),
        verdict(False),
        plan(yen=100.0, to="shop"),
        verdict(False),
        plan(to="shop", yen=100),
        verdict(True),
    ]
    planner = TaskPlanner(ScriptedModel(script), [pay])
    context = (await AgentOrchestrator(planner, None, "memory").execute_task("Pay.")).context
    assert context.is_completed
    assert paid == [(100.0, "shop")]


async def test_cache_keeps_secrets_apart_and_numbers_together():
    ran = []

    @tool(effect="pure")
    def look_up(key: SecretStr) -> str:
        """Look up."""
        ran.append(key.get_secret_value())
        return f"for {key.get_secret_value()}"

    @tool(effect="pure")
    def double(x: Any) -> Any:
        """Double."""
        ran.append(x)
        return x * 2

    script = [call("look_up", key="a"), call("look_up", key="b"), call("double", x=2), call("double", x=2.0), "done"]
    await Agent(ScriptedModel(script), [look_up, double], policies=[Cache()]).run("Look.")
    assert ran == ["a", "b", 2]


def comparisons(source: str) -> list[ast.AST]:
    """Return the places that compare the arguments of two calls, or make a key of them."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
            sides = [
                any(isinstance(one, ast.Attribute) and one.attr == "args" for one in ast.walk(side))
                for side in (node.left, *node.comparators)
            ]
            found += [node] if sum(sides) > 1 else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("identity", "dumps"):
            held = [one.attr for given in node.args for one in ast.walk(given) if isinstance(one, ast.Attribute)]
            found += [node] if "args" in held else []
    return found


def test_only_one_function_compares_calls():
    places = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if comparisons(path.read_text())}
    assert places - LEFT_TO_THE_OUT_DOOR == set(), "use `same_call` or `call_key` of core/calls.py"


def in_background(*calls: Any) -> ScriptedModel:
    return ScriptedModel(lambda request: next_reply(request, *calls))


def next_reply(request: Any, *calls: Any) -> Any:
    made = [one for message in request.messages for one in message.calls]
    started = [one for one in made if one.name != "tasks"]
    if len(started) < len(calls):
        return calls[len(started)]
    if len(made) < 2 * len(started):
        return call("tasks", action="collect", task=started[len(made) - len(started)].id)
    return "done"


@pytest.mark.parametrize("policies", [[], [Privacy({"email": {"input": "mask"}})]])
async def test_tool_in_the_background_receives_what_was_sent(policies):
    received = []

    @tool(background=True)
    def log_in(password: SecretStr, data: bytes, at: datetime, to: str = "shop") -> str:
        """Log in."""
        received.append((password.get_secret_value(), data, at.year, to))
        return "in"

    sent = call("log_in", password="hunter2", data="abc", at="2024-05-01T00:00:00", to="ann@example.com")
    agent = Agent(in_background(sent), [log_in], policies=policies)
    await agent.run("Log in.")
    assert received == [("hunter2", b"abc", 2024, "ann@example.com")]


async def test_tool_in_the_background_counts_once():
    ran = []

    @tool(background=True)
    def search(text: str) -> str:
        """Search."""
        ran.append(text)
        return text

    sent = [call("search", text="a"), call("search", text="b"), call("search", text="c")]
    agent = Agent(in_background(*sent), [search], policies=[Budget(tools={"search": "2 calls/day"})])
    await agent.run("Search.")
    assert ran == ["a", "b"]


async def test_policy_that_changes_one_argument_leaves_secrets_as_they_were_sent():
    received = []

    class Login(BaseModel):
        user: str
        password: SecretStr

    class Rename(Policy):
        async def tool(self, call, next, view):
            login = {**call.args["login"], "user": "ann"}
            return await next(replace(call, args={**call.args, "login": login, "to": "bank"}))

    @tool
    def log_in(key: SecretStr, login: Login, to: str, pin: SecretStr = SecretStr("0000")) -> str:  # noqa: B008
        """Log in."""
        received.append((key.get_secret_value(), login.user, login.password.get_secret_value(), to, pin.get_secret_value()))
        return "in"

    sent = call("log_in", key="k", login={"user": "bob", "password": "p"}, to="shop")
    await Agent(ScriptedModel([sent, "done"]), [log_in], policies=[Rename()]).run("Log in.")
    assert received == [("k", "ann", "p", "bank", "0000")]


@pytest.mark.parametrize(
    "given",
    [
        {"args": {"yen": 5}},
        {"args": '{"yen": 5}'},
        {"arguments": {"yen": 5}},
        {"params": {"yen": 5}},
        {"parameters": {"yen": 5}},
        {"input": {"yen": 5}},
        {"input": '{"yen": 5}'},
        {"yen": 5},
        {"yen": 5, "to": "shop"},
    ],
)
async def test_use_tool_runs_the_call_that_is_meant(given):
    assert await used(given) == ([(5, "shop")], "")


@pytest.mark.parametrize(
    "given",
    [
        {"args": {}, "yen": 5},
        {"args": {"yen": 5}, "to": "bob"},
        {"argument": {"yen": 5}},
        {"arguments": {"yne": 5}},
        {"arguments": {"yen": 5}, "params": {"yen": 6}},
        {"yen": 5, "reason": "why"},
    ],
)
async def test_use_tool_refuses_other_keys_instead_of_running_with_defaults(given):
    paid, error = await used(given)
    assert paid == []
    assert "`args`" in error
    assert "pay" in error


async def used(given: dict[str, Any]) -> tuple[list[Any], str]:
    """Return the calls of `pay`, and the error of `use_tool`."""
    paid = []

    @tool
    def pay(yen: int = 1, to: str = "shop") -> str:
        """Pay."""
        paid.append((yen, to))
        return "paid"

    agent = Agent(
        ScriptedModel([ModelReply(Message("assistant", (ToolCall("", "use_tool", {"name": "pay", **given}),))), "done"]),
        [pay, ToolSearch(above=0)],
    )
    result = await agent.run("Pay.")
    results = [event.body.result async for event in agent.journal.read(result.run_id) if isinstance(event.body, ToolFinished)]
    return paid, results[0].error or ""
