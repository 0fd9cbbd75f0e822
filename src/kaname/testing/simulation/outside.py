"""What is outside of kaname: services on which tools act, a model that costs money, and people who answer.

It keeps a ledger of its own. Nothing in it comes from a journal, so that the promises can be held against it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.errors import ModelUnavailable
from ...core.messages import ModelReply, ModelRequest, Usage
from ...core.notices import notice
from ...kernel.bases import ModelBase, ModelInfo
from ...kernel.ports import Emit, ToolContext
from ...models.prices import Price
from ...models.providers.scripted import ScriptedModel
from ...tools.function import tool
from .store import Store
from .world import Process, World, this_world

DONE = " done"  # how the result of a deed ends
USAGE = Usage(100, 100)
PRICE = Price(0.1, 100.0)  # dollars for a million tokens: a reply costs 0.01, nearly as much as it can cost


class OutsideDeed(NamedTuple):
    """Something that was really done. `number`: its place in the order of everything that happened outside."""

    number: int
    tool: str
    run: str
    key: str
    process: str
    args: Mapping[str, Any] = {}
    undone: bool = False


class PaidReply(NamedTuple):
    """A reply of the model that was paid. `run`: the conversation, as its first message names it."""

    number: int
    model: str
    process: str
    cost: float
    heard: list[bool]  # whether kaname has got the reply


class SentAnswer(NamedTuple):
    """An answer that a person has sent. The journal says whether it was accepted."""

    number: int
    run: str
    key: str
    value: Any
    by: str
    at: float


class Outside:
    """The world outside of kaname, and how often its services fail.

    Args:
        fails: The probability that a service fails before it does anything.
        silent: The probability that a service does its work, and its answer is lost.
        busy: The probability that the model's provider refuses a call.
        killed: The probability that the process dies right before or after a deed.
    """

    def __init__(self, world: World, store: Store) -> None:
        self.world, self.store = world, store
        self.deeds: list[OutsideDeed] = []
        self.bills: list[PaidReply] = []
        self.answers: list[SentAnswer] = []
        self.said: dict[str, tuple[str, bool]] = {}  # messages to runs: text → session, and whether `say` has returned
        self.fails = self.silent = self.busy = self.killed = 0.0
        self.tries = 0  # calls of the model that were begun
        self._number = 0

    def clear_up(self) -> None:
        """End all faults."""
        self.fails = self.silent = self.busy = self.killed = 0.0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    async def pause(self, longest: float = 0.3) -> None:
        """Wait for a while, as for a service on the network."""
        await asyncio.sleep(self.world.random.random() * longest)

    def die(self, when: str) -> None:
        """Let the process die here, now and then."""
        weather = self.store.weather
        if weather.kills_left > 0 and self.world.chance(self.killed):
            weather.kills_left -= 1
            self.store.die(when)

    async def act(self, name: str, context: ToolContext, args: Mapping[str, Any]) -> str:
        """Do a deed. The process can die before or after it, and the service can fail."""
        await self.pause()
        process = self.world.here
        assert process is not None
        if self.world.chance(self.fails):
            raise ConnectionError("the service is away")
        self.die(f"before {name}")
        self._check_holder(name, context, process)
        self.write(name, context, args)
        self.die(f"after {name}")
        if self.world.chance(self.silent):
            raise ConnectionError("the service does not answer")
        await self.pause()
        return f"{name}{DONE}"

    def write(self, name: str, context: ToolContext, args: Mapping[str, Any]) -> None:
        """Write into the ledger that something was really done."""
        process = str(self.world.here)
        self.deeds.append(OutsideDeed(self.next_number(), name, context.run_id, context.idempotency_key, process, args))
        self.world.tell(f"DOES {name} {dict(args)} for {context.idempotency_key}")

    def _check_holder(self, name: str, context: ToolContext, process: Process) -> None:
        """While locks are certain, a process acts for a run only if it has it."""
        store = self.store
        if not store.is_certain:
            return
        owner, _ = store.holder(context.run_id)
        if store.owners.get(owner) is not process:
            self.world.report(
                "executed-by-two", f"{process} did {name} for {context.run_id}, which belongs to {owner or 'nobody'}"
            )

    def undo(self, name: str, context: ToolContext) -> None:
        """Take back the deeds of a call."""
        self.world.tell(f"UNDOES {name} for {context.idempotency_key}")
        self.deeds = [
            one._replace(undone=True) if one.tool == name and one.key == context.idempotency_key else one for one in self.deeds
        ]

    def was_done(self, name: str, key: str) -> bool:
        return any(one.tool == name and one.key == key and not one.undone for one in self.deeds)


def outside() -> Outside:
    """Return the outside of the world at work."""
    world = this_world()
    assert world is not None
    found: Outside = world.belongings["outside"]
    return found


@tool(effect="pure")
async def look(what: str, context: ToolContext) -> str:
    """Look something up."""
    await outside().pause()
    return f"{what} is there"


@tool(effect="pure")
def count_up(number: int) -> int:
    """Compute in a thread."""
    return number + 1


@tool(effect="idempotent")
async def put(what: str, context: ToolContext) -> str:
    """Store something. The service knows the key, and does it once."""
    return await outside().act("put", context, {"what": what})


@tool(effect="irreversible")
async def pay(yen: int, context: ToolContext) -> str:
    """Pay."""
    return await outside().act("pay", context, {"yen": yen})


@tool(effect="irreversible")
async def order(what: str, context: ToolContext) -> str:
    """Order something, at a shop that can be asked for it."""
    return await outside().act("order", context, {"what": what})


@order.reconciles
async def find_order(what: str, context: ToolContext) -> str | None:
    """Look whether it was ordered."""
    await outside().pause()
    return f"order{DONE}" if outside().was_done("order", context.idempotency_key) else None


@tool(effect="compensable")
async def book(room: str, context: ToolContext) -> str:
    """Book a room."""
    return await outside().act("book", context, {"room": room})


@book.undoes
async def cancel(room: str, context: ToolContext) -> None:
    """Cancel the room."""
    await outside().pause()
    outside().undo("book", context)


class Script:
    """What a model replies: the calls of each turn, and then an answer. Each user message begins anew."""

    def __init__(self, turns: Sequence[Any]) -> None:
        self.turns = turns

    def __call__(self, request: ModelRequest) -> Any:
        asked = [place for place, one in enumerate(request.messages) if one.role == "user" and "Go." in one.text]
        turn = sum([one.role == "assistant" for one in request.messages[asked[-1] if asked else 0 :]])
        return self.turns[turn] if turn < len(self.turns) else "Done."


class SlowModel(ModelBase):
    """A scripted model behind a slow and expensive network."""

    def __init__(
        self, script: ScriptedModel | Callable[[ModelRequest], Any], *, name: str = "model", priced: bool = False
    ) -> None:
        own = script if isinstance(script, ScriptedModel) else None
        self._inner = own or ScriptedModel(script, name=name, usage=USAGE, price=PRICE if priced else None)  # type: ignore[arg-type]
        self.name, self._priced = name, priced
        self.about = ModelInfo(identity=name)

    def most_expensive(self, request: ModelRequest, input: int, output: int) -> float:
        return self._inner.most_expensive(request, input, output)

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        there = outside()
        there.tries += 1
        await there.pause(0.5)
        if there.world.chance(there.busy):
            raise ModelUnavailable(notice("simulation.busy", "the provider is busy"), retry_after=0.2)
        there.die("while the model thinks")
        reply = await self._inner.reply(request, emit)
        heard = [False]
        there.bills.append(PaidReply(there.next_number(), self.name, str(there.world.here), reply.usage.cost or 0.0, heard))
        await there.pause(0.5)
        heard[0] = True
        return reply
