"""The ledger: what really happened, written by tools, models and people outside of kaname.

Nothing in it comes from a journal. The monitor holds it against the rules that the agent declares.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from kaname.core.events import RESULT

root: ContextVar[str] = ContextVar("root", default="")
"""The conversation that the running task works for. A way in sets it; tools and models read it."""
who: ContextVar[str] = ContextVar("who", default="")
"""The user whose run is being executed, for tools that do not ask kaname for it."""


@dataclass(frozen=True)
class Ran:
    """One real execution of a tool, with the arguments that its code received."""

    at: int
    tool: str
    args: Mapping[str, Any]
    run: str = ""
    user: str = ""
    agent: str = ""
    key: str = ""  # the idempotency key: equal for repetitions of one call
    made: str = ""  # which implementation ran, if several have one name
    root: str = ""
    cost: float = 0.0


@dataclass(frozen=True)
class ModelSaw:
    """One request to the model, as text, and the calls of its reply."""

    at: int
    model: str
    text: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    said: str = ""
    root: str = ""
    cost: float = 0.0
    last: tuple[str, str] = ("", "")  # the role and the text of the last message


@dataclass
class PersonAnswer:
    """What a person answered, and whether kaname accepted it."""

    at: int
    run: str
    key: str
    value: Any
    by: str
    tool: str = ""
    args: Mapping[str, Any] | None = None
    prompt: str = ""
    user: str = ""
    accepted: bool = False
    problem: str = ""
    open_after: bool | None = None  # whether the question could still be answered after a refusal
    revoked: int = 0  # when the lasting approval was revoked
    expired: bool = False  # whether the question had expired when the answer came
    root: str = ""
    made: str = ""  # which implementation of the tool the question was about

    def __post_init__(self) -> None:
        if self.key.startswith(RESULT):  # the caller gives the result of its own call: nothing is allowed by it
            self.tool, self.args = "", None


@dataclass(frozen=True)
class Raised:
    """An exception that reached the caller of kaname."""

    at: int
    during: str
    error: BaseException


@dataclass(frozen=True)
class Got:
    """What a caller got back: the text of a result, for a user."""

    at: int
    user: str
    text: str
    run: str = ""
    kind: str = ""
    root: str = ""


@dataclass
class OutsideLedger:
    """All entries of one case, in one order."""

    deeds: list[Ran] = field(default_factory=list)
    seen: list[ModelSaw] = field(default_factory=list)
    answers: list[PersonAnswer] = field(default_factory=list)
    failures: list[Raised] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    stopped: dict[str, int] = field(default_factory=dict)  # runs that were stopped, and when
    restarted: list[tuple[int, str]] = field(default_factory=list)  # when somebody resumed a run without an answer
    requests: dict[str, str] = field(default_factory=dict)  # the run that a request to a server has opened, by its root
    expired: list[tuple[int, str]] = field(default_factory=list)  # when a run's open questions had expired
    forks: dict[str, str] = field(default_factory=dict)  # the run that a fork came from
    unreadable: list[tuple[str, BaseException]] = field(default_factory=list)
    replays: list[tuple[str, str]] = field(default_factory=list)  # runs whose replay differs, and how
    rest: dict[str, bytes] = field(default_factory=dict)  # what each store holds at the end
    audit: list[tuple[str, str]] = field(default_factory=list)  # the actor and the decision of each approval in the audit log
    resumed: set[str] = field(default_factory=set)  # runs that were resumed after a stop or a kill: limits count anew
    deaths: int = 0
    _clock: Any = field(default_factory=lambda: itertools.count(1))

    def now(self) -> int:
        """Return the number of the next entry."""
        return int(next(self._clock))

    def run_of(self, entry: Ran | ModelSaw) -> str:
        """Return the run, without its children, that an entry belongs to; that of a model is known from the outside only."""
        named = (entry.run if isinstance(entry, Ran) else "").split("/")[0] or entry.root
        if named not in self.requests and named == entry.root:  # a request that was killed: its tools know the run
            ran = [deed.run.split("/")[0] for deed in self.deeds if deed.root == named]
            return next((run for run in ran if run and run != named), named)
        return self.requests.get(named, named)

    def write(self, tool: str, args: Mapping[str, Any], context: Any = None, **more: Any) -> Ran:
        """Record an execution. `context` is the `ToolContext` of the call, if the tool has one."""
        about = {
            "run": getattr(context, "run_id", "") or root.get(),
            "user": getattr(context, "user", "") or who.get(),
            "agent": getattr(context, "agent", ""),
            "key": getattr(context, "idempotency_key", ""),
        }
        made = Ran(self.now(), tool, dict(args), root=root.get(), **{**about, **more})
        self.deeds.append(made)
        return made

    def fail(self, during: str, error: BaseException) -> None:
        """Record an exception that reached the caller."""
        self.failures.append(Raised(self.now(), during, error))
