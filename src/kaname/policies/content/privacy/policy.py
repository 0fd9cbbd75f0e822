"""`Privacy`: keep personal data from the model, the tools, the user or the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from logging import getLogger
from typing import Any, NamedTuple

from ....core.demands import Refuse
from ....core.errors import ConfigError, Halt
from ....core.messages import (
    Media,
    Message,
    ModelReply,
    ModelRequest,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    is_withheld,
    map_text,
    reason_of,
    withheld_form,
)
from ....core.notices import notice
from ....core.reading.as_read import file_text, read_text, with_file_text
from ....core.record import replace
from ....core.steps import Stop
from ....kernel.boundary import Border
from ....kernel.ports import Admission, ModelHandler, Policy, ToolHandler
from ....kernel.threads import off_loop
from ....kernel.view import RunView
from ..guardrails.folded import fold_text
from ..guardrails.texts import texts
from .kinds import DataForm, built_in
from .leaving import By, Leaving
from .names import FindNames
from .outcomes import Seen, Unjudged, reason_for, warn_about, withhold
from .pseudonyms import Pseudonyms, labels_in, pseudonyms_of
from .rules import DEFAULT, Direction, PrivacyRules, Treatment
from .scan import Detector, Found, find, join_overlaps
from .values import forms_of, mask, replace_found, rewrite_value

_REMEMBERED = 2_000  # texts whose data is known
_CHARACTERS = 4_000_000  # of these texts in all
_LONG = 10_000  # characters of a result that is looked through in a thread, so that no other run waits for it


class _ForModel(NamedTuple):
    """A message and how the model sees it, given `size` pseudonyms. `text`: all that it says, once that is needed."""

    message: Message
    made: Message
    size: int
    text: str = ""


class Privacy(Policy):
    """Finds personal data and keys in what goes in and comes out, and treats each kind by your rules.

    Treatments: `mask` writes `[email]` instead, `remove` nothing. `pseudonymise` writes `<EMAIL_1>`, the same for the whole
    session; where no rule says otherwise, kaname puts the value back for tools and for the user. `block` ends the run, refuses
    the call or withholds the result. `warn` records a warning, and `allow` does nothing.

    Args:
        kinds: The treatment of each kind, or of each kind by direction (`input`, `results`, `output`, `arguments`); `*` stands
            for all other kinds. A treatment without a direction holds for all directions, `pseudonymise` for what the model
            sees (`input` and `results`). By default everything is pseudonymised, and keys of services are masked.
        patterns: Regular expressions for kinds of your own, by their name.
        detectors: Functions that take a text and return `(start, end, kind)` for what they find in it, such as names. Replies
            are held back until they are complete if a rule for `output` exists.

    Raises:
        ConfigError: A kind, a direction, a treatment or a pattern cannot be used.

    Example:
        Agent("openai", policies=[Privacy({"email": "pseudonymise", "card": "block", "phone": {"output": "mask"}})])
    """

    place = "attempt"  # around every model call, also those of judges

    def __init__(
        self,
        kinds: Mapping[str, Treatment | Mapping[Direction, Treatment]] | None = None,
        *,
        patterns: Mapping[str, str] | None = None,
        detectors: Sequence[Detector] = (),
    ) -> None:
        self._own = forms_of(dict(patterns or {}))
        self._detectors = (detectors,) if callable(detectors) else tuple(detectors)
        for detector in self._detectors:
            if not callable(detector):
                raise ConfigError.of("privacy.detector", "detectors takes functions, not {given!r}", given=detector)
            if isinstance(detector, FindNames):
                detector.check()
        further = tuple([form.kind for form in self._own])
        self._rules = PrivacyRules(DEFAULT if kinds is None else kinds, further=further, any_kind=bool(self._detectors))
        self._known: dict[tuple[str, bool], list[Found]] = {}  # by the text, and whether only kinds of the output count
        self._size = 0

    @cached_property
    def _forms(self) -> tuple[DataForm, ...]:
        return tuple([form for form in (*self._own, *built_in()) if self._rules.concerns(form.kind)])

    @cached_property
    def _output_forms(self) -> tuple[DataForm, ...]:
        return tuple([form for form in self._forms if self._rules.concerns(form.kind, "output")])

    def _find(self, text: str, output: bool = False) -> list[Found]:
        """Return the data in a text, looked at once. `output`: only kinds with a rule for the output, as in streams."""
        if (found := self._known.get((text, output))) is None:
            with Border() as border:
                found = find(text, self._output_forms if output else self._forms, self._detectors)
            if (failure := border.failure) is not None or found is None:  # not its message: it may hold the very text
                kind = "" if failure is None else type(failure.error).__name__
                getLogger("kaname").warning("a detector of personal data failed: %s", failure and failure.kind)
                raise Unjudged(notice("privacy.failed", "a detector of personal data failed: {kind}", kind=kind))
            if len(self._known) >= _REMEMBERED or self._size + len(text) > _CHARACTERS:
                self._known, self._size = {}, 0
            self._known[text, output] = found
            self._size += len(text)
        return found

    def _treat(self, direction: Direction, seen: Seen, names: Pseudonyms | None, kind: str, data: str) -> str:
        """Return the text that replaces the data. Without pseudonyms, data that needs one is left for a later pass."""
        match self._rules.treatment(direction, kind):
            case "mask":
                return mask(kind)
            case "remove":
                return ""
            case "block":
                seen.blocked[kind] = None
                return mask(kind)
            case "warn":
                seen.warned[kind] = None
            case "pseudonymise" if names is not None:
                return names.label(kind, data)
        return data

    def _rewrite(self, value: Any, by: By, find_in: Callable[[str], Sequence[Found]] | None = None) -> Any:
        return rewrite_value(value, find_in or self._find, lambda text, found: replace_found(text, found, by))  # type: ignore[arg-type]

    # What the user says

    def received(self, message: Message) -> Message:
        """Mask or remove data before the message is recorded. A message that is blocked is recorded as the reason."""
        seen = Seen()
        direction: Direction = "results" if message.role == "tool" else "input"
        treat = partial(self._treat, direction, seen, None)
        try:
            made = map_text(message, lambda text: str(self._rewrite(text, treat)))
            args = {call.id: self._rewrite(call.args, treat) for call in message.calls}  # of an earlier conversation
        except Unjudged as problem:
            return withheld_form(message, str(problem))
        if seen.blocked:
            return withheld_form(message, reason_for(direction, seen))
        if all(args[call.id] is call.args for call in message.calls):
            return made
        parts = [replace(part, args=args[part.id]) if isinstance(part, ToolCall) else part for part in made.parts]
        return Message(message.role, tuple(parts))

    async def admit(self, question: Message, next: Admission, view: RunView) -> Usage:
        if is_withheld(question):
            raise Halt(Stop("blocked", reason_of(question), withheld="input"))
        if self._rules.has("input", "warn") and not view.state.replies:
            seen = Seen()
            try:
                self._rewrite(read_text(question), partial(self._treat, "input", seen, None))
            except Unjudged as problem:
                raise Halt(Stop("blocked", str(problem), withheld="input")) from None
            await warn_about("input", seen, view)
        return await next(question)

    # What the model sees, and what it says

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        names, seen = pseudonyms_of(view), Seen()
        try:
            messages = self._messages_for_model(request.messages, names, view)
        except Unjudged as problem:
            raise Halt(Stop("blocked", str(problem), withheld="nothing")) from None
        await names.record(view)
        treat, restore = (
            partial(self._treat, "output", seen, names),
            self._make_restore(names, seen, request.schema is not None),
        )
        leaving = Leaving(
            self._output_forms,
            treat,
            restore if names.size else None,
            whole=bool(self._detectors) and self._rules.has("output"),
            is_blocked=lambda: bool(seen.blocked),
            record=partial(names.record, view),
            emit=request.emit or view.emit,
        )
        reply = await next(replace(request, messages=messages, emit=leaving.take))
        try:
            made = self._reply_for_user(reply, treat, restore, names)
        except Unjudged as problem:
            raise withhold(str(problem), reply) from None
        if seen.blocked:
            raise withhold(reason_for("output", seen), reply)
        await names.record(view)
        await leaving.finish(made.message.thinking, made.message.text)
        await warn_about("output", seen, view)
        return made

    def _messages_for_model(self, messages: tuple[Message, ...], names: Pseudonyms, view: RunView) -> tuple[Message, ...]:
        """Return the messages as the model sees them. A value that is found late is replaced in the earlier ones, too."""
        kept: dict[int, _ForModel] = view.scratch.setdefault(self, {})
        passed = [one for one in view.state.messages if one.role == "system"]  # by the caller; the others are the agent's own
        own = {id(one) for one in messages if one.role == "system"} - {id(one) for one in passed}
        while True:
            size = names.size
            made = [
                self._own_message(one, passed, names, kept) if id(one) in own else self._message_for_model(one, names, kept)
                for one in messages
            ]
            if names.size == size:
                return tuple(made)

    def _own_message(self, message: Message, passed: list[Message], names: Pseudonyms, kept: dict[int, _ForModel]) -> Message:
        """Return a system message of the agent, in which only the words of the caller's system messages are changed."""
        text = message.text
        for one in [one for one in passed if one.text and one.text in text]:
            text = text.replace(one.text, self._message_for_model(one, names, kept).text)
        return message if text == message.text else Message("system", (Text(text),))

    def _message_for_model(self, message: Message, names: Pseudonyms, kept: dict[int, _ForModel]) -> Message:
        """Return a message as the model sees it; the same object each time, unless a value in it was found since."""
        before = kept.get(id(message))
        if before is not None and before.message is message:
            if before.size == names.size:
                return before.made
            text = before.text or _all_text(message)
            kept[id(message)] = before._replace(size=names.size, text=text)
            if not any(one in text for one in names.since(before.size)):
                return before.made
        made = _rewrite_message(message, lambda part: self._part_for_model(part, message.role, names))
        kept[id(message)] = _ForModel(message, made, names.size)
        return made

    def _part_for_model(self, part: Part, role: str, names: Pseudonyms) -> Part:
        def find_known(text: str) -> list[Found]:
            return join_overlaps([*[(one, 0) for one in self._find(text)], *[(one, 1) for one in names.find_values(text)]])

        to_model = partial(self._to_model, "results" if isinstance(part, ToolResult) else "input", role == "assistant", names)
        match part:
            case Text(text):
                changed = self._rewrite(text, to_model, find_known)
                return part if changed == text else Text(changed)
            case Media() if (content := file_text(part)) is not None:
                changed = self._rewrite(content, to_model, find_known)
                return part if changed == content else with_file_text(part, changed)
            case ToolCall():
                args = self._rewrite(part.args, to_model, find_known)
                return part if args is part.args else replace(part, args=args)
            case ToolResult():
                held = {name: getattr(part, name) for name in ("output", "error", "shown")}
                made = {name: self._rewrite(value, to_model, find_known) for name, value in held.items()}
                return (
                    part
                    if all(made[name] is held[name] or made[name] == held[name] for name in held)
                    else replace(part, **made)
                )
        return part

    def _to_model(self, direction: Direction, its_own: bool, names: Pseudonyms, kind: str, data: str) -> str:
        """Return the text that the model sees for the data. In its own messages, only pseudonyms replace data."""
        treatment = self._rules.treatment(direction, kind)
        if names.has(data) or treatment == "pseudonymise" or (its_own and self._rules.hides(kind)):
            return names.label(kind, data)
        return data if its_own or treatment in ("warn", "allow") else "" if treatment == "remove" else mask(kind)

    def _make_restore(self, names: Pseudonyms, seen: Seen, as_json: bool) -> By:
        def restore(_: str, label: str) -> str:
            kind, value = names.value(label)
            if not kind or self._rules.treatment("output", kind) == "pseudonymise":
                return label
            said = self._treat("output", seen, names, kind, value)
            return json.dumps(said, ensure_ascii=False)[1:-1] if as_json else said

        return restore

    def _reply_for_user(self, reply: ModelReply, treat: By, restore: By, names: Pseudonyms) -> ModelReply:
        """Return the reply as the user sees it and as it is recorded, with the arguments as the tools get them."""
        find_output = partial(self._find, output=True) if self._rules.has("output") else _do_nothing

        def for_tool(_: str, label: str) -> str:
            kind, value = names.value(label)
            stays = not kind or self._rules.treatment("arguments", kind) in ("pseudonymise", "block")
            return label if stays else self._treat("arguments", Seen(), names, kind, value)

        def to_tool(args: Any) -> Any:
            """Apply the rules for arguments before the call is recorded and a person sees it. What is blocked stays."""
            if not self._rules.has("arguments", "mask", "remove", "pseudonymise"):
                return args
            return self._rewrite(args, partial(self._treat_arguments, names))

        def shown(text: str) -> str:
            text = self._rewrite(text, restore, labels_in)
            return str(self._rewrite(text, treat, find_output))

        def rewrite(part: Part) -> Part:
            match part:
                case Text(text):
                    return Text(shown(text))
                case Thinking(text, _):
                    thought = self._rewrite(text, treat, find_output)
                    return part if thought == text else Thinking(thought)  # the signature was for another text
                case ToolCall():
                    return replace(part, args=to_tool(self._rewrite(part.args, for_tool, labels_in)))
            return part

        made = _rewrite_message(reply.message, rewrite)
        return reply if made is reply.message else replace(reply, message=made)

    def _treat_arguments(self, names: Pseudonyms, kind: str, data: str) -> str:
        blocked = self._rules.treatment("arguments", kind) == "block"
        return data if blocked else self._treat("arguments", Seen(), names, kind, data)

    # What tools get and return

    async def demand(self, call: ToolCall, view: RunView) -> Refuse | None:
        why = self._arguments(call, pseudonyms_of(view))[1]
        return Refuse(why) if why else None

    def _arguments(self, call: ToolCall, names: Pseudonyms) -> tuple[Any, str, Seen]:
        """Return the arguments for the tool, and why it must not get them."""
        if not self._rules.has("arguments"):
            return call.args, "", Seen()
        seen = Seen()

        def refuse(_: str, label: str) -> str:
            if (kind := names.value(label)[0]) and self._rules.treatment("arguments", kind) == "block":
                seen.blocked[kind] = None
            return label

        try:
            args = self._rewrite(call.args, partial(self._treat, "arguments", seen, names))
        except Unjudged as problem:
            return call.args, str(problem), seen
        self._rewrite(args, refuse, labels_in)
        return args, reason_for("arguments", seen) if seen.blocked else "", seen

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        names = pseudonyms_of(view)
        args, refused, seen = self._arguments(call, names)
        if refused:  # the door refuses it
            return await next(call)
        await names.record(view)
        await warn_about("arguments", seen, view)
        result = await next(call if args is call.args else replace(call, args=args))
        if not self._rules.has("results", "mask", "remove", "block", "warn"):
            return result
        seen = Seen()
        held = {name: getattr(result, name) for name in ("output", "error", "shown")}
        treat = partial(self._treat, "results", seen, None)

        def rewrite() -> dict[str, Any]:
            return {name: self._rewrite(value, treat) for name, value in held.items()}

        try:
            made = await off_loop(rewrite) if sum(map(len, texts([*held.values()]))) > _LONG else rewrite()
        except Unjudged as problem:
            return ToolResult(error=str(problem), usage=result.usage, retryable=False)
        if seen.blocked:
            return ToolResult(error=reason_for("results", seen), usage=result.usage, retryable=False)
        await warn_about("results", seen, view)
        return result if all(made[name] is held[name] for name in held) else replace(result, **made)

    def for_child(self, view: RunView) -> Policy:
        return self


def _rewrite_message(message: Message, rewrite: Callable[[Any], Any]) -> Message:
    """Return a message with its parts rewritten. The texts keep their origin."""
    made = map_text(message, lambda text: str(rewrite(Text(text)).text))
    parts = tuple([part if isinstance(part, Text) else rewrite(part) for part in made.parts])
    same = all(one is other for one, other in zip(parts, message.parts, strict=True))
    return message if same else Message(message.role, parts)


def _all_text(message: Message) -> str:
    names = ("text", "args", "output", "error", "shown")
    held = [getattr(part, name, None) for part in message.parts for name in names]
    held += [file_text(part) for part in message.parts if type(part) is Media]
    return fold_text("\n".join(texts(held)))


def _do_nothing(text: str) -> list[Found]:
    return []
