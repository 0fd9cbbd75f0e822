"""Agents that the tests serve: their models follow scripts, so that every answer is known."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from kaname import Agent, Approve, ScriptedModel, SqliteJournal, ToolContext, ToolResult, call, tool
from kaname.core.errors import ModelDenied
from kaname.core.messages import Message, ModelReply, ModelRequest, Text, Thinking

FOLDER = Path(os.environ.get("KANAME_TEST_FOLDER", "."))
PACE = float(os.environ.get("KANAME_TEST_PACE", "0.001"))


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def pay(amount: int) -> str:
    """Pay an amount. Every effect is one line of a file."""
    with (FOLDER / "paid.txt").open("a") as file:
        file.write(f"{amount}\n")
    return f"paid {amount}"


@tool(effect="idempotent")
async def book(number: int, context: ToolContext) -> str:
    """Book something: an effect with a key, which the other side knows again."""
    with (FOLDER / "booked.txt").open("a") as file:
        file.write(f"{context.idempotency_key}\n")
    await asyncio.sleep(PACE)
    return "booked"


async def found_in_ledger(number: int, context: ToolContext) -> ToolResult | None:
    """After a crash: was it written before?"""
    ledger = FOLDER / "ledger.txt"
    written = ledger.exists() and context.idempotency_key in ledger.read_text().split()
    return ToolResult("transferred") if written else None


@tool(reconcile=found_in_ledger)
async def transfer(number: int, context: ToolContext) -> str:
    """Transfer something: an effect that must not happen twice, and can be looked up."""
    await asyncio.sleep(PACE)
    with (FOLDER / "ledger.txt").open("a") as file:
        file.write(f"{context.idempotency_key}\n")
    await asyncio.sleep(PACE)
    return "transferred"


@tool
async def broken() -> str:
    """Fail."""
    raise ValueError("it is broken")


def replies(request: ModelRequest) -> int:
    """How many replies the last turn has."""
    last = max(number for number, message in enumerate(request.messages) if message.role == "user")
    return sum(message.role == "assistant" for message in request.messages[last:])


def asked(request: ModelRequest) -> str:
    return next(message.text for message in reversed(request.messages) if message.role == "user")


def desk(request: ModelRequest) -> object:
    """`add`: with a tool; `think`; `fail`; `broken`; `history`: how many messages it sees; else it says what it heard."""
    words, turn = asked(request), replies(request)
    if "add" in words:
        return ["Let me see.", call("add", a=3, b=4)] if turn == 0 else "the sum is 7"
    if "broken" in words:
        return call("broken") if turn == 0 else "it did not work"
    if "think" in words:
        return ModelReply(Message("assistant", (Thinking("hm, well"), Text("thought about it"))), "end_turn")
    if "fail" in words:
        raise ModelDenied("the key is wrong")
    if "bug" in words:
        raise RuntimeError("boom sk-SECRET-456 in /etc/secret")
    if "surrogate" in words:
        return ["half \ud800 of it", call("add", a=float("nan"), b=1)] if turn == 0 else "half \ud800 of it"
    if "odd tool" in words:
        return call('x\n\ndata: {"evil":1}\n\n') if turn == 0 else "done"
    if "history" in words:
        return " | ".join(f"{message.role}: {message.text}" for message in request.messages)
    if "long" in words:
        return "word " * 400
    return f"you said: {words}"


def cashier(request: ModelRequest) -> object:
    """It pays once, or `twice`."""
    amounts = [5, 6] if "twice" in asked(request) else [5]
    return [call("pay", amount=amount) for amount in amounts] if replies(request) == 0 else "it is done"


def worker(request: ModelRequest) -> object:
    """Three bookings and transfers, one after the other."""
    turn = replies(request)
    return [call("book", number=turn), call("transfer", number=turn)] if turn < 3 else f"worked {turn} times"


@tool(effect="idempotent")
async def ask_child(context: ToolContext) -> str:
    """Ask another agent, and take a while over its answer."""
    result = await context.run_child(child_agent, "add")
    await asyncio.sleep(PACE * 100)
    return result.output


@tool(effect="pure")
async def ask_wreck(context: ToolContext) -> str:
    """Ask an agent that fails by a fault of its program."""
    return str((await context.run_child(wreck_agent, "bug")).output)


journal = SqliteJournal(FOLDER / "journal.db")
desk_agent = Agent(ScriptedModel(desk, pace=PACE), [add, broken], name="desk", instructions="You are a desk.", journal=journal)
cashier_agent = Agent(ScriptedModel(cashier, pace=PACE), [pay], name="cashier", journal=journal, policies=[Approve("pay")])
worker_agent = Agent(ScriptedModel(worker, pace=PACE), [book, transfer], name="worker", journal=journal)
child_agent = Agent(ScriptedModel([call("add", a=1, b=2), "three"]), [add], name="child", journal=journal)
lead_agent = Agent(ScriptedModel([call("ask_child"), "done"]), [ask_child], name="lead", journal=journal)
wreck_agent = Agent(ScriptedModel(desk), name="wreck", journal=journal)
trusting_agent = Agent(ScriptedModel([call("ask_wreck"), "well"]), [ask_wreck], name="trusting", journal=journal)
agents = [desk_agent, cashier_agent, worker_agent, lead_agent]
with_trusting = [*agents, trusting_agent]
