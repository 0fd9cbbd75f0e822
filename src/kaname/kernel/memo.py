"""Cache of a recipe: system message, tool specs, fingerprints. Renewed when the tools change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any, Protocol, TypeVar

from ..core.codec import digest, encode_message
from ..core.errors import ToolNotFoundError
from ..core.events import Effect
from ..core.messages import Message, ToolSpec, system
from .bases import options_of

T = TypeVar("T")
_FINGERPRINTS = 64


class Described(Protocol):
    """A tool as the model sees it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def effect(self) -> Effect: ...


Tools = tuple[Described, ...]


class Memo:
    """The cache of one recipe. Tools are compared by identity, because an agent's list of tools changes in place."""

    __slots__ = ("_every", "_fingerprints", "_kept", "_of_tools", "_some", "_specs", "_system")

    def __init__(self) -> None:
        self._system: Message | None = None
        self._specs: tuple[Tools, tuple[ToolSpec, ...]] | None = None
        self._every: dict[str, ToolSpec] = {}
        self._some: dict[tuple[str, ...], tuple[ToolSpec, ...]] = {}
        self._of_tools: tuple[Tools, dict[str, Any]] = ((), {})
        self._kept: dict[str, tuple[object, Any]] = {}
        self._fingerprints: dict[Any, tuple[Any, ...]] = {}

    def system(self, instructions: str) -> Message:
        """Return the system message. It stays the same object, so that an adapter encodes it only once."""
        if self._system is None or self._system.text != instructions:
            self._system = system(instructions)
        return self._system

    def specs(self, tools: Mapping[str, Described], wanted: bool | tuple[str, ...] = True) -> tuple[ToolSpec, ...]:
        """Return the specs of all tools, or of the tools with these names. They are built once and stay the same objects."""
        now = tuple(tools.values())
        if self._specs is None or not _same(self._specs[0], now):
            listed = [tool for tool in now if options_of(tool).listed]
            hidden, spaces = getattr(tools, "hidden", ()), getattr(tools, "namespaces", {})
            made = [(one.name, one.description, one.parameters, one.effect, spaces.get(one.name, "")) for one in listed]
            self._every = {one[0]: ToolSpec(*one) for one in made}
            self._specs, self._some = (now, tuple([spec for spec in self._every.values() if spec.name not in hidden])), {}
        if wanted is True or wanted is False:
            return self._specs[1]
        if wanted not in self._some:
            unknown = [name for name in wanted if name not in self._every]
            if unknown:
                raise ToolNotFoundError(unknown[0], self._every)
            self._some[wanted] = tuple([self._every[name] for name in wanted])
        return self._some[wanted]

    def kept(self, name: str, source: object, make: Callable[[], T]) -> T:
        """Return the result of `make`, which is called once for each object `source`."""
        known = self._kept.get(name)
        if known is None or known[0] is not source:
            known = self._kept[name] = (source, make())
        value: T = known[1]
        return value

    def of_tools(self, tools: Mapping[str, Described]) -> dict[str, Any]:
        """Return a store for what is known of these tools, by names. It is empty if they have changed since."""
        now = tuple(tools.values())
        if not _same(self._of_tools[0], now):
            self._of_tools = (now, {})
        return self._of_tools[1]

    def fingerprint(
        self,
        messages: tuple[Message, ...],
        history: Sequence[Message] | None,
        tools: tuple[ToolSpec, ...],
        schema: Mapping[str, Any] | None,
        settings: Mapping[str, Any],
    ) -> str:
        """Return a fingerprint of everything sent except the conversation.

        Pass `history` if the messages may differ from it; the differences are then included. The fingerprint is the same for
        nearly every call of a run.
        """
        said = messages[0].text if messages and messages[0].role == "system" else ""
        apart = () if history is None else _differences(messages[1:] if said else messages, history)
        key = (said, id(tools), id(schema), id(settings), apart)
        if key not in self._fingerprints:
            if len(self._fingerprints) >= _FINGERPRINTS:
                self._fingerprints.clear()
            described: Any = [said, [[t.name, t.description, t.parameters] for t in tools], schema, settings, *apart]
            kept = (tools, schema, settings)  # alive, so that their ids stay theirs
            self._fingerprints[key] = (digest(described if apart else described[:4]), *kept)
        return str(self._fingerprints[key][0])


def _differences(sent: Sequence[Message], history: Sequence[Message]) -> tuple[str, ...]:
    """Return the differences between the sent messages and the conversation: places taken from it, and messages added."""
    if len(sent) == len(history) and all(map(is_, sent, history)):
        return ()
    places = {id(message): place for place, message in enumerate(history)}
    return ("instead", *[str(places[id(m)]) if id(m) in places else encode_message(m) for m in sent])


def _same(one: Tools, other: Tools) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))
