"""Figures of recorded runs: how many came to their end, what they cost, how often things failed, how content people were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from ..core.errors import ConfigError
from ..core.events import Asked, Compacted, Custom, Event, ModelReplied, Opened, Stopped, ToolFinished
from ..core.messages import NOTHING, Usage, is_withheld, user
from ..core.record import field, mutable
from ..core.runs import Tally
from ..kernel.load import add_fact, read_run
from ..kernel.ports import Journal, Recipe
from ..people.entrance import Origin, admit
from ..strategies.orchestrate import MONITOR, PLANNER

RATING = "rating"
_PLAN = "steps"  # what the form of a plan has, and no other


@mutable
class Figures:
    """`timeouts`: of tools and of a plan's steps, of the model, and of whole runs. `revisions`: plans after the first,
    of the runs that plan. `satisfaction`: of the rated runs, the part that was good.

    `recorded` counts all runs of the journal that are in no other run; everything else counts the last runs, whose facts were
    read.
    """

    recorded: list[Tally] = field(factory=list)
    runs: int = 0
    by_status: Counter[str] = field(factory=Counter)
    model_calls: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    timeouts: int = 0
    questions: int = 0
    planned: int = 0
    revisions: int = 0
    good: int = 0
    bad: int = 0
    usage: Usage = NOTHING
    seconds: float = 0.0

    @property
    def completion_rate(self) -> float | None:
        return self.by_status["completed"] / self.runs if self.runs else None

    @property
    def cost(self) -> float | None:
        """US dollars; None if the price of a model is unknown."""
        return self.usage.cost

    @property
    def error_rate(self) -> float | None:
        return self.tool_errors / self.tool_calls if self.tool_calls else None

    @property
    def satisfaction(self) -> float | None:
        return self.good / (self.good + self.bad) if self.good + self.bad else None

    def as_json(self) -> dict[str, Any]:
        plain = (
            "runs",
            "model_calls",
            "tool_calls",
            "tool_errors",
            "timeouts",
            "questions",
            "planned",
            "revisions",
            "good",
            "bad",
        )
        rates = ("completion_rate", "error_rate", "satisfaction", "seconds")
        told = {name: getattr(self, name) for name in (*plain, *rates)}
        told |= {"by_status": dict(self.by_status), "tokens": self.usage.total, "cost": self.usage.cost}
        return {**told, "recorded": sum_tallies(self.recorded)}


def sum_tallies(tallies: Iterable[Tally]) -> dict[str, Any]:
    """Return the sums of counted runs. The cost is that of the runs whose cost is known; None if no cost is."""
    listed, by_status = list(tallies), Counter[str]()
    for one in listed:
        by_status[one.status] += one.runs
    runs, unpriced = by_status.total(), sum([one.unpriced for one in listed])
    cost = None if runs and runs == unpriced else sum([one.cost for one in listed])
    tokens = sum([one.tokens for one in listed])
    return {"runs": runs, "by_status": dict(by_status), "tokens": tokens, "cost": cost, "unpriced": unpriced}


async def figures(journal: Journal, *, agent: str = "", limit: int = 1000) -> Figures:
    """Count all runs, of one agent if it is named, and read the last `limit` for everything that only their facts say.

    What runs inside others do is counted, but they are no runs of their own, unless their agent is named. What they cost is
    in the result of the call that made them; if that call has none, it is added.
    """
    made = Figures(await journal.count(agent=agent))
    finished, inside = set[tuple[str, str]](), list[tuple[Any, Usage]]()  # calls; and what the runs inside calls cost
    for card in await journal.runs(agent=agent, limit=limit):
        events = await read_run(journal, card.run_id)
        finished |= {(card.run_id, one.body.result.call_id) for one in events if isinstance(one.body, ToolFinished)}
        opened = events[0].body
        if isinstance(opened, Opened) and opened.parent and not agent:
            inside.append((tuple(opened.parent), _count(made, events, inner=True)))
        else:
            made.runs += 1
            made.by_status[card.status] += 1
            made.usage += _count(made, events, inner=False)
    made.usage = sum([usage for call, usage in inside if call not in finished], made.usage)
    return made


def _count(made: Figures, events: list[Event], *, inner: bool) -> Usage:
    """Count what a run did, and return what it cost."""
    plans, rating, ended, usage = 0, "", events[0].time, NOTHING
    for event in events:
        match event.body:
            case ModelReplied(reply, sent):
                made.model_calls += 1
                usage += reply.usage
                plans += _PLAN in ((sent.schema or {}).get("properties") or {})
            case ToolFinished(result):
                usage += result.usage
                plans += result.name == PLANNER
                if result.name in (PLANNER, MONITOR):
                    continue
                made.tool_calls += 1
                made.tool_errors += result.is_error
                made.timeouts += (result.error or "").startswith("timed out")
            case Compacted(usage=spent):
                usage += spent
            case Asked():
                made.questions += 1
            case Stopped(stop):
                made.timeouts += stop.kind == "deadline" or stop.error == "ModelTimeout"
                ended = event.time
            case Custom(name, data) if name == RATING and isinstance(data, dict):
                rating = str(data.get("rating", ""))  # the last one counts
    if not inner:
        made.seconds += max(0.0, ended - events[0].time)
        made.planned += plans > 0
        made.revisions += max(0, plans - 1)
    made.good += rating == "good"
    made.bad += rating == "bad"
    return usage


async def rate(
    journal: Journal, run_id: str, rating: Literal["good", "bad"], note: str = "", recipe: Recipe | None = None
) -> None:
    """Say whether a run was of use, when it is over. It may be said again: the last word counts.

    `recipe`: the agent of the run, whose policies decide how the note is recorded. A note that they block is left out.
    """
    if rating not in ("good", "bad"):
        raise ConfigError.of("rating.unknown", "a rating must be 'good' or 'bad', not {rating!r}", rating=rating)
    if note and recipe is not None:
        written = await admit(user(note), recipe, Origin())
        note = "" if is_withheld(written) else written.text
    await add_fact(journal, run_id, Custom(RATING, {"rating": rating, **({"note": note} if note else {})}))
