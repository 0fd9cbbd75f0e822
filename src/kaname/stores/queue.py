"""Queue of runs: the port through which runs wait for a worker, and the rule by which they are handed out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from ..core.runs import SHARED

QueueState = Literal["waiting", "delayed", "taken", "set_aside"]
DEFAULT_QUEUE = "default"
MOST_KEYS = 500  # keys that are looked at when a worker takes runs; with more, the next time the next ones
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


@runtime_checkable
class RunQueue(Protocol):
    """Runs that wait, in the same database as the journal. Each run is in it at most once.

    `put` adds runs, and returns the ids of those that were not in it; a run that was set aside is tried again if it has other
    facts now. `take` hands out up to `count` runs: of one conversation one at a time, and fairly among keys. What a worker has
    taken is its own until it says `finish`, `retry` or `set_aside`, or until it dies: `rescue` then returns its runs to the
    queue, and those of this worker that are not among `executing`. A worker that was taken for dead can change nothing.
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


@runtime_checkable
class HasQueue(Protocol):
    @property
    def queue(self) -> RunQueue: ...
    @property
    def marks(self) -> Marks: ...


class Candidate(NamedTuple):
    """A waiting run as `choose_runs` sees it. `number` is its position in the order of queueing."""

    number: int
    run_id: str
    key: str
    priority: int


class Turns:
    """Remember which keys were served, so that keys take turns even if a worker takes one run at a time.

    A key that was served goes to the end of the line as it is then: `served` holds the last number that was in the queue, and a
    count. `start`: the key from which on keys are looked at, if there are more than `MOST_KEYS`.
    """

    def __init__(self) -> None:
        self.served: dict[str, tuple[int, int]] = {}
        self.start, self._count, self._last = "", 0, 0

    def note(self, keys: Iterable[str], last: int) -> None:
        """Remember that runs of these keys were taken. A file whose queue was empty may count from 1 again."""
        if last < self._last:
            self.served.clear()
        self._last = last
        for key in filter(None, keys):
            self._count += 1
            self.served.pop(key, None)
            self.served[key] = last, self._count
        for key in list(self.served)[:-MOST_KEYS]:
            del self.served[key]

    def place(self, one: Candidate) -> tuple[int, int, int]:
        """Return where the first run of its key stands in the line."""
        last, turn = self.served.get(one.key, (0, 0))
        return max(one.number, last), turn, one.number


def choose_runs(
    candidates: Sequence[Candidate], busy: Mapping[str, int], per_key: int, count: int, turns: Turns
) -> list[Candidate]:
    """Return the runs to hand out: by priority, then fairly among keys, then in the order of queueing.

    `busy`: how many runs of each key are being executed. A key with fewer runs comes first.
    """
    ranked: list[tuple[int, int, tuple[int, int, int], Candidate]] = []
    ahead = dict(busy)
    for one in sorted(candidates, key=lambda one: (-one.priority, one.number)):
        rank = ahead.get(one.key, 0) + 1 if one.key else 0
        if one.key:
            ahead[one.key] = rank
        if not one.key or not per_key or rank <= per_key:
            ranked.append((-one.priority, rank, turns.place(one), one))
    return [one for *_, one in sorted(ranked)[:count]]
