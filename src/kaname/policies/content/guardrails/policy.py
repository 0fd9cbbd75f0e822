"""Guardrails: what may go in, what may come out, and which tools may be used how.

Output is judged before it is seen: what streams is held back as long as it may turn out to be forbidden, and no longer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING

from ....core.demands import Refuse
from ....core.durations import is_whole
from ....core.errors import ConfigError, Halt
from ....core.messages import (
    NOTHING,
    Message,
    ModelReply,
    ModelRequest,
    ToolCall,
    ToolResult,
    Usage,
    is_withheld,
    placeholder,
    reason_of,
    withheld_form,
)
from ....core.notices import notice
from ....core.reading.as_read import as_read, read_text
from ....core.record import replace
from ....core.state import from_outside
from ....core.steps import Stop
from ....kernel.chain import overrides
from ....kernel.ports import Action, Admission, ModelHandler, Policy, ToolHandler
from ....kernel.threads import runs_on_loop
from ...money.purchase import meter
from ...names import known_tools
from .escapes import spelt_out
from .folded import as_seen
from .gate import Held, HeldWhole
from .patterns import Match, Pattern, Scan, in_both_forms
from .texts import as_meant, texts
from .tool_rules import ToolRule, check_names, check_rules, refusal
from .verdicts import (
    ALLOWED,
    AT_ONCE,
    Check,
    GuardrailAction,
    GuardrailResult,
    Withheld,
    by_limit,
    by_pattern,
    check_name,
    cost_of,
    first_block,
    run_check,
    understood,
    worse,
)

if TYPE_CHECKING:
    from ....kernel.view import RunView

_REMEMBERED = 1_000  # questions


class Guardrails(Policy):
    """Check what goes into a run and what comes out, and how tools are used.

    A subclass that overrides `check_input` or `check_output` decides in a run too. Its `check_input` is called once a run, with
    the question. Its `check_output` gets the text of a reply as a whole before any of it is shown: such a reply does not
    stream. Thoughts and the arguments of calls are judged by `check_thought`: by default with the patterns and checks.

    Args:
        max_input_tokens: The longest message of the user in tokens, by an estimate (default 4096); None for no limit.
        max_output_tokens: The longest reply of the model, likewise.
        blocked_patterns: Regular expressions. A match in the input or the output ends the run.
        warn_patterns: Regular expressions whose matches are reported.
        input_checks: Functions that take a text and return None to allow it or the reason to block it, or a `Judge`.
        output_checks: Such checks of replies.
        result_checks: Such checks of what tools return.
        tools: A `ToolRule` for each tool that needs one.
        window: The longest text, in characters, that an output check is sure to see as a whole before any of it is shown
            (default 500).
        longest_match: The characters that are held back while a pattern can still match (default 4,000). A longer possible
            match is blocked.
        check_seconds: The time limit of a check (default 60). A check that takes longer blocks the text.

    Raises:
        ConfigError: A limit, a pattern, a check or a rule cannot be used.
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
        check_seconds: float = 60.0,
    ) -> None:
        for name, limit in (("max_input_tokens", max_input_tokens), ("max_output_tokens", max_output_tokens)):
            if limit is not None and not is_whole(limit, 1):
                raise ConfigError.of(
                    "guardrail.limit",
                    "{name} must be an integer of at least 1, or None for no limit, not {limit!r}",
                    name=name,
                    limit=limit,
                )
        for name, size in (("window", window), ("longest_match", longest_match)):
            if not is_whole(size, 1):
                raise ConfigError.of(
                    "guardrail.size",
                    "{name} must be a number of characters of at least 1, not {size!r}",
                    name=name,
                    size=size,
                )
        if not isinstance(check_seconds, int | float) or check_seconds <= 0:
            raise ConfigError.of(
                "guardrail.check_seconds",
                "check_seconds must be a number above 0, not {check_seconds!r}",
                check_seconds=check_seconds,
            )
        self.max_input_tokens, self.max_output_tokens = max_input_tokens, max_output_tokens
        blocks, warns = _pattern_list("blocked_patterns", blocked_patterns), _pattern_list("warn_patterns", warn_patterns)
        self.blocked = tuple([form for one in blocks for form in in_both_forms(one)])
        self.warned = tuple([form for one in warns for form in in_both_forms(one)])
        self._numbers = {one: number for number, one in enumerate(blocks, 1)}
        self.input_checks, self.output_checks = _checks("input_checks", input_checks), _checks("output_checks", output_checks)
        self.about = replace(self.about, judges_replies=bool(self.output_checks))
        self.result_checks = _checks("result_checks", result_checks)
        self._refuse_async("check_input", self.input_checks)
        self._refuse_async("check_output", self.output_checks)
        self.check_seconds = check_seconds
        self._rules = check_rules(tools)
        self.window, self.longest_match = window, longest_match
        self._verdicts: dict[bytes, list[GuardrailResult]] = {}

    def _refuse_async(self, method: str, checks: Sequence[Check]) -> None:
        """Raise `ConfigError` for an async check if a method of a subclass decides in place of the checks: it cannot wait."""
        late = [check_name(check) for check in checks if runs_on_loop(check)]
        if late and overrides(self, method, Guardrails):
            raise ConfigError.of(
                "guardrail.async_and_own",
                "{kind} overrides {method}, which cannot wait for the async check {check}; use one of the two",
                kind=type(self).__name__,
                method=method,
                check=late[0],
            )

    # What can be asked without a run: limits, patterns, and those checks that are no coroutines

    def check_input(self, text: str) -> GuardrailResult:
        worst = by_limit(text, self.max_input_tokens, "input") or ALLOWED
        return worst if worst.action is GuardrailAction.BLOCK else worse(worst, self._judge_now(text, self.input_checks))

    def check_output(self, text: str) -> GuardrailResult:
        worst = by_limit(text, self.max_output_tokens, "output") or ALLOWED
        return worse(worst, Guardrails.check_thought(self, text))

    def check_thought(self, text: str) -> GuardrailResult:
        """Judge a thought, or the arguments of calls, where a subclass has a `check_output` of its own for the answer."""
        worst = self._judge_now(text, self.output_checks)
        for meant in dict.fromkeys([spelt_out(text), "\n".join(as_meant(text))]):
            worst = worse(worst, self._judge_now(meant, self.output_checks)) if meant not in ("", text) else worst
        return worst

    def _judge_now(self, text: str, checks: Sequence[Check]) -> GuardrailResult:
        found = self._first_match(self.blocked, text) or self._first_match(self.warned, text)
        worst = found[0] if found else ALLOWED
        for check in checks:
            said = check(text)
            if isawaitable(said):
                said.close()  # type: ignore[attr-defined]
                raise ConfigError.of(
                    "guardrail.check_async",
                    "{check} is async and is called only inside a run; check_input and check_output cannot wait for it",
                    check=check_name(check),
                )
            worst = worse(worst, understood(said, check))
        return worst

    def _first_match(self, patterns: Sequence[Pattern], text: str) -> list[GuardrailResult]:
        """Return the verdict on the first match, in the text or in one of its folded forms (see `as_seen`)."""
        for one in as_seen(text):
            scan = Scan(patterns)
            if (found := scan.feed(one) or scan.end()) is not None:
                return [self.verdict(found)]
        return []

    def verdict(self, found: Match) -> GuardrailResult:
        """Return the verdict on a match. A pattern that matches itself, such as a plain word, is named by its number only."""
        if found.pattern not in self._numbers:
            return by_pattern(found.pattern, GuardrailAction.WARN)
        number = self._numbers[found.pattern]
        secret = any(one.search(found.pattern) is not None for one in self.blocked if one.pattern == found.pattern)
        return by_pattern(found.pattern, GuardrailAction.BLOCK, number if secret else 0)

    async def matched(self, text: str) -> list[GuardrailResult]:
        """Return the verdicts of the patterns on a text and its folded forms: one that blocks, or all that warn."""
        verdicts = list[GuardrailResult]()
        for form in as_seen(text):
            verdicts += await self._matched_as_it_is(form) if first_block(verdicts) is None else []
        return list({verdict.reason: verdict for verdict in verdicts}.values())

    async def _matched_as_it_is(self, text: str) -> list[GuardrailResult]:
        """Match in slices, so that a long text does not block the event loop."""
        blocked, warned, verdicts = Scan(self.blocked), Scan(self.warned), list[GuardrailResult]()
        for start in range(0, len(text), AT_ONCE):
            if start:
                await asyncio.sleep(0)
            piece = text[start : start + AT_ONCE]
            if (found := blocked.feed(piece)) is not None:
                return [self.verdict(found)]
            verdicts += self.warnings(warned, piece)
        if (found := blocked.end()) is not None:
            return [self.verdict(found)]
        return verdicts + self.warnings(warned, None)

    def warnings(self, scan: Scan, piece: str | None) -> list[GuardrailResult]:
        """Return a warning for each pattern that is found in another piece, or at the end. Each is looked for once."""
        verdicts = []
        begun = scan.length
        while (found := scan.end() if piece is None else scan.feed(piece[scan.length - begun :])) is not None:
            verdicts.append(self.verdict(found))
            scan.drop(found.pattern)
        return verdicts

    def all_warnings(self, text: str) -> list[GuardrailResult]:
        scan = Scan(self.warned)
        return [*self.warnings(scan, text), *self.warnings(scan, None)]

    async def checked(self, text: str, checks: Sequence[Check]) -> list[GuardrailResult]:
        """Return the verdicts of the checks that are not `allow` or have cost something. One that blocks is the last."""
        verdicts = []
        for check in checks:
            verdict, spent = await meter(check_name(check), partial(run_check, check, text, self.check_seconds), _usage_of)
            verdict = verdict if verdict.usage == spent else replace(verdict, usage=spent)
            if verdict.action is not GuardrailAction.ALLOW or verdict.usage != NOTHING:
                verdicts.append(verdict)
            if verdict.action is GuardrailAction.BLOCK:
                break
        return verdicts

    def check(self, tools: Mapping[str, Action]) -> None:
        known_tools("ToolRule", {rule.tool for rule in self._rules} - {"*"}, tools)
        check_names(self._rules, tools)

    # In a run

    async def admit(self, question: Message, next: Admission, view: RunView) -> Usage:
        """End the run if the question is blocked. What came from outside before it, and results that a caller supplied after
        it, are taken out of the conversation if they are blocked. The other messages of a turn are kaname's, and not judged."""
        state = view.state
        verdicts, usage = await self._judge_input(question, view.run_id)
        if (no := first_block(verdicts)) is not None:
            masked = ModelReply(placeholder(role="assistant"), "end_turn", usage) if usage != NOTHING else None
            raise Halt(Stop("blocked", no.reason, withheld="input"), masked)
        for verdict in verdicts if not state.replies else ():  # once a turn
            await view.warn("guardrails", verdict.reason)
        return usage + await self._withhold_earlier(question, view) + await next(question)

    async def _withhold_earlier(self, question: Message, view: RunView) -> Usage:
        """Take other texts from outside out of the conversation if they are blocked. Return the cost of judging them."""
        state, usage, asked = view.state, NOTHING, read_text(question)
        others = [one for one in state.messages[state.turn_start + 1 :] if one.role == "tool" and one.quotes]
        earlier = [one for one in from_outside(state.messages[: state.turn_start]) + others if not is_withheld(as_read(one))]
        refused: list[Message] = []
        for text, message in {text: one for one in earlier if (text := read_text(one)) != asked}.items():
            verdicts, cost = await self._judge_input(message)
            usage, no = usage + cost, first_block(verdicts)
            if no is not None and no.failed:  # it was let through before: nobody knows why not to send it now
                raise Halt(Stop("blocked", no.reason, withheld="nothing"))
            refused += [] if no is None else [one for one in earlier if read_text(one) == text]
        if refused:
            await view.withhold(refused)
        return usage

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        gate = HeldWhole if overrides(self, "check_output", Guardrails) else Held
        held = gate(self, request.emit or view.emit, view)
        try:
            reply = await next(replace(request, emit=held.take))
            await held.finish(reply)
        except Withheld as stopped:
            cut_off = Usage(0, held.tokens, cost=None)  # nobody has told what it has cost so far
            usage = (cut_off if stopped.reply is None else stopped.reply.usage) + held.usage
            masked = ModelReply(placeholder(role="assistant"), "end_turn", usage)
            raise Halt(Stop("blocked", stopped.why.reason, withheld="output"), masked) from None
        return reply if held.usage == NOTHING else replace(reply, usage=reply.usage + held.usage)

    async def _judge_input(self, message: Message, run_id: str = "") -> tuple[list[GuardrailResult], Usage]:
        """Return the verdicts on a message, and what they have cost now.

        A text is judged once as long as this policy exists; by a subclass's `check_input` once in each run (`run_id`)."""
        if is_withheld(message):  # a question of which only the reason has been written down
            return [GuardrailResult(GuardrailAction.BLOCK, reason_of(message))], NOTHING
        text = read_text(message)
        own = overrides(self, "check_input", Guardrails)
        known = hashlib.sha256(text.encode("utf-8", "replace")).digest()  # not the text: it may be long
        asked_in = known + run_id.encode() if own else known
        if asked_in in self._verdicts:
            return self._verdicts[asked_in], NOTHING
        limit = None if own else by_limit(text, self.max_input_tokens, "input")
        verdicts = [] if limit is None else [limit]
        if first_block(verdicts) is None and not own:
            verdicts += await self.matched(text)
        if first_block(verdicts) is None:
            verdicts += await self.checked(text, (self.check_input,) if own else self.input_checks)
        usage = cost_of(verdicts)
        objections = [verdict for verdict in verdicts if verdict.action is not GuardrailAction.ALLOW]
        if not any(verdict.failed for verdict in objections):  # it may be well again the next time
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            self._verdicts[known] = self._verdicts[asked_in] = objections
        return objections, usage

    async def demand(self, call: ToolCall, view: RunView) -> Refuse | None:
        why = refusal(call, self._rules, view)
        return Refuse(why) if why else None

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        result = await next(call)
        return await self._let_back(result, view) if self.result_checks else result

    async def _let_back(self, result: ToolResult, view: RunView) -> ToolResult:
        """A result that is blocked is seen by nobody: an error says why, and the model can go on without it."""
        given = [result.error if result.is_error else result.output, *[(one.name, one.url) for one in result.media]]
        verdicts = await self.checked("\n".join([text for text in texts(given) if text]), self.result_checks)
        result = replace(result, usage=result.usage + cost_of(verdicts))
        if (no := first_block(verdicts)) is None:
            for verdict in [one for one in verdicts if one.action is GuardrailAction.WARN]:
                await view.warn("guardrails", verdict.reason)
            return result
        withheld = notice("guardrail.result_withheld", "the result was withheld: {reason}", reason=no.reason)
        return ToolResult(error=withheld, usage=result.usage, retryable=False)

    def received(self, message: Message) -> Message:
        """A message that matches a blocked pattern is written down as why, and not as it came; where a subclass decides on
        what goes in, only `admit` can tell."""
        found = [] if overrides(self, "check_input", Guardrails) else self._first_match(self.blocked, read_text(message))
        return withheld_form(message, found[0].reason) if found else message


def _usage_of(verdict: GuardrailResult) -> Usage | None:
    return None if verdict.failed else verdict.usage


def _checks(name: str, given: Sequence[Check]) -> tuple[Check, ...]:
    made = (given,) if callable(given) else tuple(given)
    for check in made:
        if not callable(check):
            raise ConfigError.of(
                "guardrail.check_kind", "{name} takes functions or a Judge, not {check!r}", name=name, check=check
            )
    return made


def _pattern_list(name: str, given: Iterable[str] | None) -> list[str]:
    if isinstance(given, str):
        raise ConfigError.of(
            "guardrail.pattern_list", "{name} must be a list of patterns: write {name}=[{given!r}]", name=name, given=given
        )
    return list(given or ())
