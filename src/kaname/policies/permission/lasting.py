"""Approvals that hold for later calls: which calls they allow, and where they are kept."""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ...core.calls import same_call
from ...core.durations import seconds
from ...core.errors import ConfigError, InvalidState
from ...core.events import Asked
from ...core.messages import ToolCall
from ...core.people.answers import ALWAYS, FOR_RUN, Decision, Lasting, read_approval
from ...core.reading.lazy_regex import lazy_regex
from ...core.state import State
from ...kernel.identity import tool_identity
from ...kernel.stores import Grant
from .conditions import all_of, holds, read_conditions

if TYPE_CHECKING:
    from ...kernel.view import RunView

ONLY = "*"  # in conditions: the names of the arguments that a call may have at all
_HIDDEN = lazy_regex(r"\*{4,}")
_FACT = "approval:"  # before the id of a call that was allowed by an earlier approval


def complete(answer: Any, shown: ToolCall, by: str, run_id: str, journal: Any) -> Any:
    """Return an answer as it is recorded: with the conditions, the time at which it ends, the run, and who gave it.

    Raises `InvalidState` if the conditions cannot be read or do not hold for the call that was shown.
    """
    if not isinstance(answer, Mapping) or "for" not in answer:
        return answer
    if isinstance(answer.get("until"), str):
        try:
            answer = {**answer, "until": time.time() + seconds(answer["until"])}
        except ConfigError as problem:
            raise InvalidState(str(problem)) from None
    _, lasting = read_approval(answer)
    if lasting is None:  # it is refused later
        return answer
    if lasting.scope == ALWAYS and journal.stores.grants is None:
        raise InvalidState.of("approval.no_grants", "{journal} cannot keep approvals", journal=type(journal).__name__)
    where = equal_arguments(shown.args) if lasting.where is None else lasting.where
    if where is None or _has_hidden(where):
        raise InvalidState.of("approval.hidden", "an argument of this call is hidden: say with `where` which calls are meant")
    try:
        fits = matches(where, shown)
    except ConfigError as problem:
        raise InvalidState(str(problem)) from None
    if not fits:
        raise InvalidState.of(
            "approval.other_call", "the conditions {where} do not hold for the call in question", where=dict(where)
        )
    return {**answer, "where": where, "by": by, "run": run_id}


def equal_arguments(args: Any) -> dict[str, Any] | None:
    """Return conditions that hold for the same arguments only, or None if one is hidden from people and cannot be compared."""
    args = args if isinstance(args, Mapping) else {}
    if _has_hidden(args):
        return None
    return {**{name: {"equals": value} for name, value in args.items()}, ONLY: sorted(args)}


def _has_hidden(value: Any) -> bool:
    if isinstance(value, str):
        return _HIDDEN.fullmatch(value) is not None
    held = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(_has_hidden(one) for one in held)


def matches(where: Mapping[str, Any], call: ToolCall) -> bool:
    """Return True if all conditions hold for the arguments of a call. What cannot be decided does not hold."""
    args = call.args if isinstance(call.args, Mapping) else {}
    names = where.get(ONLY, [*args])
    if not isinstance(names, list):
        raise ConfigError.of(
            "approval.names", '"*" takes the list of the arguments that a call may have, not {given}', given=names
        )
    if any(name not in names for name in args):
        return False
    answers = [
        holds(one, args[name]) if name in args else None
        for name, given in where.items()
        if name != ONLY
        for one in read_conditions(given, f"where.{name}")
    ]
    return all_of(answers) is True


def _read_approvals(tool: str, state: State) -> list[tuple[Asked, ToolCall, Decision | None, Lasting | None]]:
    """Return the questions about calls of a tool that were answered, and what their answers say."""
    return [
        (asked, asked.about, *read_approval(state.answers.get(key)))
        for key, asked in state.settled.items()
        if asked.about is not None and asked.about.name == tool
    ]


async def is_granted(rule: str, call: ToolCall, view: RunView, by: str = "") -> bool:
    """Return True if an earlier approval, given for this rule, allows the call. A refusal of the same call in this run comes
    first.

    The approvals of the journal are looked up each time: one that was revoked allows nothing, in no run and no fork.
    `by`: "other" if only an approval of another person than the user counts.
    """
    read = _read_approvals(call.name, view.state)
    if any(decision is not None and not decision.approved and same_call(about, call) for _, about, decision, _ in read):
        return False
    own = [(asked, lasting) for asked, _, _, lasting in read if rule in asked.rules]
    if any(lasting is not None and _holds_in_run(lasting, call, view, by) for _, lasting in own):
        return True
    if any(asked.call_id == call.id for asked, _ in own):
        return False  # a person was asked about this very call: that answer decides, and none that was given since
    return await view.look_up(f"{_FACT}{call.id}", lambda: _find(rule, call, view, by)) is not None


def _counts(given_by: str, by: str, view: RunView) -> bool:
    """Return True if an approval by this person counts, where perhaps only that of another person than the user does."""
    return by != "other" or view.state.is_another(given_by)


def _holds_in_run(lasting: Lasting, call: ToolCall, view: RunView, by: str) -> bool:
    """Return True if an approval was given for this run, and holds now for the call."""
    here = lasting.scope == FOR_RUN and lasting.run == view.run_id and _counts(lasting.by, by, view)
    return here and (not lasting.until or view.now() < lasting.until) and matches(lasting.where or {}, call)


async def _find(rule: str, call: ToolCall, view: RunView, by: str) -> str | None:
    grants = view.journal.stores.grants
    if grants is None:
        return None
    held = _rule_and_tool(rule, call, view)
    for grant in await grants.find(view.agent.name, view.state.user, call.name):
        if grant.rule == held and _counts(grant.by, by, view) and grant.is_valid(time.time()) and matches(grant.where, call):
            return grant.id
    return None


def _rule_and_tool(rule: str, call: ToolCall, view: RunView) -> str:
    """Return the subject of an approval: the rule, and the tool with its origin and schema. The name alone does not suffice."""
    tool = view.tools(call).get(call.name, None)
    return f"{rule} | {'' if tool is None else tool_identity(tool)}"


async def keep_lasting(rule: str, call: ToolCall, view: RunView) -> None:
    """Store an approval of this call that holds for later runs, for this rule. It is stored once, however often it is tried."""
    for key, asked in view.state.settled.items():
        if asked.call_id != call.id or rule not in asked.rules or asked.about is None or asked.about.name != call.name:
            continue
        _, lasting = read_approval(view.state.answers.get(key))
        grants = view.journal.stores.grants
        if lasting is not None and lasting.scope == ALWAYS and grants is not None:
            held = _rule_and_tool(rule, call, view)
            number = sha256(held.encode("utf-8", "surrogatepass")).hexdigest()[:8]
            grant = Grant(f"{view.run_id}:{key}:{number}", view.agent.name, view.state.user, call.name, lasting.where or {})
            await grants.put(grant._replace(until=lasting.until, by=lasting.by, at=view.now(), rule=held))
