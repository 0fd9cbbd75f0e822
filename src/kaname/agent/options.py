"""Types of `Agent`'s keyword options, for type checkers, and errors for options that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

if TYPE_CHECKING:
    from pathlib import Path

    from ..kernel.ports import ContextPart, Journal, Policy, Sink, StopRule, Strategy
    from ..run.handoffs.handoff import Team
    from ..strategies.stop import Rules
    from ..tools.mcp.config import Servers
    from ..tools.mcp.elicitation import Elicit


F = TypeVar("F", bound=Callable[..., Any])
_EXPLAINED = ("__init__", "run", "run_sync", "steps", "resume", "start_or_resume", "fork")


class Explained:
    """A class that names its own parameters and attributes where those of another agent library are used."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if Explained in cls.__bases__:
            for name in [one for one in _EXPLAINED if one in vars(cls)]:
                setattr(cls, name, _explain_errors(vars(cls)[name], cls))

    if not TYPE_CHECKING:  # a type checker would take any attribute

        def __getattr__(self, name: str) -> Any:
            from ..run.peers.names import raise_missing

            raise_missing(self, name)


def _explain_errors(function: F, owner: type) -> F:
    @wraps(function)
    def call(*given: Any, **options: Any) -> Any:
        try:
            return function(*given, **options)
        except TypeError:
            from ..run.peers.names import explain

            explain(function, options, owner)
            raise

    return cast(F, call)


class AgentOptions(TypedDict, total=False):
    name: str
    instructions: str
    strategy: Strategy | None
    policies: Iterable[Policy]
    stops: StopRule | Rules | Iterable[StopRule] | None
    journal: Journal | str | Path | None
    sinks: Iterable[Sink]
    context: ContextPart | Sequence[ContextPart]
    settings: Mapping[str, Any] | None
    mcp_servers: Servers | None
    elicit: Elicit | None
    team: Team | Iterable[Any]
