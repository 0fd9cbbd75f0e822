"""Messages, their parts, and the request to and the reply of a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from .record import field, record

if TYPE_CHECKING:
    from pathlib import Path

Role = Literal["system", "user", "assistant", "tool"]
StopReason = Literal["tool_use", "end_turn", "max_tokens", "stop_sequence"]


@record
class Usage:
    """Tokens and money. A cost of `None` means that nobody knows the price: unknown, not zero.

    `cached` is the part of the input that came from the provider's cache, `reasoning` the part of the output that was thought.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float | None = 0.0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        cached, reasoning = self.cached + other.cached, self.reasoning + other.reasoning
        return Usage(self.input + other.input, self.output + other.output, cached, cost, reasoning)


NOTHING = Usage()


@record
class Text:
    text: str


@record
class Media:
    """A picture, a sound, a file: its bytes as base64 in `data`, or an address in `url`."""

    mime: str
    data: str = ""
    url: str = ""
    name: str = ""

    @classmethod
    def file(cls, path: str | Path, mime: str = "") -> Self:
        """A file's bytes. What it is, its name's ending says, unless `mime` does."""
        from base64 import b64encode
        from mimetypes import guess_type
        from pathlib import Path

        place = Path(path).expanduser()
        mime = mime or guess_type(place.name)[0] or "application/octet-stream"
        return cls(mime, b64encode(place.read_bytes()).decode(), name=place.name)


@record
class Thinking:
    """Reasoning that the provider wants back unchanged, with its signature."""

    text: str
    signature: str = ""


@record
class Provided:
    """A piece of a reply that only its provider understands, and wants back unchanged: a tool that it ran by itself, say."""

    provider: str
    data: Mapping[str, Any]


@record
class ToolCall:
    """`args` is the parsed object, or the raw text where the model wrote something else."""

    id: str
    name: str
    args: Mapping[str, Any] | str = field(factory=dict)


@record
class ToolResult:
    """What a tool gave back. Everything in it is JSON.

    `output` is kept whole; `shown` is what the model reads instead when the whole is too long for it.
    `retryable=False`: the input is at fault, and the same again would fail again. `not_run`: it was refused for its form, and
    is not counted as a use of the tool. `gave_up`: all that could be tried in this tool's place has failed too.
    """

    output: Any = None
    error: str | None = None
    call_id: str = ""
    name: str = ""
    shown: str | None = None
    media: tuple[Media, ...] = ()
    transfer: str = ""
    usage: Usage = NOTHING
    retryable: bool = True
    gave_up: bool = False
    not_run: bool = False

    @property
    def is_error(self) -> bool:
        return self.error is not None


Part = Text | Media | Thinking | Provided | ToolCall | ToolResult


@record
class Message:
    role: Role
    parts: tuple[Part, ...]

    _unnamed_ = ("_wire",)

    def encoded(self, shape: str, encode: Callable[[Message], bytes]) -> bytes:
        """The message as a provider wants it. Made once and kept, so that a long history costs no more than its bytes."""
        wire: dict[str, bytes] | None = getattr(self, "_wire", None)
        if wire is None:
            wire = {}
            object.__setattr__(self, "_wire", wire)
        if shape not in wire:
            wire[shape] = encode(self)
        return wire[shape]

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts if type(part) is Text])

    @property
    def thinking(self) -> str:
        return "".join([part.text for part in self.parts if type(part) is Thinking])

    @property
    def citations(self) -> tuple[Mapping[str, Any], ...]:
        """What the provider says that the text rests on, in the provider's own form."""
        held = [part.data.get("citations") or () for part in self.parts if type(part) is Provided]
        return tuple([one for citations in held for one in citations])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if type(part) is ToolCall])


@record
class ToolSpec:
    """What a model is told of a tool. `effect` is for the adapters: nobody may be pushed into a tool that is not `pure`."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    effect: str = "irreversible"


@record
class ModelRequest:
    """`emit` is where the pieces of the reply go while it is made: to the run's reader, unless a policy stands between.

    `last`: the limits allow no other model call after this one, so a tool's result would be read by nobody. `unoffered`: the
    agent's tools in a request that offers none, such as the one for a last answer: some providers want to know the tools of the
    calls in the conversation.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(factory=dict)
    stream: bool = True
    emit: Callable[..., Awaitable[None]] | None = None
    last: bool = False
    unoffered: tuple[ToolSpec, ...] = ()

    @property
    def called(self) -> tuple[ToolSpec, ...]:
        """The tools that are not on offer, if calls of them may be in the conversation."""
        return self.unoffered if not self.tools and any(message.calls for message in self.messages) else ()


NOTE = "Your last reply could not be read: "


@record
class ModelReply:
    """`problem`: what is wrong with its form, if anything is; `advice`: how to write it instead. Both are told to the model."""

    message: Message
    stop_reason: StopReason | None = None
    usage: Usage = NOTHING
    model: str = ""
    problem: str = ""
    advice: str = ""

    @property
    def note(self) -> str:
        """What the model is told when it is asked again."""
        return f"{NOTE}{self.problem}.\n{self.advice}" if self.advice else self.problem


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def system(text: str) -> Message:
    return Message("system", (Text(text),))


def assistant(text: str = "", *calls: ToolCall) -> Message:
    return Message("assistant", ((Text(text), *calls) if text else calls))


_REMOVED = "[removed by a guardrail"
PLACEHOLDER = f"{_REMOVED}]"


def placeholder(reason: str = "", role: Role = "user") -> Message:
    """Return the message that stands in the place of one that a guardrail blocked."""
    return Message(role, (Text(f"{_REMOVED}: {reason}]" if reason else PLACEHOLDER),))


def is_withheld(message: Message) -> bool:
    """Return True if the message is such a placeholder. Nobody said it: it is not learnt, found or summed up."""
    text = message.text
    return text.startswith((PLACEHOLDER, f"{_REMOVED}: ")) and text.endswith("]") and not message.calls


def reason_of(message: Message) -> str:
    """Return why the message was blocked, where the placeholder says so."""
    return message.text[len(_REMOVED) + 2 : -1]
