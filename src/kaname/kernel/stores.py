"""What a journal can keep besides the facts of runs: accounts, messages, approvals, a queue, marks and digests.

A journal says in its `stores` which of them it has. `kaname.testing.StoresContract` tests them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from ..core.codec import dump
from ..core.errors import InvalidState
from ..core.events import Interjected
from ..core.record import record
from ..core.runs import SHARED


class Balance(NamedTuple):
    """An account: what was spent, and what is reserved for calls that have not ended."""

    name: str
    spent: float = 0.0
    reserved: float = 0.0


Divide = Callable[[Sequence[Balance]], Sequence[float] | None]
"""Takes the balances of the accounts and returns the amounts to reserve, in the same order; None to reserve nothing."""


class Ledger(Protocol):
    """Accounts that several runs and processes share.

    `reserve` looks at the accounts and reserves in one step that nobody can come between. It returns the balances as they
    were, and True if something was reserved. A reservation belongs to this process: if the process dies, it is free again.
    `settle` ends a reservation, and adds what was spent. `balances` lists the accounts whose names begin with a text.
    """

    async def reserve(self, holder: str, names: Sequence[str], divide: Divide) -> tuple[list[Balance], bool]: ...
    def settle(self, holder: str, spent: Mapping[str, float]) -> None: ...
    async def balances(self, starting: str = "") -> list[Balance]: ...


class Sent(NamedTuple):
    """A message that is stored: the run that has it, and True if that run has not ended."""

    run_id: str
    under_way: bool


class Inbox(Protocol):
    """Messages to runs. A message survives the process once `put` has returned.

    A message to a run that has ended goes to the last run of its session, and from there to the next one. `put` raises
    `RunNotFound`, and `InvalidState` if the run has ended and belongs to no session.

    `letters` returns the messages of a run, and those that came too late for earlier runs of its session, in their order,
    without those whose ids are `known`. With `wait` it waits until there is one. A message leaves the inbox in the same step
    in which `Journal.append` records its `Interjected`, so that each is recorded once.
    """

    async def put(self, run_id: str, said: Interjected) -> Sent: ...
    async def letters(self, run_id: str, known: Collection[str] = (), *, wait: bool = False) -> list[Interjected]: ...


def run_is_over(run_id: str) -> InvalidState:
    """Return the error for a message that no run can take in."""
    return InvalidState.of(
        "inbox.over",
        "run {run_id} has ended and belongs to no session, so the message was not stored. Start another run.",
        run_id=run_id,
    )


class Grant(NamedTuple):
    """An approval that holds for later calls.

    `where`: the conditions on the arguments, by name; without any, all calls of the tool are meant. `until`: when it ends, in
    seconds since 1970, 0 for never. `by`: the person who gave it. `at`: when. `revoked`: when it was revoked, 0 if it was not.
    `rule`: the rule that it was given for, and what the tool is; one of an earlier version has none, and allows nothing.
    """

    id: str
    agent: str
    user: str
    tool: str
    where: Mapping[str, Any]
    until: float = 0.0
    by: str = ""
    at: float = 0.0
    revoked: float = 0.0
    rule: str = ""

    def is_valid(self, now: float) -> bool:
        return not self.revoked and (not self.until or now < self.until)

    @property
    def packed(self) -> str:
        """Return the conditions and the rule as the text that a database keeps of them."""
        return dump([self.where, self.rule])

    @classmethod
    def unpack(cls, row: Sequence[Any], packed: str) -> Grant:
        """Return the grant of a row with the columns from `id` to `revoked`, and the text that was kept of its conditions."""
        kept = json.loads(packed)
        where, rule = kept if isinstance(kept, list) else (kept, "")
        return cls._make((*row[:4], where, *row[5:9], rule))


class Grants(Protocol):
    """`put` stores a grant; one whose id is known, revoked or not, stays as it is. `find` returns those of an agent, a user and
    a tool; `all` returns all, the newest first. `revoke` returns False if there is none with that id, or it is revoked.
    """

    async def put(self, grant: Grant) -> None: ...
    async def find(self, agent: str, user: str, tool: str) -> list[Grant]: ...
    async def all(self) -> list[Grant]: ...
    async def revoke(self, grant_id: str) -> bool: ...


QueueState = Literal["waiting", "delayed", "taken", "set_aside"]
DEFAULT_QUEUE = "default"
PAUSED = ": paused"  # how the mark of a paused schedule ends
AGAIN = "retried by a person"  # the reason of a run that was set aside and is to be tried once more


class QueuedRun(NamedTuple):
    """A run that waits for a worker, or that a worker executes.

    `order` is its input and answers as JSON; empty for a run that only has to be resumed. `key`: what its limit counts, such as
    a user or a tenant. `at`: the time (seconds since 1970) before which it is not started. `seq`: the facts it had when it was
    queued. `attempts`: how often a worker has taken it. `reason`: why it was set aside, or why it is tried again.
    """

    run_id: str
    agent: str
    order: str = ""
    session: str = ""
    user: str = ""
    queue: str = DEFAULT_QUEUE
    key: str = ""
    priority: int = 0
    at: float = 0.0
    seq: int = 0
    attempts: int = 0
    state: QueueState = "waiting"
    worker: str = ""
    reason: str = ""

    @property
    def thread(self) -> str:
        """Return the name of the conversation, whose runs take turns; "" without a session."""
        if not self.session or self.session.startswith(SHARED):
            return self.session
        return "\x1f".join((self.session, self.agent, self.user))


class WorkerInfo(NamedTuple):
    """A process that executes runs. `seen`: its last heartbeat, in seconds since 1970; 0 if its life is certain."""

    name: str
    seen: float = 0.0
    executing: int = 0


class Wanted(NamedTuple):
    """What a worker takes: runs of these agents in these queues, and at most `per_key` at a time with the same key.

    `per_key` is counted over all workers; 0 for no limit.
    """

    agents: tuple[str, ...]
    queues: tuple[str, ...] = (DEFAULT_QUEUE,)
    per_key: int = 0


class RunQueue(Protocol):
    """Runs that wait, in the same database as the journal. Each run is in it at most once.

    `put` adds runs, and returns the ids of those that were not in it; a run that was set aside is tried again if it has other
    facts now. A run that has more facts than its `seq` may be left out. `take` hands out up to `count` runs: of one
    conversation one at a time, and fairly among keys. What a worker has taken is its own until it says `finish`, `retry` or
    `set_aside`, or until it dies: `rescue` then returns its runs to the queue, and those of this worker that are not among
    `executing`. A worker that was taken for dead can change nothing.
    `retry` without a reason does not count as an attempt. `withdraw` removes a run that no worker has taken. `wait` returns
    when there may be something to take, and at the latest after `seconds`. `pace`: seconds between two calls of `rescue`.
    `again` returns a run that was set aside to the queue, with `AGAIN` as its reason. `entries` and `workers` are for people.
    """

    @property
    def pace(self) -> float: ...
    async def put(self, items: Sequence[QueuedRun]) -> list[str]: ...
    async def take(self, wanted: Wanted, count: int) -> list[QueuedRun]: ...
    async def finish(self, run_id: str) -> bool: ...
    async def retry(self, run_id: str, seconds: float = 0.0, reason: str = "") -> bool: ...
    async def set_aside(self, run_id: str, reason: str) -> bool: ...
    async def rescue(self, executing: Collection[str] = ()) -> list[str]: ...
    async def withdraw(self, run_id: str) -> bool: ...
    async def find(self, run_id: str) -> QueuedRun | None: ...
    async def count(self) -> Mapping[str, int]: ...
    async def again(self, run_id: str) -> bool: ...
    async def entries(self, state: str, limit: int = 100) -> list[QueuedRun]: ...
    async def workers(self) -> list[WorkerInfo]: ...
    async def wait(self, seconds: float) -> None: ...


class Marks(Protocol):
    """Times by name that all processes share, in the same database as the queue. `raise_to` never sets one back.

    `enter` sets only those that do not exist.
    """

    async def all(self) -> dict[str, float]: ...
    async def enter(self, values: Mapping[str, float]) -> None: ...
    async def raise_to(self, values: Mapping[str, float]) -> None: ...
    async def remove(self, names: Sequence[str]) -> None: ...


class Digest(NamedTuple):
    """What figures count of a run, as JSON: so that they need not read its facts. `seq`: the facts that the run had then.

    `user`: whose run it was before they were read. If the user was erased since, it is somebody else's, and the digest is not
    stored any more.
    """

    run_id: str
    seq: int
    text: str
    user: str = ""


class Digests(Protocol):
    """One digest of each run, deleted and erased with it, and encrypted like its facts.

    `put` stores digests, each in place of an older one. That of a run that does not exist, or that has other facts by now, is
    left out. `of` returns those of these runs that there are.
    """

    async def put(self, digests: Sequence[Digest]) -> None: ...
    async def of(self, run_ids: Sequence[str]) -> list[Digest]: ...


class Health(Protocol):
    """Checks of the whole journal. `probe` raises the error that prevents writing now, and records no fact.

    `verify` reads the journal back and returns a description of everything that is damaged. With `most`, it reads the facts of
    the newest runs only, about so many, and checks the rest less thoroughly.
    """

    async def probe(self) -> None: ...
    async def verify(self, most: int = 0) -> list[str]: ...


@record
class Stores:
    """The parts of a journal besides facts. None stands for what it does not keep; `Stores()` is a journal of facts only.

    Args:
        place: Where the journal is, to open it again: a path or a URL. "" if no other process can open it.
        ledger: Accounts of budgets.
        inbox: Messages to runs. `Journal.append` removes a message in the same step in which it stores its `Interjected`.
        grants: Approvals that hold for later runs.
        queue: Runs that wait for a worker.
        marks: Times by name, for schedules.
        health: Checks of the whole journal.
        digests: What figures count of each run.
    """

    place: str = ""
    ledger: Ledger | None = None
    inbox: Inbox | None = None
    grants: Grants | None = None
    queue: RunQueue | None = None
    marks: Marks | None = None
    health: Health | None = None
    digests: Digests | None = None
