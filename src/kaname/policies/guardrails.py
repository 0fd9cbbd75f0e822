"""Guardrails: what may go in, what may come out, and which tools may be used how.

Output is judged before it is seen: what streams is held back as long as it may turn out to be forbidden, and no longer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError, Halt, Signal
from ..core.events import Warned
from ..core.language import say
from ..core.messages import NOTHING, Message, ModelReply, ModelRequest, Provided, Text, ToolCall, ToolResult, Usage
from ..core.record import replace
from ..core.steps import Stop
from ..kernel.boundary import Failure, attempt
from ..kernel.ports import Action, ModelHandler, Policy, ToolHandler
from .names import known_tools
from .patterns import Pattern, Scan
from .tool_rules import ToolRule, check_names, check_rules, refusal
from .verdicts import ALLOWED, Check, GuardrailAction, GuardrailResult, by_pattern, named, over_limit, understood, worse

if TYPE_CHECKING:
    from ..kernel.scope import Scope

_REMEMBERED = 1_000  # questions
_MASK_EN, _MASK_JA = "[removed by a guardrail]", "[ガードレールにより削除]"


class Guardrails(Policy):
    """`blocked_patterns` end a run, `warn_patterns` are reported: regular expressions, matched in linear time.

    `input_checks`, `output_checks` and `result_checks` (what tools return): functions or a `Judge`.
    `tools`: a `ToolRule` for each tool that needs one.
    `window`: the longest text, in characters, that a check of the output is sure to see as a whole before any of it is shown.
    `longest_match`: how much is held back while a pattern may still match; more than that is blocked.
    """

    def __init__(
        self,
        max_input_tokens: int | None = 4096,
        max_output_tokens: int | None = 4096,
        blocked_patterns: Iterable[str] | None = None,
        *,
        warn_patterns: Iterable[str] | None = None,
        input_checks: Sequence[Check] = (),
        output_checks: Sequence[Check] = (),
        result_checks: Sequence[Check] = (),
        tools: Iterable[ToolRule] = (),
        window: int = 500,
        longest_match: int = 4_000,
    ) -> None:
        for name, limit in (("max_input_tokens", max_input_tokens), ("max_output_tokens", max_output_tokens)):
            if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
                raise ConfigError(f"{name} is a whole number from 1 up, or None for no limit, not {limit!r}")
        if window < 1 or longest_match < 1:
            raise ConfigError("window and longest_match are numbers of characters, from 1 up")
        self.max_input_tokens, self.max_output_tokens = max_input_tokens, max_output_tokens
        self.blocked = [Pattern(one) for one in _listed("blocked_patterns", blocked_patterns)]
        self.warned = [Pattern(one) for one in _listed("warn_patterns", warn_patterns)]
        self.input_checks, self.output_checks = tuple(input_checks), tuple(output_checks)
        self.result_checks = tuple(result_checks)
        self._rules = check_rules(tools)
        self.window, self.longest_match = window, longest_match
        self._verdicts: dict[bytes, GuardrailResult] = {}

    # What can be asked without a run: limits, patterns, and those checks that are no coroutines

    def check_input(self, text: str) -> GuardrailResult:
        return over_limit(text, self.max_input_tokens, "input") or self._plain(text, self.input_checks)

    def check_output(self, text: str) -> GuardrailResult:
        return over_limit(text, self.max_output_tokens, "output") or self._plain(text, self.output_checks)

    def _plain(self, text: str, checks: Sequence[Check]) -> GuardrailResult:
        worst = self.matched(text)
        for check in checks:
            said = check(text)
            if isawaitable(said):
                said.close()  # type: ignore[attr-defined]
                raise ConfigError(
                    f"{named(check)} is async: it is asked inside a run; check_input and check_output cannot wait for it"
                )
            worst = worse(worst, understood(said, check))
        return worst

    def matched(self, text: str) -> GuardrailResult:
        for patterns, action in ((self.blocked, GuardrailAction.BLOCK), (self.warned, GuardrailAction.WARN)):
            scan = Scan(patterns)
            if patterns and (found := scan.feed(text) or scan.end()) is not None:
                return by_pattern(found.pattern, action)
        return ALLOWED

    async def checked(self, text: str, checks: Sequence[Check]) -> GuardrailResult:
        """All the checks; one that fails blocks, because nobody knows what it would have said."""
        worst, usage = ALLOWED, NOTHING
        for check in checks:
            said = await attempt(check, text, passing=())
            if isinstance(said, Failure):
                reason = say(f"the check {named(check)} failed: {said}", f"チェック {named(check)} が失敗しました: {said}")
                verdict = GuardrailResult(GuardrailAction.BLOCK, reason, {"check": named(check)})
            else:
                verdict = understood(said, check)
            usage = usage + verdict.usage
            worst = worse(worst, verdict)
        return replace(worst, usage=usage)

    def check(self, tools: Mapping[str, Action]) -> None:
        known_tools("ToolRule", {rule.tool for rule in self._rules} - {"*"}, tools)
        check_names(self._rules, tools)

    # In a run

    async def model(self, request: ModelRequest, next: ModelHandler, scope: Scope) -> ModelReply:
        from .held import Held

        messages, asked = await self._let_in(request.messages, scope)
        held = Held(self, request.emit or scope.emit, scope)
        try:
            reply = await next(replace(request, messages=messages, emit=held.take))
            await held.finish(reply)
        except Withheld as stopped:
            cut_off = Usage(0, held.tokens, cost=None)  # nobody has told what it has cost so far
            usage = (cut_off if stopped.reply is None else stopped.reply.usage) + asked + held.usage
            masked = ModelReply(Message("assistant", (Text(_mask()),)), "end_turn", usage)
            raise Halt(Stop("blocked", stopped.why.reason), masked) from None
        extra = asked + held.usage
        return reply if extra == NOTHING else replace(reply, usage=reply.usage + extra)

    async def _let_in(self, messages: tuple[Message, ...], scope: Scope) -> tuple[tuple[Message, ...], Usage]:
        """The messages as the model may see them. What is blocked now ends the run; what was blocked before is left out.

        What follows the question in its own turn are kaname's notes, and not judged."""
        state = scope.state
        asked = state.messages[state.turn_start] if state.turn_start < len(state.messages) else None
        usage = NOTHING
        if asked is not None:
            verdict, fresh = await self._judge_input(asked.text)
            usage = verdict.usage if fresh else NOTHING
            if verdict.action is GuardrailAction.WARN and not state.replies:  # once a turn
                await scope.record(Warned("guardrails", verdict.reason))
            if verdict.action is GuardrailAction.BLOCK:
                masked = ModelReply(Message("assistant", (Text(_mask()),)), "end_turn", usage) if usage != NOTHING else None
                raise Halt(Stop("blocked", verdict.reason), masked)
        before = {message.text for message in state.messages[: state.turn_start] if message.role == "user"}
        seen = []
        for message in messages:
            if message.role == "user" and message.text in before and (asked is None or message.text != asked.text):
                verdict, fresh = await self._judge_input(message.text)
                usage = usage + (verdict.usage if fresh else NOTHING)
                blocked = verdict.action is GuardrailAction.BLOCK
                seen.append(Message("user", (Text(_mask()),)) if blocked else message)
            else:
                seen.append(message)
        return tuple(seen), usage

    async def _judge_input(self, text: str) -> tuple[GuardrailResult, bool]:
        """The verdict, and whether it is a new one: a text is judged once as long as this policy lives."""
        known = hashlib.sha256(text.encode("utf-8", "replace")).digest()  # not the text: it may be long
        if known in self._verdicts:
            return self._verdicts[known], False
        verdict = _withheld(text) or over_limit(text, self.max_input_tokens, "input") or self.matched(text)
        if verdict.action is not GuardrailAction.BLOCK and self.input_checks:
            verdict = worse(verdict, await self.checked(text, self.input_checks))
        if len(self._verdicts) >= _REMEMBERED:
            self._verdicts.clear()
        self._verdicts[known] = verdict
        return verdict, True

    def lets(self, call: ToolCall, scope: Scope) -> bool:
        return not refusal(call, self._rules, scope)

    async def tool(self, call: ToolCall, next: ToolHandler, scope: Scope) -> ToolResult:
        refused = refusal(call, self._rules, scope)
        if refused:
            return ToolResult(error=refused)
        result = await next(call)
        return await self._let_back(result, scope) if self.result_checks else result

    async def _let_back(self, result: ToolResult, scope: Scope) -> ToolResult:
        """A result that is blocked is seen by nobody: an error says why, and the model can go on without it."""
        verdict = await self.checked("\n".join(_texts(result.error if result.is_error else result.output)), self.result_checks)
        if verdict.action is GuardrailAction.WARN:
            await scope.record(Warned("guardrails", verdict.reason))
        if verdict.action is not GuardrailAction.BLOCK:
            return result
        withheld = say(f"the result was withheld: {verdict.reason}", f"結果は差し止められました: {verdict.reason}")
        return ToolResult(error=withheld, retryable=False)

    def received(self, message: Message) -> Message:
        """A question that matches a blocked pattern is written down as why, and not as it came."""
        verdict = self.matched(message.text)
        if verdict.action is not GuardrailAction.BLOCK:
            return message
        return replace(message, parts=(Text(f"{_mask()[:-1]}: {verdict.reason}]"),))


class Withheld(Signal):
    """Something in a reply is blocked. `reply`: the whole of it, where it was complete."""

    def __init__(self, why: GuardrailResult, reply: ModelReply | None = None) -> None:
        super().__init__(why.reason)
        self.why, self.reply = why, reply


def _withheld(text: str) -> GuardrailResult | None:
    """A question of which only the reason has been written down."""
    for mask in (_MASK_EN, _MASK_JA):
        if text.startswith(f"{mask[:-1]}: ") and text.endswith("]"):
            return GuardrailResult(GuardrailAction.BLOCK, text[len(mask) + 1 : -1])
    return None


def unseen(reply: ModelReply) -> str:
    """What a reply holds beside its text and thoughts: the arguments of calls, and what only its provider understands."""
    held: list[Any] = [call.args for call in reply.message.calls]
    held += [part.data for part in reply.message.parts if isinstance(part, Provided)]
    return "\n".join([text for one in held for text in _texts(one)])


def as_meant(text: str) -> str:
    """What a JSON text says, and not how it is spelt; nothing, where it is none."""
    return "\n".join(list(_texts(text))[1:])


def _texts(value: Any) -> Iterator[str]:
    """All the texts in a JSON value, as they are meant and not as JSON spells them."""
    if isinstance(value, str):
        yield value
        if value.lstrip()[:1] in ("{", "["):
            with suppress(ValueError):
                yield from _texts(json.loads(value, strict=False))
    elif isinstance(value, Mapping):
        for key, held in value.items():
            yield str(key)
            yield from _texts(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from _texts(held)
    elif value is not None:
        yield str(value)


def _mask() -> str:
    return say(_MASK_EN, _MASK_JA)


def _listed(name: str, given: Iterable[str] | None) -> list[str]:
    if isinstance(given, str):
        raise ConfigError(f"{name} is a list of patterns: write {name}=[{given!r}]")
    return list(given or ())
