"""Choose what a small model can pick (tools, answer), by what has happened in this turn.

After a failure the answer cannot be chosen while there are other things to try, and a tool that keeps failing is left out
once. A model is never pushed into a tool with effects: only tools that are `pure` are forced or named.
"""

from __future__ import annotations

from ...core.calls import same_call
from ...core.messages import ModelRequest, ToolCall, ToolResult, ToolSpec
from ...core.record import record, replace
from .choice_schema import answer_name
from .findings import found_nothing
from .numbers import forms, numbers, numbers_in_call

CUT_OFF = "Your reply was cut off at the token limit and was not carried out; make it shorter."
_TRUSTED = 3  # failures in a row after which the model may give up and say so


@record
class TurnSoFar:
    """The question of this turn, and the calls since."""

    question: str
    calls: tuple[tuple[ToolCall, ToolResult | None], ...]
    pure: frozenset[str] = frozenset()  # the tools that only look
    since: int = 0  # the place of the first message after the question

    @property
    def failures(self) -> int:
        """Return the number of results at the end that were errors, or look-ups without a match."""
        count = 0
        for _, result in reversed(self.calls):
            if result is None or not useless(result, self.pure):
                break
            count += 1
        return count

    @property
    def last_call_helped(self) -> bool:
        """Return True if the last result was useful. The result of a tool with effects may be empty."""
        if not self.calls:
            return True
        _, result = self.calls[-1]
        return result is None or not useless(result, self.pure)

    @property
    def unused_numbers(self) -> list[str]:
        """Return the numbers of the question that no successful call worked with. 0 and 1 do not count."""
        well = [call for call, result in self.calls if result is not None and not useless(result, self.pure)]
        given = {float(number) for call in well for number in numbers_in_call(call.args)}
        return [number for number in numbers(self.question) if float(number) not in (0, 1) and not forms(number) & given]


@record
class Offer:
    """The tools that the model can choose from now, and whether it can answer."""

    tools: tuple[ToolSpec, ...]
    answer: bool
    name: str  # of the answer


def turn_of(request: ModelRequest) -> TurnSoFar:
    messages = request.messages
    asked = max(
        (place for place, message in enumerate(messages) if message.role == "user" and message.text != CUT_OFF), default=-1
    )
    results = {
        part.call_id: part for message in messages[asked + 1 :] for part in message.parts if isinstance(part, ToolResult)
    }
    calls = [call for message in messages[asked + 1 :] if message.role == "assistant" for call in message.calls]
    question = messages[asked].text if asked >= 0 else ""
    pure = frozenset([tool.name for tool in request.tools if tool.effect == "pure"])
    return TurnSoFar(question, tuple([(call, results.get(call.id)) for call in calls]), pure, asked + 1)


def offer_for(turn: TurnSoFar, request: ModelRequest) -> Offer:
    """Return the offer for the next reply. If the answer is left out, only `pure` tools are offered."""
    tools, name = request.tools, answer_name(request.tools)
    if request.last or turn.failures > _TRUSTED:
        return Offer((), answer=True, name=name)
    everything = Offer(tools, answer=True, name=name)
    if turn.failures >= 2 and len(tools) > 1:
        last = {call.name for call, _ in turn.calls[-2:]}
        others = tuple([tool for tool in tools if tool.name not in last])
        if len(last) == 1:
            return replace(everything, tools=others) if all_pure(others) else everything
    return _after_failure(turn, everything) if turn.failures else everything


def _after_failure(turn: TurnSoFar, everything: Offer) -> Offer:
    """Leave the answer out at first, if the failed tool was a look-up and only look-ups are left to try."""
    pure = tuple([tool for tool in everything.tools if tool.effect == "pure"])
    looked = turn.calls[-1][0].name in turn.pure
    to_try = untried_of(turn, pure) or all_pure(everything.tools)
    return replace(everything, tools=pure, answer=False) if looked and to_try and turn.failures < _TRUSTED else everything


def all_pure(tools: tuple[ToolSpec, ...]) -> bool:
    return all(tool.effect == "pure" for tool in tools)


def untried_of(turn: TurnSoFar, tools: tuple[ToolSpec, ...]) -> list[str]:
    used = {call.name for call, _ in turn.calls}
    return [tool.name for tool in tools if tool.name not in used]


def useless(result: ToolResult, pure: frozenset[str]) -> bool:
    """Return True if a result is an error, or that of a look-up that found nothing."""
    return result.is_error or found_nothing(result, pure)


def earlier_result(call: ToolCall, turn: TurnSoFar) -> ToolResult | None:
    """Return the result of the same call earlier in this turn, or None."""
    for earlier, result in turn.calls:
        if result is not None and same_call(earlier, call):
            return result
    return None
