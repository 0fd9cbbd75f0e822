"""Types of `Agent`'s keyword options, for type checkers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

    from ..kernel.ports import ContextPart, Journal, Policy, Sink, StopRule, Strategy
    from ..strategies.stop import Rules
    from ..tools.mcp.config import Servers
    from ..tools.mcp.elicitation import Elicit
    from .team.handoff import Team


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
