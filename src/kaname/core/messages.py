"""Messages and their parts, and a model's request and reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from .record import field, record, replace

if TYPE_CHECKING:
    from pathlib import Path

Role = Literal["system", "user", "assistant", "tool"]
StopReason = Literal["tool_use", "end_turn", "max_tokens", "stop_sequence"]


EARLIER = "earlier conversation"  # the source of what a caller says that an assistant or a tool has said before


@record
class Usage:
    """Tokens and cost.

    Args:
        input: The number of tokens that the model has read.
        output: The number of tokens that it has written.
        cached: The part of the input that came from the provider's cache.
        cost: The cost in US dollars. None means that it is unknown; it does not mean zero.
        reasoning: The part of the output that was reasoning.
        most: The highest possible cost, if the cost is unknown but has a bound.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float | None = 0.0
    reasoning: int = 0
    most: float | None = None

    @property
    def ceiling(self) -> float | None:
        """Return the cost, or the highest that it can be; None if there is no bound."""
        return self.most if self.cost is None else self.cost

    @property
    def total(self) -> int:
        return self.input + self.output

    @property
    def prompt_tokens(self) -> int:
        return self.input

    @property
    def completion_tokens(self) -> int:
        return self.output

    @property
    def total_tokens(self) -> int:
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        cost, most = None, None
        if self.cost is not None and other.cost is not None:
            cost = self.cost + other.cost
        elif (mine := self.ceiling) is not None and (theirs := other.ceiling) is not None:
            most = mine + theirs
        cached, reasoning = self.cached + other.cached, self.reasoning + other.reasoning
        return Usage(self.input + other.input, self.output + other.output, cached, cost, reasoning, most)


NOTHING = Usage()


FILE = "file "  # how the source of the text in a file begins


@record
class Text:
    """A text. `source`: who wrote it, if it was not the author of the message, such as the sender of a webhook."""

    text: str
    source: str = ""


@record
class Media:
    """A picture, a sound or a file.

    Args:
        mime: The media type, such as "image/png".
        data: The bytes as base64, unless there is a `url`.
        url: The address of the medium.
        name: The name of the file, or "".
    """

    mime: str
    data: str = ""
    url: str = ""
    name: str = ""

    @classmethod
    def file(cls, path: str | Path, mime: str = "") -> Self:
        """Read a file.

        Args:
            path: The file.
            mime: Its media type. By default it follows from its content and the ending of the name.

        Raises:
            ValueError: The content contradicts the name or `mime`, such as a program that is called photo.jpg, or the path
                is a pipe or a device.
        """
        from pathlib import Path

        from .reading.media_types import read_regular

        place = Path(path).expanduser()
        return cls.of(read_regular(place), mime, place.name)

    @classmethod
    def of(cls, content: bytes, mime: str = "", name: str = "") -> Self:
        """Return a medium with these bytes. It is checked as `file` checks it."""
        from base64 import b64encode

        from .reading.media_types import checked_type

        return cls(checked_type(content, name, mime), b64encode(content).decode(), name=name)

    @property
    def content(self) -> bytes:
        """Return the bytes; none if the medium has only an address. Raises `ValueError` if `data` is not base64."""
        from base64 import b64decode

        from .notices import notice
        from .reading.media_types import WrongMediaType

        try:
            return b64decode(self.data, validate=True)
        except ValueError:
            message = notice("media.base64", "the data of {name} is not base64", name=self.name or self.mime)
            raise WrongMediaType(message) from None


@record
class Thinking:
    """Reasoning that the provider wants back unchanged, with its signature."""

    text: str
    signature: str = ""


@record
class Provided:
    """A part of a reply that only its provider understands, and wants back unchanged, such as a call of the provider's own
    tool."""

    provider: str
    data: Mapping[str, Any]


REFUSAL = "refusal"  # the type of a `Provided` that says that the text is the model's refusal, and not an answer


@record
class ToolCall:
    """A call of a tool.

    Args:
        id: The id of the call. In the reply of a model, it can be "": kaname gives each call an id of its own.
        name: The name of the tool.
        args: The arguments by name, or the raw text if the model did not write a JSON object.
    """

    id: str
    name: str
    args: Mapping[str, Any] | str = field(factory=dict)


MCP_APPROVAL = "mcp_approval_request"
CLIENT_CALLS = frozenset(  # calls of a provider's own tools that the client carries out
    ("custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call", MCP_APPROVAL)
)
TRANSFER, DELEGATE = "transfer_to_agent", "delegate_to_agent"  # the tools with which an agent hands work to another


@record
class ToolResult:
    """The result of a tool call. All of it is JSON.

    Args:
        output: The whole output.
        error: The error message, or `None`.
        call_id: The id of the call. kaname fills it in.
        name: The name of the tool that was called. kaname fills it in.
        shown: A shorter text that the model reads instead of an output that is too long.
        media: Pictures and files that the tool returned.
        transfer: The agent that takes over, if the call was a handoff.
        usage: Tokens and cost of the call. Models and agents that kaname ran inside it are counted once, in it or not.
        retryable: False if the input is at fault, so that the same call would fail again.
        not_run: True if the call was refused because of its form. It does not count as a use of the tool.
        gave_up: True if everything that could be tried instead of this tool has failed too.
        waiting: True if the call waits for the user. If they allow it, it is made again, as another call.
        untrusted: True if the one who returned the result says that other people can write what it holds.
        tool: The tool that really ran, if it was another than the call names.
        source: Who sent the result, if it comes with the history of a caller and not from a tool that ran here.
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
    waiting: bool = False
    untrusted: bool = False
    tool: str = ""
    source: str = ""

    @property
    def is_error(self) -> bool:
        return self.error is not None


Part = Text | Media | Thinking | Provided | ToolCall | ToolResult


@record
class Message:
    """A message of a conversation.

    Args:
        role: "system", "user", "assistant" or "tool".
        parts: The parts: texts, media, thoughts, calls and results.
    """

    role: Role
    parts: tuple[Part, ...]

    _unnamed_ = ("_calls", "_read", "_text", "_wire")  # derived, and computed once: a message is read many times in a step

    def encode_as(self, shape: str, encode: Callable[[Message], bytes]) -> bytes:
        """Return the message in a provider's shape. The result is cached, so that a long history is encoded only once."""
        wire: dict[str, bytes] | None = getattr(self, "_wire", None)
        if wire is None:
            wire = {}
            object.__setattr__(self, "_wire", wire)
        encoded = wire.get(shape)
        if encoded is None:
            encoded = wire[shape] = encode(self)
        return encoded

    @property
    def text(self) -> str:
        try:
            return self._text  # type: ignore[attr-defined,no-any-return]
        except AttributeError:
            text = "".join([part.text for part in self.parts if type(part) is Text])
            object.__setattr__(self, "_text", text)
            return text

    @property
    def quotes(self) -> bool:
        """Return True if a part of the message was written by somebody else than its author: also a file of the user."""
        if self.role == "user" and any(type(part) is Media for part in self.parts):
            return True
        return any((type(part) is Text or type(part) is ToolResult) and part.source for part in self.parts)

    @property
    def is_retold(self) -> bool:
        """Return True if a caller says that an assistant or a tool has said this, and no run of the agent is known that has."""
        return any((type(part) is Text or type(part) is ToolResult) and part.source == EARLIER for part in self.parts)

    @property
    def own_text(self) -> str:
        """Return the text that the author of the message wrote: without parts that quote somebody else."""
        return "".join([part.text for part in self.parts if type(part) is Text and not part.source])

    @property
    def holds_media(self) -> bool:
        return any(type(part) is Media or (type(part) is ToolResult and part.media) for part in self.parts)

    @property
    def thinking(self) -> str:
        return "".join([part.text for part in self.parts if type(part) is Thinking])

    @property
    def citations(self) -> tuple[Mapping[str, Any], ...]:
        """Return the sources that the provider gives for the text, in the provider's own form."""
        held = [part.data.get("citations") or () for part in self.parts if type(part) is Provided]
        return tuple([one for citations in held for one in citations])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        try:
            return self._calls  # type: ignore[attr-defined,no-any-return]
        except AttributeError:
            calls = tuple([part for part in self.parts if type(part) is ToolCall])
            object.__setattr__(self, "_calls", calls)
            return calls

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """Return the results of tools. A message of the role `tool` holds them; its `text` is empty."""
        return tuple([part for part in self.parts if type(part) is ToolResult])


def encode_all(messages: Sequence[Message], shape: str, encode: Callable[[Message], bytes]) -> list[bytes]:
    """Return the messages in a provider's shape. Only the last ones are new: the others were encoded for the last request."""
    for message in reversed(messages):
        if shape in getattr(message, "_wire", ()):
            break
        message.encode_as(shape, encode)
    try:
        return [message._wire[shape] for message in messages]  # type: ignore[attr-defined]
    except (AttributeError, KeyError):  # a new one among the old
        return [message.encode_as(shape, encode) for message in messages]


@record
class ToolSpec:
    """A tool as the model sees it.

    `effect` is for adapters: a model must never be forced to call a tool that is not `pure`. `namespace`: the group of tools
    in which the provider looks it up, or "" if the model always sees it.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    effect: str = "irreversible"
    namespace: str = ""


@record
class ModelRequest:
    """A request to a model.

    Args:
        messages: The conversation.
        tools: The tools that the model can call.
        schema: The JSON Schema of the answer, if one is required.
        settings: Settings of the provider, such as `temperature`.
        stream: False if the caller does not read the pieces.
        emit: Receives the pieces of the reply while it is written; a policy can stand in between.
        last: True if the limits allow no model call after this one, so that a tool's result would not be read.
        unoffered: The agent's tools, if the request offers none, as for a last answer. Some providers need the tools of the
            calls in the conversation.
        model: The model that is to answer, if a policy has chosen another than the agent's.
        longest_wait: Seconds for which the provider's rate limit may hold the call back. By default it is as long as `Pace`
            says, or not at all if a policy has chosen the model, because that policy can choose another.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    schema: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(factory=dict)
    stream: bool = True
    emit: Callable[..., Awaitable[None]] | None = None
    last: bool = False
    unoffered: tuple[ToolSpec, ...] = ()
    model: Any = None
    longest_wait: float | None = None

    @property
    def called_tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that are not offered but may have calls in the conversation."""
        return self.unoffered if not self.tools and any(message.calls for message in self.messages) else ()


NOTE = "Your last reply could not be read: "


@record
class ModelReply:
    """A model's reply.

    Args:
        message: The message, with the role `assistant`.
        stop_reason: The reason for the end of the reply, or None if the provider reports none.
        usage: Tokens and cost.
        model: The name of the model that was called.
        problem: The mistake in the form of the reply, or "". The model receives it and is called again.
        advice: The correct form, which the model receives with `problem`.
        served: The name of the model that answered, as the provider reports it; "" if it does not.
        request_id: The provider's id of the request, or "".
    """

    message: Message
    stop_reason: StopReason | None = None
    usage: Usage = NOTHING
    model: str = ""
    problem: str = ""
    advice: str = ""
    served: str = ""
    request_id: str = ""

    @property
    def note(self) -> str:
        """Return the text that the model receives when it is asked to correct its reply."""
        return f"{NOTE}{self.problem}.\n{self.advice}" if self.advice else self.problem


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def system(text: str) -> Message:
    return Message("system", (Text(text),))


def assistant(text: str = "", *calls: ToolCall) -> Message:
    return Message("assistant", ((Text(text), *calls) if text else calls))


def first_source(parts: Iterable[Part]) -> str:
    """Return the source of the first text that has one, or ""."""
    return next((part.source for part in parts if type(part) is Text and part.source), "")


def map_text(message: Message, change: Callable[[str], str]) -> Message:
    """Return the message with its texts changed. Every text keeps its `source`; the other parts stay as they are.

    What goes over the end of a text, such as an address in two pieces, is changed too: then all the text is in the first one,
    and has the source of the first text that has one. Files and results are read on their own. The same message is returned if
    nothing changes.
    """
    texts = {place: part for place, part in enumerate(message.parts) if type(part) is Text}
    made = {place: replace(part, text=changed) for place, part in texts.items() if (changed := change(part.text)) != part.text}
    typed = [] if message.role == "tool" else [one for one, part in texts.items() if not part.source.startswith(FILE)]
    if len(typed) > 1:
        whole = change("".join([texts[place].text for place in typed]))
        if whole != "".join([made.get(place, texts[place]).text for place in typed]):
            source = first_source([texts[place] for place in typed])
            made |= {place: Text(whole if place == typed[0] else "", source) for place in typed}
    parts = tuple([made.get(place, part) for place, part in enumerate(message.parts)])
    return Message(message.role, parts) if made else message


def person_source(name: str) -> str:
    """Return the `source` of what a person said. No file, webhook or tool has the same one."""
    return f"user {name}" if name else "another user"


def hold_outside_text(said: Iterable[Message], messages: Iterable[Message]) -> bool:
    """Return True if others may have written something in a conversation that no tool of the agent has brought: what the user
    quotes in a message (`said`), or an earlier answer that no run of the agent has given (`messages`)."""
    return any(one.quotes for one in said) or any(one.is_retold for one in messages)


def said_by(message: Message, speaker: str, user: str) -> Message:
    """Return a message of a person as it stands in a run of `user`: the words of anybody else have a source."""
    own, other = person_source(user), "" if speaker == user else person_source(speaker)
    sources = [part.source if type(part) is Text else None for part in message.parts]
    wanted = [other if source == "" else "" if source == own else source for source in sources]
    if wanted == sources:
        return message
    pairs = zip(message.parts, wanted, strict=True)
    return Message(message.role, tuple([replace(part, source=one) if type(part) is Text else part for part, one in pairs]))


_REMOVED = "[removed by a guardrail"
PLACEHOLDER = f"{_REMOVED}]"


def placeholder(reason: str = "", role: Role = "user") -> Message:
    """Return the message that replaces one that a guardrail blocked."""
    return Message(role, (Text(f"{_REMOVED}: {reason}]" if reason else PLACEHOLDER),))


def withheld_form(message: Message, reason: str = "") -> Message:
    """Return the placeholder for a message. It keeps its calls and results, so that the conversation stays complete."""
    held = placeholder(reason).text
    results = [
        replace(part, output=held, error=None, shown=None, media=()) for part in message.parts if type(part) is ToolResult
    ]
    calls = [replace(call, args={}) for call in message.calls]
    source = next((part.source for part in message.parts if type(part) is Text and part.source), "")
    return Message(message.role, tuple(results) if results else (Text(held, source), *calls))


def is_withheld(message: Message) -> bool:
    """Return True if the message is such a placeholder. Placeholders are not remembered, found or summarised."""
    text = message.text
    return text.startswith((PLACEHOLDER, f"{_REMOVED}: ")) and text.endswith("]") and not message.calls


def reason_of(message: Message) -> str:
    """Return the reason that the message was blocked, from its placeholder."""
    return message.text[len(_REMOVED) + 2 : -1]
