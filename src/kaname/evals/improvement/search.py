"""`improve(…)`: let GEPA propose better texts for an agent on one half of the cases, and decide on the other half.

Every attempt and every proposal is a run in the journal, and the search is deterministic. So the same call after a crash
repeats nothing: it takes what the journal has and continues where it was.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from math import inf
from typing import Any, cast

from ...agent.agent import Agent
from ...core.codec import digest
from ...core.errors import AgentError, ConfigError
from ...core.install import install_command
from ...core.record import record, replace
from ...core.runs import IMPROVEMENT_PREFIX
from ...kernel.ports import Journal, Model
from ...models.registry import resolve
from ...run.input import check_argument
from ...run.many.map import MapInput
from ..checks.outcome import CaseOutcome
from ..evaluation import Evaluation
from ..records import SEARCH, list_reports
from ..results.comparison import Comparison, compare_all
from ..results.report import CaseAttempt, EvalReport
from ..results.statistics import least_cases
from ..subject import Subject, as_agent
from .texts import EXAMPLES, INSTRUCTIONS, PARTS, TOOL, read_texts, with_texts

IMPROVEMENT = "improvement"  # the name of the agent that proposes texts
_BATCH = 3  # cases that a proposal is made from, and tried on first
_SHOWN = 1500  # characters of a conversation that the proposing model reads
_HOW = """An assistant works with this text:
```
<curr_param>
```
These are tasks, what the assistant did, and what was wrong with it:
```
<side_info>
```
The text is {what}. Write a better one: short, and true of any task of this kind.
Write the new text within ``` blocks, and nothing else."""
_INSTRUCTIONS_HOW = _HOW.format(
    what="the instructions of the assistant. Keep what works, and add the rules that the feedback shows"
)
_TOOL_HOW = _HOW.format(what="the description of a tool, by which the assistant decides when and how to call it")
_EXAMPLES_HOW = _HOW.format(
    what="a list of one to three worked examples for the assistant, each with a task and the right answer"
)


@record
class Improvement:
    """The result of a search.

    `agent`: as it is. `before`, `after`: its texts by name, and the best ones found; equal if none are better. `searched`: the
    pass rates of both on the search cases. `comparison`: both on the held-out cases; None if they are equal. `attempts`,
    `proposals`, `cost`: of the whole search; the cost in US dollars, None if a price is unknown.
    """

    agent: Agent[Any]
    before: Mapping[str, str]
    after: Mapping[str, str]
    searched: tuple[float, float]
    comparison: Comparison | None
    attempts: int
    proposals: int
    cost: float | None

    @property
    def helps(self) -> bool:
        """True if the new texts are better on cases that the search has not seen, and that is no chance (p ≤ 0.05)."""
        return self.comparison is not None and self.comparison.verdict == "real" and self.comparison.difference > 0

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in ("helps", "before", "after", "searched", "attempts", "proposals", "cost")}
        return {**data, "comparison": None if self.comparison is None else self.comparison.to_json()}


Progress = Callable[[int, int, int, float], Any]
"""Called with the attempts so far, the limit, the number of texts tried, and the best pass rate on the search cases."""


async def improve(
    agent: Any,
    evaluation: Evaluation,
    *,
    model: Model | str | None = None,
    parts: Collection[str] = PARTS,
    calls: int = 0,
    cost: float | None = None,
    journal: Journal | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Improvement:
    """Search for better texts of an agent, and measure the best ones on cases that the search has not seen.

    Args:
        agent: The agent, or a function that takes a folder and returns the agent.
        evaluation: The cases. Half of them are used for the search, and half are held out for the decision.
        model: The model that proposes texts (default: that of the agent).
        parts: What can change: "instructions", "tools" (their descriptions), "examples" (default: all of them).
        calls: The most attempts in all, with those for the decision (default: ten for each case).
        cost: The most US dollars in all, with those for the decision. One attempt is made first, and no more of them are
            begun than the limit pays for at the price of the most expensive one so far.
        journal: The journal (default: that of the agent).
        progress: A function that is called after each batch of attempts: see `Progress`.
        options: Those of `Evaluation.run`, such as `at_once=2`.

    Raises:
        ConfigError: If gepa is not installed, there are too few cases, or the limits allow no search.
    """
    if hasattr(agent, "as_input"):
        raise ConfigError.of("improve.workflow", "a workflow has no instructions: improve the agents that it uses")
    fits = cost is None or (isinstance(cost, int | float) and 0 <= cost < inf)
    check_argument(fits, "improve(cost=…)", "a number of US dollars from 0 up", cost)
    evaluation = evaluation.only([case.name for case in evaluation.cases])
    evaluation.repeat = options.pop("repeat", 0) or evaluation.repeat
    evaluation.people = tuple(evaluation.everyone)  # a text that is made from one case is tried on others
    seen, unseen = split(evaluation)
    least = 2 * (len(evaluation.cases) + _BATCH) * evaluation.repeat
    limit = calls or 10 * len(evaluation.cases) * evaluation.repeat
    if limit < least:
        raise ConfigError.of(
            "improve.calls", "{calls} attempts are too few: this evaluation needs at least {least}", calls=limit, least=least
        )
    subject = Subject.of(agent, journal, evaluation.files)
    try:
        proposing = resolve(model) if model else subject.agent.recipe.model
        search = _Search(agent, subject, seen, proposing, {**options, "progress": progress})
        search.calls, search.dollars, search.reserved, search.least = limit, cost, 2 * len(unseen.cases), least
        before = read_texts(subject.agent, parts)
        after, rates = await search.run(before)
        comparison = None if after == before else await _decide(search, unseen, before, after)
        return Improvement(
            subject.agent, before, after, rates, comparison, len(search.attempts), search.asked.total(), search.cost
        )
    finally:
        await subject.close()


def split(evaluation: Evaluation) -> tuple[Evaluation, Evaluation]:
    """Return the evaluation in two halves, the same ones each time: for the search, and for the decision.

    Raises `ConfigError` if there are too few cases to show a difference on the second half.
    """
    names = sorted([case.name for case in evaluation.cases], key=digest)
    if len(names) < 2 * least_cases():
        raise ConfigError.of(
            "improve.too_few",
            "an improvement needs at least {least} cases; the evaluation {name!r} has {cases}",
            least=2 * least_cases(),
            name=evaluation.name,
            cases=len(names),
        )
    halves = evaluation.only(names[: len(names) // 2]), evaluation.only(names[len(names) // 2 :])
    for half, which in zip(halves, (SEARCH, ".held-out"), strict=True):
        half.name = evaluation.name + which  # reports of the whole evaluation stay as they are
    return halves


async def _decide(search: _Search, unseen: Evaluation, before: Mapping[str, str], after: Mapping[str, str]) -> Comparison:
    """Compare the texts on the held-out cases. Earlier candidates were compared on them too: p is adjusted for all."""
    baseline = await search.measure(unseen, before, "current texts")
    label = f"instead of {baseline.job}"
    report = await search.measure(unseen, after, label)
    known = await list_reports(search.journal, name=unseen.name, limit=1000)
    others = [one for one in known if one.label == label and one.job not in (report.job, baseline.job)]
    made = [replace(one, completed=()) for one in (baseline, report, *others)]  # measured in parts, and compared only now
    return compare_all(made[0], made[1:])[0]


class _CutOff(AgentError):
    """A proposal was cut off at the model's token limit. GEPA continues with its next question."""


class _Search:
    """A search by GEPA: its adapter, its model and its limits in one. GEPA has a thread, everything else the event loop."""

    propose_new_texts = None  # GEPA does it, with its own prompt or with ours
    calls, dollars = 0, cast(float | None, None)  # the limits
    reserved, least = 0, 0  # attempts: those that are kept for the decision, and those that any search needs

    def __init__(
        self, agent: Any, subject: Subject, cases: Evaluation, model: Model | None, options: Mapping[str, Any]
    ) -> None:
        self._agent, self._subject, self._cases, self._options = agent, subject, cases, dict(options)
        self._progress, self.journal = self._options.pop("progress"), subject.journal
        self._proposer: Agent[str] = Agent(model, name=IMPROVEMENT, journal=self.journal)
        self._model_name = str(getattr(model, "name", ""))
        self._job = f"{IMPROVEMENT_PREFIX}{digest([cases.name, self._model_name])[:12]}"
        cases.related = (self._job,)
        self._loop, self._working = asyncio.get_running_loop(), cast(Future[Any] | None, None)
        self._failure: BaseException | None = None  # GEPA continues after some errors; this search does not
        self.asked, self._spent = Counter[str](), list[float | None]()
        self._cut_off = set[str]()  # the questions whose answer was cut off: GEPA asks once more, and then goes on without
        self.attempts: dict[tuple[str, str, int], CaseAttempt] = {}
        self._tried, self._best = 0, 0.0

    @property
    def cost(self) -> float | None:
        each = [*self._spent, *[one.cost for one in self.attempts.values()], *[one.overhead for one in self.attempts.values()]]
        known = [one for one in each if one is not None]
        return sum(known) if len(known) == len(each) else None

    async def run(self, texts: Mapping[str, str]) -> tuple[dict[str, str], tuple[float, float]]:
        """Return the best texts, and the pass rates of the first and the best ones on the search cases."""
        try:
            from gepa import api
        except ImportError as problem:
            command = install_command("improve")
            raise ConfigError.of(
                "improve.no_gepa", "gepa is not installed. Install it with: {command}", command=command
            ) from problem
        how = {name: _TOOL_HOW for name in texts if name.startswith(TOOL)}
        how |= {INSTRUCTIONS: _INSTRUCTIONS_HOW, EXAMPLES: _EXAMPLES_HOW}
        optimize: Any = api.optimize
        given = {"adapter": self, "reflection_lm": self._propose, "reflection_prompt_template": how, "logger": self}
        names = [case.name for case in self._cases.cases]
        work = asyncio.to_thread(
            optimize, dict(texts), names, stop_callbacks=[self._is_over], track_best_outputs=False, **given
        )
        try:
            found = await work
        except asyncio.CancelledError as ended:
            self._failure = ended  # GEPA's thread ends with the next thing that it wants, or with what it waits for
            if self._working is not None:
                self._working.cancel()
            raise
        if self._failure is not None:
            raise self._failure
        if self._cut_off and self._cut_off == {*self.asked}:
            raise AgentError.of(
                "improve.cut_off",
                "all texts that {model} proposed were cut off: choose another proposer",
                model=self._model_name,
            )
        scores = found.val_aggregate_scores
        return dict(found.best_candidate), (scores[0], max(scores))

    async def measure(self, cases: Evaluation, texts: Mapping[str, str], label: str = "") -> EvalReport:
        """Evaluate the agent with these texts."""
        make: Any = lambda folder: with_texts(as_agent(self._agent(folder)) or self._subject.agent, texts)  # noqa: E731
        made = with_texts(self._subject.agent, texts) if self._subject.is_shared else make
        await self._measure_in_parts(cases, made, label)
        report = await cases.run(made, label=label, journal=self.journal, **self._options)
        if report.errors == len(report.attempts):
            raise AgentError.of(
                "improve.errors",
                "every attempt ended in an error, such as: {why}. The same command again continues.",
                why=report.attempts[0].error,
            )
        self._count(report)
        return report

    async def _measure_in_parts(self, cases: Evaluation, made: Any, label: str) -> None:
        """Make the attempts a few at a time, if there is a limit on money, and one first to see what it costs."""
        left = [case.name for case in cases.cases] if self.dollars is not None else []
        while left:
            part = cases.only(left[: max(1, self._options.get("at_once", 8) // cases.repeat) if self.attempts else 1])
            part.repeat = part.repeat if self.attempts else 1
            self._check_money(len(part.cases) * part.repeat)
            self._count(await part.run(made, label=label, journal=self.journal, **self._options))
            left = left[len(part.cases) :] if part.repeat == cases.repeat else left
            if len(self.attempts) == 1:
                self._plan_money()

    def _count(self, report: EvalReport) -> None:
        self.attempts |= {(report.job, one.case, one.number): one for one in report.attempts}
        if self.dollars is not None and self.cost is None:
            raise ConfigError.of("improve.no_price", "the price of a model is unknown, so the cost cannot be limited")

    def _plan_money(self) -> None:
        """Say how many attempts the money pays for, by the first one. Raises `ConfigError` if these are too few to search."""
        needed = self.least * self._dearest
        if self.dollars is not None and needed > self.dollars:
            raise ConfigError.of(
                "improve.cost",
                "an attempt costs ${each:.4f}, and a search needs at least {least} attempts: allow ${needed:.2f} or more",
                each=self._dearest,
                least=self.least,
                needed=needed + 0.005,
            )
        self.calls = min(self.calls, int((self.dollars or 0) / self._dearest)) if self._dearest else self.calls
        if self._progress is not None:
            self._progress(len(self.attempts), self.calls, self._tried, self._best)

    @property
    def _dearest(self) -> float:
        return max([(one.cost or 0) + (one.overhead or 0) for one in self.attempts.values()], default=0.0)

    def _next_cost(self, attempts: int, proposals: int = 0) -> float:
        """Return the expected maximum cost of attempts and proposals."""
        return attempts * self._dearest + proposals * max([one or 0 for one in self._spent], default=self._dearest)

    def _check_money(self, attempts: int, proposals: int = 0) -> None:
        """Raise `AgentError` if the next calls could exceed the limit."""
        if self.dollars is not None and (self.cost or 0) + self._next_cost(attempts, proposals) > self.dollars:
            raise AgentError.of(
                "improve.spent",
                "${cost:.4f} of ${limit:.2f} are spent, and the next calls could exceed the limit, so "
                "nothing is decided. The same command with a higher limit continues",
                cost=self.cost,
                limit=self.dollars,
            )

    # What GEPA calls, in its thread

    def evaluate(self, batch: Sequence[str], candidate: Mapping[str, str], capture_traces: bool = False) -> Any:
        from gepa.core.adapter import EvaluationBatch

        report = self._wait(self.measure(self._cases.only(batch), candidate))
        by_name = {case.name: case for case in report.cases}
        scores = [by_name[name].rate for name in batch]
        if len(batch) == len(self._cases.cases):
            self._tried, self._best = self._tried + 1, max(self._best, sum(scores) / len(scores))
        if self._progress is not None:
            self._loop.call_soon_threadsafe(self._progress, len(self.attempts), self.calls, self._tried, self._best)
        seen = self._wait(self._feedback([by_name[name].attempts[-1] for name in batch])) if capture_traces else None
        return EvaluationBatch([by_name[name].attempts[-1].output for name in batch], scores, seen)

    def make_reflective_dataset(self, candidate: Mapping[str, str], made: Any, names: Sequence[str]) -> dict[str, Any]:
        return dict.fromkeys(names, made.trajectories)

    def log(self, message: str) -> None:
        """Take what GEPA has to say. The journal has it all."""

    def _is_over(self, state: Any) -> bool:
        """Return True if one more round could exceed a limit, or nothing is left to improve."""
        repeat = self._cases.repeat
        ahead = (2 * _BATCH + len(self._cases.cases) + self.reserved) * repeat
        if self._failure is not None or self._best >= 1.0 or state.total_num_evals * repeat + ahead > self.calls:
            return True
        if self.dollars is None:
            return False
        return (self.cost or 0) + self._next_cost(ahead, 1) > self.dollars

    def _propose(self, prompt: Any) -> str:
        if str(prompt) not in self._cut_off:
            return str(self._wait(self._ask(str(prompt))))
        raise _CutOff

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._failure is not None:
            work.close()
            raise self._failure
        self._working = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return self._working.result()
        except _CutOff:
            raise
        except AgentError as problem:
            self._failure = problem
            raise

    async def _ask(self, prompt: str) -> str:
        """Ask for a text. The same question again, in one search, is another run."""
        self._check_money(0, 1)
        self.asked[prompt] += 1
        (result,) = await self._proposer.map([MapInput(prompt, str(self.asked[prompt]))], job=self._job)
        self._spent.append(result.usage.cost)
        if result.stop.kind == "incomplete":
            self._cut_off.add(prompt)
            raise _CutOff
        if not result.completed:
            raise AgentError.of("improve.no_proposal", "the model proposed no text: {why}", why=result.stop.summary)
        return result.text

    async def _feedback(self, attempts: Sequence[CaseAttempt]) -> list[dict[str, str]]:
        parts = list[dict[str, str]]()
        by_name = {case.name: case for case in self._cases.cases}
        for one in attempts:
            results = [await self._subject.agent.result(run_id) for run_id in one.run_ids]
            wrong = "right" if one.passed else f"wrong: {one.why}"
            reference = by_name[one.case].reference
            parts.append(
                {
                    "What happened": CaseOutcome(results).transcript[-_SHOWN:] if results else by_name[one.case].title,
                    "Feedback": f"{wrong}. A good answer: {reference}" if reference else wrong,
                }
            )
        return parts
