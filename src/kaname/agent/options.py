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
T = TypeVar("T")
_EXPLAINED = ("__init__", "run", "run_sync", "steps", "resume", "start_or_resume", "fork")


def explained(kind: type[T]) -> type[T]:
    """Have the errors of a class name its own parameters where those of another agent library are used."""
    for name in _EXPLAINED:
        setattr(kind, name, _explain_errors(vars(kind)[name], kind))
    return kind


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
