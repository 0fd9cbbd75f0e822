"""How often tools succeeded in past runs, how long they took and what they cost; and which of two did better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from ...core.events import Asked, Event, ToolFinished, ToolStarted
from ...core.notices import notice
from ...core.record import record
from ...kernel.load import read_run

if TYPE_CHECKING:
    from ...kernel.ports import Journal

RUNS = 50  # the last runs that are read
LEAST = 5  # calls of a tool before it is judged
_SUCCESS, _COST, _TIME = 0.1, 0.9, 0.8  # what counts as a difference: ten points, a tenth cheaper, a fifth faster


@record
class ToolFigures:
    """How a tool did.

    Args:
        calls: How many calls were counted.
        success: The part of them that succeeded, from 0 to 1.
        seconds: How long a call took (the median), or None if it is unknown.
        cost: US dollars per call (the mean), or None if it is unknown.
    """

    calls: int
    success: float
    seconds: float | None = None
    cost: float | None = None


class _Outcome(NamedTuple):
    good: bool
    seconds: float | None
    cost: float | None


async def past_figures(journal: Journal, names: Iterable[str], *, runs: int = RUNS) -> dict[str, ToolFigures]:
    """Return the success, time and cost of these tools in the last runs of the journal. Tools without calls are left out.

    Calls that were not run, and calls that failed because of their arguments, are not counted. The time of a call for which a
    person was asked is not counted either.
    """
    seen: dict[str, list[_Outcome]] = {name: [] for name in names}
    for card in await journal.runs(limit=runs):
        _count(await read_run(journal, card.run_id), seen)
    return {name: _sum_up(outcomes) for name, outcomes in seen.items() if outcomes}


def _count(events: Sequence[Event], seen: dict[str, list[_Outcome]]) -> None:
    started: dict[str, tuple[str, float]] = {}
    asked: set[str] = set()
    for event in events:
        body = event.body
        if isinstance(body, ToolStarted):
            if (earlier := started.get(body.call.id)) is not None and earlier[0] in seen:  # tried again, or another instead
                seen[earlier[0]].append(_Outcome(False, None, 0.0))
            started[body.call.id] = body.call.name, event.time
        elif isinstance(body, Asked):
            asked.add(body.call_id)
        elif isinstance(body, ToolFinished):
            result = body.result
            name, begun = started.pop(result.call_id, ("", 0.0))
            if name in seen and not result.not_run and (result.retryable or not result.is_error):
                seconds = None if result.call_id in asked else max(0.0, event.time - begun)
                seen[name].append(_Outcome(not result.is_error, seconds, result.usage.cost))


def _sum_up(outcomes: Sequence[_Outcome]) -> ToolFigures:
    times = [one.seconds for one in outcomes if one.seconds is not None]
    costs = [one.cost for one in outcomes if one.cost is not None]
    cost = sum(costs) / len(outcomes) if len(costs) == len(outcomes) else None
    return ToolFigures(
        len(outcomes), sum([one.good for one in outcomes]) / len(outcomes), median(times) if times else None, cost
    )


def why_better(other: str, name: str, figures: dict[str, ToolFigures]) -> str:
    """Return the reason to prefer the tool `other` to the tool `name`, or "" if there is none or too little is known.

    A tool that succeeds more often, by ten points, is better. If both succeed about as often, the one that costs less, by a
    tenth, is better; if they cost about the same, the one that is faster, by a fifth. If a cost is unknown, neither cost nor
    time decides.
    """
    one, two = figures.get(other), figures.get(name)
    if one is None or two is None or min(one.calls, two.calls) < LEAST:
        return ""
    if abs(one.success - two.success) >= _SUCCESS:
        if one.success < two.success:
            return ""
        return notice(
            "choice.success",
            "{other} was used instead of {name}: {good:.0%} of its last {calls} calls succeeded, against {bad:.0%}",
            other=other,
            name=name,
            good=one.success,
            calls=one.calls,
            bad=two.success,
        )
    if one.cost is None or two.cost is None:
        return ""
    if one.cost < two.cost * _COST:
        return notice(
            "choice.cost",
            "{other} was used instead of {name}: a call costs ${less:.4f}, against ${more:.4f}",
            other=other,
            name=name,
            less=one.cost,
            more=two.cost,
        )
    if two.cost < one.cost * _COST or one.seconds is None or two.seconds is None or one.seconds >= two.seconds * _TIME:
        return ""
    return notice(
        "choice.time",
        "{other} was used instead of {name}: a call takes {less:.2f} s, against {more:.2f} s",
        other=other,
        name=name,
        less=one.seconds,
        more=two.seconds,
    )


def choose(name: str, others: Iterable[str], figures: dict[str, ToolFigures]) -> tuple[str, str]:
    """Return the best of the tools and why it is better than `name`; `name` and "" if none is known to be better."""
    best, reason = name, ""
    for other in others:
        if (why := why_better(other, name, figures)) and (best == name or why_better(other, best, figures)):
            best, reason = other, why
    return best, reason
