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
from kaname import (
    Agent,
    AgentConfiguration,
    Approve,
    Budget,
    Cache,
    Guardrails,
    InvalidState,
    Policy,
    Privacy,
    ScriptedModel,
    ToolExecutionFailed,
    ToolRule,
    ToolSearch,
    call,
    tool,
)
from kaname.core.calls import call_key, same_call
from kaname.core.events import ToolFinished
from kaname.core.messages import Message, ModelReply, ToolCall
from kaname.core.record import replace
from kaname.designs.orchestrator.orchestrator import AgentOrchestrator, TaskPlanner
from tests.parts import add, until
from tests.policies.ledger import ran_at_module, write_down

SOURCE = Path(kaname.__file__).parent


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
    ran_at_module.clear()

    @tool(effect="pure")
    def look_up(key: SecretStr) -> str:
        """Look up."""
        write_down(key.get_secret_value())
        return f"for {key.get_secret_value()}"

    @tool(effect="pure")
    def double(x: Any) -> Any:
        """Double."""
        write_down(str(x))
        return x * 2

    script = [call("look_up", key="a"), call("look_up", key="b"), call("double", x=2), call("double", x=2.0), "done"]
    await Agent(ScriptedModel(script), [look_up, double], policies=[Cache()]).run("Look.")
    assert ran_at_module == ["a", "b", "2"]


def comparisons(source: str) -> list[ast.AST]:
    """Return the places that compare the arguments of two calls, or make a key of them."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)) if ".args" in source else ():
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
    places.discard("testing/combine/monitor.py")  # it is written from the docs, and shares no code with what it judges
    assert places == set(), "use `same_call` or `call_key` of core/calls.py"


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


def paying(paid: list[Any], *policies: Policy, sent: Any = None, hand_out: bool = False, user: str = "ann") -> Any:
    """Return a sequence of an agent that pays."""

    @tool
    def pay(yen: int, to: str = "shop") -> str:
        """Pay."""
        paid.append((yen, to))
        return "paid"

    agent = Agent(ScriptedModel([sent or call("pay", yen=5), "done"]), [pay], policies=policies)
    return agent.steps("Pay.", configuration=AgentConfiguration(auto_execute_tools=not hand_out), user_id=user)


async def waiting(sequence: Any) -> None:
    """Pull until the sequence waits for an answer."""
    with pytest.raises(InvalidState, match="approve:c1_0"):
        async for _ in sequence:
            pass


@pytest.mark.parametrize("hand_out", [False, True])
async def test_answers_of_a_sequence_are_checked_as_those_of_a_run(hand_out):
    sequence = paying(paid := [], Approve("pay", by="other"), hand_out=hand_out)
    await waiting(sequence)
    with pytest.raises(InvalidState, match="another person"):
        await sequence.answer("approve:c1_0", "yes")
    with pytest.raises(InvalidState, match="another person"):
        await sequence.answer("approve:c1_0", "yes", by="ann")
    with pytest.raises(InvalidState):
        await sequence.answer("approve:c1_0", {"maybe": 1}, by="bob")
    with pytest.raises(InvalidState):
        await sequence.answer("approve:c1_1", "yes", by="bob")
    with pytest.raises(InvalidState):
        await sequence.answer("approve:c1_0", {"args": {"yne": 1}}, by="bob")
    await sequence.answer("approve:c1_0", "yes", by="bob")
    step = await anext(sequence)
    assert paid == ([] if hand_out else [(5, "shop")])
    assert step.kind == ("tool_call" if hand_out else "tool_result")
    await sequence.aclose()


async def test_question_of_a_sequence_expires():
    sequence = paying(paid := [], Approve("pay", expires="1ms", then="refuse"))
    steps = await all_steps(sequence)
    assert [step.kind for step in steps] == ["tool_call", "tool_result", "final_response"]
    assert "not answered in time" in steps[1].result.error
    assert paid == []


async def all_steps(sequence: Any) -> list[Any]:
    """Pull all steps. A question expires in the meantime."""
    steps: list[Any] = []

    async def pull() -> bool:
        try:
            async for step in sequence:
                steps.append(step)
        except InvalidState:
            return False
        return True

    await until(pull)
    return steps


async def test_call_is_handed_out_as_a_person_has_changed_it():
    sequence = paying(paid := [], Approve("pay"), hand_out=True)
    await waiting(sequence)
    await sequence.answer("approve:c1_0", {"args": {"yen": 3}})
    step = await anext(sequence)
    assert step.call.args == {"yen": 3}
    with pytest.raises(InvalidState, match="other arguments"):
        await sequence.execute_tool(ToolCall("c1_0", "pay", {"yen": 5}))
    result = await sequence.execute_tool(step.call)
    await sequence.submit("c1_0", result)
    with pytest.raises(InvalidState, match="already has a result"):
        await sequence.execute_tool(step.call)
    assert [one.kind async for one in sequence] == ["tool_result", "final_response"]
    assert paid == [(3, "shop")]


@pytest.mark.parametrize("hand_out", [False, True])
async def test_call_by_hand_passes_through_the_policies(hand_out):
    sequence = paying(paid := [], Approve("pay"), sent="nothing to do", hand_out=hand_out)
    by_hand = ToolCall("mine", "pay", {"yen": 9})
    with pytest.raises(InvalidState, match="approve:mine"):
        await sequence.execute_tool(by_hand)
    assert paid == []
    await sequence.answer("approve:mine", "yes")
    assert (await sequence.execute_tool(by_hand)).output == "paid"
    assert paid == [(9, "shop")]
    refused = paying(paid, Guardrails(tools=[ToolRule("pay", allowed=False)]), sent="nothing", hand_out=hand_out)
    with pytest.raises(ToolExecutionFailed, match="not allowed"):
        await refused.execute_tool(by_hand)
    assert paid == [(9, "shop")]


async def test_call_that_is_handed_out_counts_once():
    agent = Agent(
        ScriptedModel([call("add", a=1, b=1), call("add", a=2, b=2), call("add", a=3, b=3), "done"]),
        [add],
        policies=[Budget(tools={"add": "2 calls/day"})],
    )
    sequence = agent.steps("Add.", configuration=AgentConfiguration(auto_execute_tools=False))
    results = []
    async for step in sequence:
        if step.kind == "tool_call" and step.call.id in sequence.result.state.open:
            await sequence.submit(step.call.id, step.call.args["a"] * 2)
        if step.kind == "tool_result":
            results.append(step.result.output)
    assert results == [2, 4, None]
