"""Promises that every schedule is held against, whatever happened in it.

They are written from docs/guarantees.md. A promise is a function that yields what is broken; `PROMISES` says of each what it
means. The reference monitor of `combine` judges one process without time; this judges many processes, their deaths and clocks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from ...core.codec import encode_state
from ...core.errors import AgentError
from ...core.events import Answered, Asked, Event, Interjected, ModelReplied, Opened, Stopped, ToolFinished, ToolStarted
from ...core.runs import UNDER_WAY, RunInfo
from ...core.state import State, evolve
from ...stores.sqlite import reading
from .outside import DONE, Outside
from .store import PATH, Store
from .world import World

PROMISES = {
    "readable": "every run can be read back",
    "acknowledged": "a fact that the journal has acknowledged is in it",
    "folds-again": "the facts fold to the state that the process had",
    "ends": "every run ends, or waits for a person",
    "never-ends": "every program that resumes its runs comes to its end",
    "fenced": "a process that has lost a run writes nothing more to it",
    "executed-by-two": "no run is executed by two processes at once",
    "once": "an irreversible call is made once, and again only if a person says so",
    "done": "a call that is recorded as successful was made",
    "one-result": "every call of a run that has ended has one result",
    "asked-first": "a call that needs an approval is made after a yes, and never after a no",
    "one-answer": "a question has one answer",
    "tick-once": "every time of a schedule is executed once",
    "message-once": "every message is taken in once, and none is lost",
    "money": "what an account says was spent is what was paid",
    "limit": "the model calls of a budget never cost more than it allows",
    "reserved": "nothing stays reserved when all runs have ended",
    "queue-empty": "a queued run leaves the queue when it has ended or waits",
    "turns": "the runs of a session take turns, and each continues the one before it",
    "child-once": "work that was delegated is done once",
    "stopped": "a run that was stopped starts nothing more",
    "typed-error": "a program that does everything right gets no error",
    "raw-exception": "an error of kaname is one of its own types",
}


EFFECTS = {"pay": "irreversible", "order": "irreversible", "book": "compensable", "put": "idempotent", "ship": "irreversible"}
_MOST = 0.02  # dollars that a call can cost at most, and for which one counts whose cost is unknown


class BrokenPromise(NamedTuple):
    """A broken promise, and what happened."""

    promise: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise} ({PROMISES.get(self.promise, 'a promise of its ground')}): {self.what}"


class Evidence:
    """What is in the journal at the end: all runs with their facts and states.

    Attributes:
        results: What programs were told: the run, the number of its last fact, and its state.
        effects: The effects of tools, by their names.
        every: Seconds between two ticks of the schedule; 0 without one.
        limit: US dollars that all runs can spend together; 0 without a budget.
        approved: Names of tools that need an approval.
    """

    def __init__(self, world: World, store: Store, outside: Outside) -> None:
        self.world, self.store, self.outside = world, store, outside
        self.results: list[tuple[str, int, str]] = []
        self.limit = 0.0
        self.every = 0
        self.effects: Mapping[str, str] = EFFECTS
        self.approved: frozenset[str] = frozenset()

    @cached_property
    def cards(self) -> dict[str, RunInfo]:
        rows = self.store.connection.execute(f"{reading.SELECT_CARD} ORDER BY place").fetchall()
        cards = [reading.card_of(row, PATH) for row in rows]
        return {card.run_id: card for card in cards}

    @cached_property
    def facts(self) -> dict[str, list[Event]]:
        """Return the facts of each run by its id."""
        read = self.store.connection
        return {run: reading.facts(read, run, 0, card.seq, PATH) for run, card in self.cards.items()}

    @cached_property
    def states(self) -> dict[str, State]:
        return {run: self.fold(run) for run in self.cards}

    def fold(self, run: str, upto: int | None = None) -> State:
        opened = self.facts[run][0].body
        continues = isinstance(opened, Opened) and opened.base is not None
        whole = reading.lineage(self.store.connection, run, upto, 0, PATH).events if continues else self.facts[run]
        state = State()
        for event in whole:
            if upto is None or event.run_id != run or event.seq <= upto:
                evolve(state, event)
        return state

    def line(self, run: str) -> list[str]:
        """Return a run and those that it continues."""
        found = [run]
        while (opened := self.facts[found[-1]][0].body).base is not None:  # type: ignore[union-attr]
            found.append(opened.base[0])  # type: ignore[union-attr]
        return found

    def bodies(self, kind: type[Any]) -> Iterator[tuple[str, Event, Any]]:
        for run, facts in self.facts.items():
            for fact in facts:
                if type(fact.body) is kind:
                    yield run, fact, fact.body


def judge(evidence: Evidence) -> list[BrokenPromise]:
    """Return the promises that a schedule has broken."""
    found = [BrokenPromise(*one) for one in evidence.world.problems]
    try:
        evidence.states  # noqa: B018 - reads everything
    except (AgentError, KeyError, ValueError, AttributeError, TypeError) as problem:
        return [*found, BrokenPromise("readable", f"{type(problem).__name__}: {str(problem)[:300]}")]
    for check in CHECKS:
        found += [BrokenPromise(*one) for one in check(evidence)]
    return list(dict.fromkeys(found))


Found = Iterator[tuple[str, str]]


def facts_are_kept(evidence: Evidence) -> Found:
    for run, told in evidence.store.acknowledged.items():
        known = {fact.seq: fact for fact in evidence.facts.get(run, ())}
        for seq, event in told.items():
            if seq not in known:
                yield "acknowledged", f"fact {seq} of {run} ({type(event.body).__name__}) is lost"
            elif known[seq] != event:
                yield "acknowledged", f"fact {seq} of {run} is {known[seq].body!r:.120}, and was {event.body!r:.120}"


def states_fold_again(evidence: Evidence) -> Found:
    for run, seq, told in evidence.results:
        if seq and run in evidence.cards:
            folded = evidence.states[run] if seq == evidence.states[run].seq else evidence.fold(run, seq)
            if encode_state(folded) != told:
                yield "folds-again", f"{run} up to fact {seq}"
    for run, card in evidence.cards.items():
        state = evidence.states[run]
        status = "running" if not state.finished else "waiting" if state.stop is None else state.stop.kind
        if card.status != status or card.seq != state.seq:
            yield "folds-again", f"the card of {run} says {card.status} at {card.seq}, and its facts {status} at {state.seq}"


def runs_end(evidence: Evidence) -> Found:
    for run, card in evidence.cards.items():
        if card.status in UNDER_WAY and not (card.status == "waiting" and card.questions):
            yield "ends", f"{run} is {card.status} at the end, at fact {card.seq}"


def effects_happen_once(evidence: Evidence) -> Found:
    again: Counter[str] = Counter()
    keys: dict[tuple[str, str], str] = {}
    runs: dict[str, set[str]] = defaultdict(set)  # a fork makes a call that had been started once more, with the same key
    for run, _, started in evidence.bodies(ToolStarted):
        keys[run, started.call.id] = started.key
        runs[started.key].add(run)
    for run, _, answered in evidence.bodies(Answered):
        if answered.key.startswith("in-doubt:") and answered.answer == "retry":
            call = answered.key.removeprefix("in-doubt:").rpartition(":")[0]
            again[keys.get((run, call), "")] += 1
    counts = Counter((deed.tool, deed.key) for deed in evidence.outside.deeds if not deed.undone)
    for (tool, key), number in counts.items():
        if number > max(1, len(runs[key])) + again[key] and evidence.effects.get(tool) in ("irreversible", "compensable"):
            yield "once", f"{tool} for {key} was done {number} times, {again[key]} times with a person's consent"
    done = {(deed.tool, deed.key) for deed in evidence.outside.deeds if not deed.undone}
    for run, _, finished in evidence.bodies(ToolFinished):
        result = finished.result
        acts = evidence.effects.get(result.name, "pure") != "pure"
        if acts and not result.is_error and str(result.output).endswith(DONE):
            calls = [keys.get((one, result.call_id), f"{one}:{result.call_id}") for one in evidence.line(run)]
            if not any((result.name, key) in done for key in calls):
                yield "done", f"{result.name} for {calls[0]} is recorded as successful, and was not done"


def children_work_once(evidence: Evidence) -> Found:
    """No two calls of a script are equal: what a child does twice, it was opened twice for."""
    again = Counter(run.rpartition("/")[0] for run, _, one in evidence.bodies(Answered) if one.answer == "retry")
    inside = [
        one
        for one in evidence.outside.deeds
        if "/" in one.run and not one.undone and evidence.effects.get(one.tool) != "idempotent"
    ]
    counts = Counter((one.run.rpartition("/")[0], one.tool, str(one.args)) for one in inside)
    for (call, tool, args), number in counts.items():
        if number > 1 + again[call]:
            yield "child-once", f"{tool}({args}) was done {number} times for {call}"


def calls_have_one_result(evidence: Evidence) -> Found:
    for run, facts in evidence.facts.items():
        results = Counter(fact.body.result.call_id for fact in facts if type(fact.body) is ToolFinished)
        for call, number in results.items():
            if number > 1:
                yield "one-result", f"call {call} of {run} has {number} results"
        state = evidence.states[run]
        if state.stop is not None and state.stop.kind == "completed" and state.pending:
            yield "one-result", f"{run} is completed, and {len(state.pending)} calls have no result"


def approvals_come_first(evidence: Evidence) -> Found:
    answers: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for run, _, answered in evidence.bodies(Answered):
        answers[run, answered.key].append(answered.answer)
    for (run, key), given in answers.items():
        if len(given) > 1:
            yield "one-answer", f"{key} of {run} was answered {given}"
    asked = {(run, one.key) for run, _, one in evidence.bodies(Asked)}
    for run, key in answers:
        if (run, key) not in asked:
            yield "one-answer", f"{key} of {run} was answered, and never asked"
    for deed in evidence.outside.deeds:
        if deed.tool not in evidence.approved:
            continue
        run, _, call = deed.key.rpartition(":")
        given = answers.get((run, f"approve:{call}"), [])
        if not any(_is_yes(one) for one in given):
            yield "asked-first", f"{deed.tool} for {deed.key} was done, and the answer is {given or 'missing'}"
        sent = [one for one in evidence.outside.answers if (one.run, one.key) == (run, f"approve:{call}")]
        by_expiry = any(one.then is True for _, _, one in evidence.bodies(Asked))
        if not by_expiry and not any(one.number < deed.number for one in sent):
            yield "asked-first", f"{deed.tool} for {deed.key} was done before anybody answered"


def _is_yes(answer: Any) -> bool:
    return answer is True or answer == "yes" or (isinstance(answer, dict) and answer.get("approved") is True)


def money_is_conserved(evidence: Evidence) -> Found:
    spent = dict(evidence.store.connection.execute("SELECT name, spent FROM accounts").fetchall())
    if not spent and not evidence.limit:
        return
    lost = sum(bill.cost for bill in evidence.outside.bills if not bill.heard[0])
    paid = sum(bill.cost for bill in evidence.outside.bills)
    unknown = _MOST * (evidence.outside.tries - sum(bill.heard[0] for bill in evidence.outside.bills))
    recorded = sum(fact.reply.usage.cost or 0.0 for _, _, fact in evidence.bodies(ModelReplied))
    for name, amount in spent.items():
        if amount > paid + unknown + 1e-9:
            yield "money", f"account {name} says {amount:.4f}, and {paid:.4f} was paid"
        if amount < recorded - 1e-9 and not evidence.world.kills:
            yield "money", f"account {name} says {amount:.4f}, and the runs have recorded {recorded:.4f}"
    if evidence.limit and paid - lost > evidence.limit + _unsettled(evidence) + 1e-9:
        yield "limit", f"{paid:.4f} was paid of {evidence.limit:.4f}, of which {lost:.4f} are known to be lost"
    alive = [owner for owner in evidence.store.owners if evidence.store.is_alive(owner)]
    for name, owner, amount in evidence.store.connection.execute("SELECT name, owner, amount FROM reservations").fetchall():
        if owner in alive and not evidence.store.beats:
            yield "reserved", f"{amount} of account {name} is still reserved by {owner}"


def _unsettled(evidence: Evidence) -> float:
    """Return the highest cost that killed processes may have paid without an entry in an account: one call for each run."""
    cost = max([bill.cost for bill in evidence.outside.bills], default=0.0)
    return cost * evidence.world.kills * max(1, len(evidence.cards))


def queue_is_empty(evidence: Evidence) -> Found:
    for run, state in evidence.store.connection.execute("SELECT run, state FROM queue").fetchall():
        yield (
            "queue-empty",
            f"{run} is {state} in the queue, and {evidence.cards[run].status if run in evidence.cards else 'unknown'}",
        )


def sessions_take_turns(evidence: Evidence) -> Found:
    continued: dict[str, str] = {}
    moves = evidence.store.connection.execute("SELECT run, min(place), max(place) FROM moves GROUP BY run").fetchall()
    first = {run: place for run, place, _ in moves}
    for run, _, opened in evidence.bodies(Opened):
        if not opened.session or opened.base is None:
            continue
        base = opened.base[0]
        if base in continued:
            yield "turns", f"{run} and {continued[base]} both continue {base}"
        continued[base] = run
        if first[run] < first[base]:
            yield "turns", f"{run} was opened before {base}, which it continues"


def messages_arrive_once(evidence: Evidence) -> Found:
    counts: Counter[str] = Counter()
    for _, _, said in evidence.bodies(Interjected):
        counts[said.message.text] += 1
    waiting = "".join([body for (body,) in evidence.store.connection.execute("SELECT body FROM inbox").fetchall()])
    for text, (_, is_acknowledged) in evidence.outside.said.items():
        if counts[text] > 1:
            yield "message-once", f"{text!r} was taken in {counts[text]} times"
        if is_acknowledged and not counts[text]:
            yield "message-once", f"{text!r} was acknowledged, and {'still waits' if text in waiting else 'is lost'}"


def ticks_are_executed_once(evidence: Evidence) -> Found:
    """While all clocks are right, no time of the schedule is left out between the first and the last one."""
    if evidence.every and not any(process.offset for process in evidence.world.processes):
        read = [datetime.strptime(run.rpartition("@")[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) for run in evidence.cards]
        ticks = sorted([int(one.timestamp()) for one in read])
        for one, other in pairwise(ticks):
            if other - one != evidence.every:
                yield (
                    "tick-once",
                    f"after the tick at {one} comes the one at {other}, and they are due every {evidence.every} s",
                )


def stopped_runs_rest(evidence: Evidence) -> Found:
    for run, facts in evidence.facts.items():
        ended = None
        for fact in facts:
            if type(fact.body) is Stopped:
                ended = fact.seq
            elif ended is not None and type(fact.body) is ToolStarted and evidence.states[run].attempt == 1:
                yield "stopped", f"{run} stopped at fact {ended}, and started {fact.body.call.name} at {fact.seq}"


CHECKS = [
    facts_are_kept,
    states_fold_again,
    runs_end,
    effects_happen_once,
    children_work_once,
    calls_have_one_result,
    approvals_come_first,
    money_is_conserved,
    queue_is_empty,
    sessions_take_turns,
    messages_arrive_once,
    ticks_are_executed_once,
    stopped_runs_rest,
]
