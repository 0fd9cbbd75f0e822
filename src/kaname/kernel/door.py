"""The door: the one place that decides whether a call runs, on the call that will really run.

Policies do not decide for each other. Each states a demand about the call, and the strictest wins: refuse, ask, wait, run. A
person sees one question with all reasons, and a recorded answer holds for the rules that the question named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import isawaitable
from itertools import count
from typing import TYPE_CHECKING, Any

from ..core.calls import same_call
from ..core.demands import Ask, Refuse, Wait
from ..core.errors import Suspend, UnexpectedError
from ..core.events import Asked
from ..core.messages import ToolCall, ToolResult
from ..core.notices import Notice, join_notices, notice
from ..core.people.answers import APPROVAL, NO, YES, Decision, read_approval
from ..core.people.visible import shown_call, visible
from ..core.record import replace
from .arguments import apply_edits
from .bases import options_of
from .boundary import Border

if TYPE_CHECKING:
    from .ports import Policy
    from .scope import Scope


async def decide(call: ToolCall, scope: Scope, *, may_ask: bool = True) -> ToolResult | None:
    """Return None if the call can run now, else the result that the model reads instead.

    Args:
        call: The call with the arguments that its tool would receive.
        scope: The run.
        may_ask: False to refuse the call where a person would have to be asked.

    Raises:
        Suspend: A person must be asked first.
    """
    deciders = scope.deciders(scope.caller(call))
    if not deciders:
        return None
    why, demands = await _join(deciders, call, scope)
    if why:  # a call that was tried before has run
        return ToolResult(error=why, not_run=call.id not in scope.state.started, retryable=False)
    if not demands:
        return None
    answered, key = set[str](), ""
    for key in _keys(call.id):
        if key not in scope.state.answers:
            break
        decision = read_approval(scope.state.answers[key])[0]
        if decision is None or not decision.approved:
            return refused_result("" if decision is None else decision.reason)
        answered.update(_rules_answered(key, decision, call, demands, scope))
    left = [demand for demand in demands if demand.rule not in answered]
    if not left:
        return None
    if not may_ask or call.name != scope.incoming[call.id].requested:  # nobody has asked for the call of a stand-in
        told = notice("door.not_asked", "{name} needs the approval of a person, and is not used instead", name=call.name)
        return ToolResult(error=told, not_run=True, retryable=False)
    if call.id in scope.state.open and all(isinstance(demand, Wait) for demand in left):
        return await left[0].hold()  # type: ignore[union-attr]
    raise _question(key, call, demands, scope)


async def refusal(call: ToolCall, scope: Scope) -> str:
    """Return the reason that policies refuse a call without asking a person; "" if they do not."""
    return (await _join(scope.deciders(scope.caller(call)), call, scope))[0]


async def _join(deciders: Sequence[Policy], call: ToolCall, scope: Scope) -> tuple[str, list[Ask | Wait]]:
    """Return the reason for a refusal, or "", and the demands to ask a person."""
    asked = list[Ask | Wait]()
    for policy in deciders:
        stated: Any = policy.demand(call, scope)
        if not isawaitable(stated):
            raise UnexpectedError(f"{type(policy).__name__}.demand() must be async: write `async def demand(self, call, view)`")
        demand = await stated
        if isinstance(demand, Refuse):
            return demand.reason, []
        if isinstance(demand, Ask | Wait):
            asked.append(demand)
        elif demand is not None:
            name = type(policy).__name__
            raise UnexpectedError(f"{name}.demand() returned {demand!r:.100}; expected Refuse, Ask, Wait or None")
    return "", asked


def refused_result(reason: str) -> ToolResult:
    """Return the result that the model sees if a person does not allow a call."""
    told = notice("approve.refused", "the user did not allow this call")
    return ToolResult(error=told + f": {reason}" if reason else told, not_run=True, retryable=False)


def amend(call: ToolCall, scope: Scope) -> ToolCall:
    """Return a call that a person has approved as it was approved: with the arguments that were shown, or changed.

    The tool's code, or a default that is made anew, may have changed since: what was shown is what runs.
    """
    state, amended = scope.state, call
    for key in _keys(call.id):
        if key not in state.answers:
            return amended
        decision, asked = read_approval(state.answers[key])[0], state.settled.get(key)
        if asked is None or asked.about is None or asked.about.name != call.name or decision is None or not decision.approved:
            continue
        shown = asked.about
        args = decision.args if decision.args is not None else shown.args if isinstance(shown.args, Mapping) else {}
        edited = apply_edits(amended, shown, args, scope.as_received(amended).args)
        amended = amended if same_call(edited, amended) else edited
        scope.incoming[call.id].approved[key] = scope.as_received(amended).args if decision.args is not None else shown.args
    return amended


def _keys(call_id: str) -> Any:
    """Yield the keys of the questions about a call: another one is asked if another rule, or other arguments, come up."""
    yield f"{APPROVAL}{call_id}"
    for number in count(2):
        yield f"{APPROVAL}{call_id};{number}"


def _rules_answered(key: str, decision: Decision, call: ToolCall, demands: Sequence[Ask | Wait], scope: Scope) -> Iterable[str]:
    """Return the rules for which a yes holds: those of its question, if the call is the one that was approved.

    Who has written the arguments wants this call: nothing has to wait for the user any more. A question of an earlier version
    names no rules. Its answer holds for those that ask the same person.
    """
    asked = scope.state.settled.get(key, Asked(key, "", about=call))
    if asked.about is None or asked.about.name != call.name:
        return ()
    approved = scope.incoming[call.id].approved.get(key, asked.about.args if decision.args is None else "")
    if not same_call(replace(call, args=approved), call):
        return ()
    wanted = [one.rule for one in demands if isinstance(one, Wait) and decision.args is not None]
    return [*wanted, *(asked.rules or [one.rule for one in demands if isinstance(one, Ask) and one.by == asked.by])]


def _question(key: str, call: ToolCall, demands: Sequence[Ask | Wait], scope: Scope) -> Suspend:
    """Return the one question about a call. Only a person whom every demand accepts can answer it."""
    asks = [demand for demand in demands if isinstance(demand, Ask)]
    rules = tuple([demand.rule for demand in demands])
    by = "other" if any(ask.by == "other" for ask in asks) else ""
    until, then = _expiry(asks, alone=len(asks) == len(demands))
    return Suspend(key, _prompt(call, demands, scope), (YES, NO), about=call, by=by, until=until, then=then, rules=rules)


def _expiry(asks: Sequence[Ask], *, alone: bool) -> tuple[float, Any]:
    """Return the time at which a question expires, and its answer then: no if one demand says no, yes only if all say yes."""
    refusing = [ask.until for ask in asks if ask.until and not ask.then]
    if refusing:
        late = notice("approve.expired", "the question was not answered in time")
        return min(refusing), {"approved": False, "reason": late}
    return (max([ask.until for ask in asks]), True) if alone and all(ask.until for ask in asks) else (0.0, None)


def _prompt(call: ToolCall, demands: Sequence[Ask | Wait], scope: Scope) -> Notice:
    """Return the text of the question: what the call will do in the words of its tool, the call, and all reasons."""
    reasons = [demand.reason for demand in demands]
    asked, lines = shown_call(call.name, call.args), list[str]()
    if does := _effect_of(call, scope):
        lines.append(notice("approve.describes", "{does}\nRun {asked}?", does=visible(does), asked=asked))
    elif not all(reasons):
        lines.append(notice("approve.run", "Run {asked}?", asked=asked))
    lines += dict.fromkeys([reason for reason in reasons if reason])
    return join_notices("\n", lines)


def _effect_of(call: ToolCall, scope: Scope) -> str:
    """Return the tool's description of the effect of a call; "" if the tool has none, or its function fails."""
    tool = scope.caller(call).tools.get(call.name, None)
    describe = options_of(tool).describe
    with Border():
        return "" if tool is None or describe is None else str(describe(tool.prepare(scope.as_sent(call))))
    return ""
