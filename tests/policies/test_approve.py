"""Approvals: the condition and the person see what the tool receives, and exactly that is run."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from kaname import (
    Agent,
    Approve,
    ConfigError,
    Guardrails,
    InvalidState,
    MemoryJournal,
    Policy,
    ScriptedModel,
    Suspend,
    ToolResult,
    ToolRule,
    call,
    tool,
)
from kaname.core.messages import ToolCall
from kaname.core.people.answers import normalize_answer, read_decision, says
from kaname.core.people.visible import visible, visible_json
from tests.properties import tries


def cashier(*policies: Any, args: Any, journal: Any = "memory") -> tuple[list[float], Agent[Any]]:
    paid: list[float] = []

    @tool
    async def pay(yen: float = 100.0, to: str = "shop") -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    def script(request: Any) -> Any:
        return "done" if request.messages[-1].role == "tool" else ToolCall("1", "pay", args)

    return paid, Agent(ScriptedModel(script), [pay], policies=policies, journal=journal)


@pytest.mark.parametrize("args", [{}, {"to": "x"}, {"yen": "100.0"}, '{"yen": "100"}', "{}", None, {"yen": 100, "to": None}])
@pytest.mark.parametrize("limit", [50, 1000])
async def test_condition_sees_what_the_tool_receives(args: Any, limit: float) -> None:
    paid, agent = cashier(Approve(when=lambda one: one.args["yen"] > limit), args=args)
    result = await agent.run("go")
    assert result.stop.kind == ("waiting" if limit == 50 else "completed")
    assert paid == ([] if limit == 50 else [100.0])
    if limit == 50:
        (question,) = result.questions.values()
        assert question.about.args["yen"] == 100.0
        assert '"yen": 100.0' in question.prompt


async def test_condition_that_raises_asks() -> None:
    paid, agent = cashier(Approve(when=lambda one: one.args["no such"] > 1), args={"yen": 1})
    assert (await agent.run("go")).stop.kind == "waiting"
    assert paid == []


def test_condition_that_would_have_to_be_awaited_is_refused() -> None:
    async def when(call: Any) -> bool:
        return False

    with pytest.raises(ConfigError, match="must be a plain function"):
        Approve(when=when)  # type: ignore[arg-type]


async def test_arguments_that_do_not_fit_are_not_asked_about() -> None:
    paid, agent = cashier(Approve("pay"), args={"yen": "much"})
    seen = []

    def script(request: Any) -> Any:
        seen.append(request)
        return call("pay", yen="much") if len(seen) == 1 else "I was told"

    agent = Agent(ScriptedModel(script), list(agent.tools.values()), policies=[Approve("pay")], journal="memory")
    result = await agent.run("go")
    assert (result.output, paid) == ("I was told", [])
    assert "do not fit" in str(result.steps[0].observation)


class Colour(Enum):
    RED = "red"


class Order(BaseModel):
    amount: float
    colour: Colour = Colour.RED


async def test_condition_sees_objects_dates_and_enums_as_json() -> None:
    seen: list[Any] = []

    @tool
    async def order(what: Order, day: date, more: list[Order] | None = None) -> str:
        """Order."""
        assert isinstance(what, Order)
        assert isinstance(day, date)
        return "ordered"

    def when(one: ToolCall) -> bool:
        seen.append(one.args)
        return False

    model = ScriptedModel([call("order", what={"amount": "3"}, day="2026-11-17"), "done"])
    assert (await Agent(model, [order], policies=[Approve(when=when)], journal="memory").run("go")).completed
    assert seen == [{"what": {"amount": 3.0, "colour": "red"}, "day": "2026-11-17", "more": None}]


async def test_rule_and_condition_see_the_same_value() -> None:
    seen: list[Any] = []
    rule = ToolRule("pay", arguments={"yen": lambda yen: seen.append(yen) or True})
    _, agent = cashier(
        Guardrails(tools=[rule]), Approve(when=lambda one: bool(seen.append(one.args["yen"]))), args='{"yen": "7"}'
    )
    assert (await agent.run("go")).completed
    assert seen == [7.0, 7.0]
    assert [type(one) for one in seen] == [float, float]


@pytest.mark.parametrize("args", [{"yen": "much"}, {"dollars": 3}, {"yen": 5000}])
async def test_changed_arguments_are_checked_before_they_are_recorded(args: Any) -> None:
    """By the tool's schema and by the other policies; the approval is not used up."""
    rule = Guardrails(tools=[ToolRule("pay", arguments={"yen": lambda yen: yen < 1000})])
    paid, agent = cashier(rule, Approve("pay"), args={"yen": 5}, journal=MemoryJournal())
    waiting = await agent.run("go")
    (key,) = waiting.questions
    with pytest.raises(InvalidState, match="the changed arguments were not accepted"):
        await agent.resume(waiting.run_id, {key: {"args": args}})
    assert (await agent.result(waiting.run_id)).questions.keys() == {key}
    done = await agent.resume(waiting.run_id, {key: {"args": {"yen": "900"}}})
    assert (done.output, paid) == ("done", [900.0])


async def test_call_is_run_with_the_default_that_was_approved_even_if_it_has_changed_since() -> None:
    journal = MemoryJournal()
    paid, agent = cashier(Approve("pay"), args={}, journal=journal)
    waiting = await agent.run("go")

    @tool
    async def pay(yen: float = 100_000.0, to: str = "shop") -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    model = ScriptedModel(lambda request: "done")
    redeployed = Agent(model, [pay], policies=[Approve("pay")], journal=journal)
    result = await redeployed.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
    assert (result.output, paid) == ("done", [100.0])


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\u2066", "\x1b[2J", "\x00", "\ufeff", "\U000e0041", "\u3164", "\r"])
async def test_question_shows_characters_that_hide_or_reorder_others(hidden: str) -> None:
    _, agent = cashier(Approve("pay"), args={"to": f"{hidden}5000 neY家大"})
    (question,) = (await agent.run("go")).questions.values()
    assert hidden not in question.prompt
    assert "5000 neY家大" in question.prompt
    assert json.loads(question.prompt.removeprefix("Run pay(").removesuffix(")?"))["to"] == f"{hidden}5000 neY家大"


@tries(300)
@given(st.text())
def test_visible_text_is_printable_and_its_json_is_the_same_value(text: str) -> None:
    assert all(char.isprintable() or char in "\n\t" or char.isspace() for char in visible(text))
    assert json.loads(visible_json({"x": text})) == {"x": text}


@pytest.mark.parametrize("text", ["plain", "日本語　です。", "葛\U000e0100城", "❤\ufe0f", "a\nb\tc", "naïve – “quoted”"])
def test_visible_text_leaves_ordinary_text_alone(text: str) -> None:
    assert visible(text) == text


@tries(300)
@given(st.text())
def test_only_known_words_are_a_yes(text: str) -> None:
    said = says(text)
    assert said in (True, False, None)
    assert normalize_answer(normalize_answer(text)) == normalize_answer(text)
    if said is True:
        assert read_decision(text).approved  # type: ignore[union-attr]
    else:
        assert not read_decision(text).approved  # type: ignore[union-attr]


class Careless(Policy):
    """A policy that turns whatever goes wrong further in into an error."""

    async def tool(self, call: ToolCall, next: Any, view: Any) -> ToolResult:
        try:
            return await next(call)
        except Exception as problem:
            return ToolResult(error=str(problem))


async def test_question_passes_a_policy_that_catches_exceptions() -> None:
    paid, agent = cashier(Careless(), Approve("pay"), args={"yen": 5})
    waiting = await agent.run("go")
    assert (waiting.stop.kind, paid) == ("waiting", [])
    assert (await agent.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))).completed
    assert paid == [5]


async def test_question_that_a_tool_asks_in_one_of_several_tasks_is_asked() -> None:
    @tool(effect="idempotent")
    async def survey() -> str:
        """Ask in a group of tasks."""

        async def ask() -> None:
            raise Suspend("survey", "Ready?", ("yes", "no"))

        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
            group.create_task(ask())
        return "nobody was asked"

    agent = Agent(ScriptedModel([call("survey"), "done"]), [survey], journal="memory")
    assert list((await agent.run("go")).questions) == ["survey"]


class Rewriting(Policy):
    """A policy further out that puts other arguments in the place of the model's, as a text and without defaults."""

    async def tool(self, call: ToolCall, next: Any, view: Any) -> ToolResult:
        return await next(ToolCall(call.id, call.name, {"yen": "5000"}))


@pytest.mark.parametrize("inner", [Approve(when=lambda one: one.args["to"] == "shop"), Approve("pay")])
async def test_policy_sees_what_the_tool_receives_after_another_has_changed_the_call(inner: Approve) -> None:
    paid, agent = cashier(Rewriting(), inner, args={"yen": 1, "to": "home"})
    (question,) = (await agent.run("go")).questions.values()
    assert (paid, question.about.args) == ([], {"yen": 5000.0, "to": "shop"})


async def test_rule_holds_for_a_default_after_another_policy_has_changed_the_call() -> None:
    rule = Guardrails(tools=[ToolRule("pay", arguments={"to": "home"})])
    paid, agent = cashier(Rewriting(), rule, args={"yen": 1, "to": "home"})
    result = await agent.run("go")
    assert (result.output, paid) == ("done", [])


MADE, CODE = Field(default_factory=uuid4), SecretStr("-code")


class Hiding(BaseModel):
    to: str
    amount: int = Field(5, exclude=True)
    key: SecretStr = SecretStr("none")


async def test_question_shows_every_field_and_an_edit_changes_only_what_it_changes() -> None:
    got: list[Any] = []

    @tool
    async def order(
        what: Hiding, token: SecretStr, names: set[str], note: str = "", number: UUID = MADE, code: SecretStr = CODE
    ):
        """Order."""
        got.append((what.amount, token.get_secret_value() + code.get_secret_value(), names, note, number))

    args = {"what": {"to": "x", "amount": 1_000_000}, "token": "secret", "names": ["b", "a", "c"]}
    journal = MemoryJournal()

    def agent() -> Agent[Any]:
        model = ScriptedModel(lambda request: "done" if request.messages[-1].role == "tool" else call("order", **args))
        return Agent(model, [order], policies=[Approve("order")], journal=journal)

    waiting = await agent().run("go")
    ((key, question),) = waiting.questions.items()
    shown = question.about.args
    assert (shown["what"]["amount"], shown["names"]) == (1_000_000, ["a", "b", "c"])
    assert "secret" not in question.prompt
    again = await agent().run("go")
    ((other, asked),) = again.questions.items()
    await agent().resume(waiting.run_id, {key: "yes"})
    await agent().resume(again.run_id, {other: {"args": {**asked.about.args, "note": "soon"}}})
    assert [one[:4] for one in got] == [
        (1_000_000, "secret-code", {"a", "b", "c"}, ""),
        (1_000_000, "secret-code", {"a", "b", "c"}, "soon"),
    ]
    assert [str(one[4]) for one in got] == [shown["number"], asked.about.args["number"]]
