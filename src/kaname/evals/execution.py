"""Make the attempts of an evaluation that the journal does not have yet, and check what came of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..agent.agent import Agent
from ..core.codec import digest
from ..core.errors import AgentError
from ..core.messages import NOTHING, Usage
from ..core.record import record
from ..core.runs import UNDER_WAY
from ..kernel.identity import describe_model
from ..run.input import as_turn
from ..run.many.map import MapInput, run_id_of
from ..run.result import Result
from .case import Case
from .checks.kinds import RUBRIC, find_problem
from .checks.outcome import CaseOutcome
from .checks.rubric import judge_rubric
from .records import Recording
from .results.report import CaseAttempt, Finding
from .simulated import Talk
from .subject import Subject

if TYPE_CHECKING:
    from ..kernel.ports import Model
    from ..run.many.batches import BatchPrices

Progress = Callable[[CaseAttempt, int, int], Any]
_COMPLETED = ["completed", "degraded"]
_OUTPUT = 2_000  # characters of an answer that the report keeps
_ODD = re.compile(r"[^A-Za-z0-9_-]+")  # what is not in ids
_QUESTIONS = 20  # questions of one run that are answered
_RETRIED = (*UNDER_WAY, "failed", "released")  # statuses of runs that are continued; other runs have ended


@record
class EvaluationOptions:
    """How an evaluation is run: see `Evaluation.run`."""

    repeat: int = 1
    at_once: int = 8
    batch: bool | BatchPrices = False
    judge: Model | None = None
    deps: Any = None
    progress: Progress | None = None


class _Todo(NamedTuple):
    case: Case
    number: int
    key: str  # of its runs in the job


class Execution:
    """Make the attempts that are missing.

    Args:
        cases: The cases.
        subject: The agent under evaluation.
        recording: The verdicts so far.
        options: See `Evaluation.run`.
    """

    def __init__(self, cases: Iterable[Case], subject: Subject, recording: Recording, options: EvaluationOptions) -> None:
        self._subject, self._recording, self._options = subject, recording, options
        self._journal, self._job = subject.journal, recording.job
        judge = options.judge
        every = [_Todo(case, number, _key(case, number, judge)) for case in cases for number in range(options.repeat)]
        self._digests = {name: case.digest(judge) for name, case in {todo.case.name: todo.case for todo in every}.items()}
        self._todo = [todo for todo in every if not self._has_verdict(todo)]
        self._total, self._done = len(every), len(every) - len(self._todo)
        self._room = asyncio.Semaphore(options.at_once)
        self._ended: set[str] = set()

    def _has_verdict(self, todo: _Todo) -> bool:
        found = self._recording.attempts.get((todo.case.name, todo.number))
        return found is not None and not found.error and found.digest == self._digests[todo.case.name]

    async def run(self) -> None:
        await self._find_ended()
        plain = {todo.key: todo for todo in self._todo if self._subject.is_shared and todo.case.user is None}
        over = {key: todo for key, todo in plain.items() if self._run_id(todo) in self._ended}
        alone = [*over.values(), *[todo for todo in self._todo if todo.key not in plain]]
        try:
            async with asyncio.TaskGroup() as group:
                for todo in alone:
                    await self._room.acquire()
                    group.create_task(self._make(todo)).add_done_callback(lambda _: self._room.release())
                await self._map({key: todo for key, todo in plain.items() if key not in over}, group)
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _map(self, todos: dict[str, _Todo], group: asyncio.TaskGroup) -> None:
        """Make the attempts that are a single run of the same agent."""
        agent, options = self._subject.agent, self._options
        inputs = (MapInput(self._subject.input_of(todo.case), todo.key, "", self._user(todo)) for todo in todos.values())
        mapped = agent.map(inputs, job=self._job, at_once=options.at_once, batch=options.batch, deps=options.deps)
        try:
            async for key, result in mapped:
                todo = todos[str(key)]
                if todo.case.answer or RUBRIC in todo.case.expect:  # it takes a while: others need not wait for it
                    await self._room.acquire()
                    work = self._answer_and_check(agent, todo, result)
                    group.create_task(work).add_done_callback(lambda _: self._room.release())
                else:
                    await self._check(todo, [result], None)
        finally:
            await mapped.aclose()

    async def _answer_and_check(self, agent: Agent[Any], todo: _Todo, result: Result[Any]) -> None:
        await self._check(todo, [await self._answer(agent, todo.case, result)], None)

    async def _find_ended(self) -> None:
        """Find runs that ended without a verdict. They are checked as they are: resuming one would give it new limits."""
        before = 0
        while cards := await self._journal.runs(starting=f"{self._job}-", before=before, limit=1000):
            before = cards[-1].place
            self._ended |= {card.run_id for card in cards if card.status not in _RETRIED}

    async def _make(self, todo: _Todo) -> None:
        """Make an attempt with runs of its own: in a folder, as a conversation, or as the journal has it."""
        case, options = todo.case, self._options
        folder = await asyncio.to_thread(self._subject.folder, self._job, todo.key)
        agent = self._subject.agent_for(folder)
        if case.user is None:
            given = MapInput(self._subject.input_of(case), todo.key, "", self._user(todo))
            await self._check(todo, [await self._run(case, agent, given)], folder)
            return
        person = case.user.agent(options.judge or "", self._journal)
        talk = Talk(person, partial(self._run, case, agent), self._job, todo.key, self._user(todo))
        await talk.go(case.input, case.user.turns)
        await self._check(todo, talk.results, folder, talk.spent, talk.error)

    async def _run(self, case: Case, agent: Agent[Any], given: MapInput) -> Result[Any]:
        """Run an input and answer its questions, or return the result that the journal has."""
        run_id = run_id_of(agent.recipe.name, self._job, given.key, as_turn(given.input), given.user)
        if run_id in self._ended:
            return await agent.result(run_id)
        (result,) = await agent.map([given], job=self._job, deps=self._options.deps)
        return await self._answer(agent, case, result)

    async def _answer(self, agent: Agent[Any], case: Case, result: Result[Any]) -> Result[Any]:
        """Answer the questions of a run with the answer of the case."""
        for _ in range(_QUESTIONS if case.answer else 0):
            if result.stop.kind != "waiting":
                break
            answers = dict.fromkeys(result.questions, case.answer)
            try:
                result = await agent.resume(result.run_id, answers, deps=self._options.deps)
            except AgentError as problem:
                if not problem.run_id:
                    raise
                return await agent.result(result.run_id)
        return result

    async def _check(
        self, todo: _Todo, results: list[Result[Any]], folder: Path | None, spent: Usage = NOTHING, error: str = ""
    ) -> None:
        case, made = todo.case, CaseAttempt(todo.case.name, todo.number, self._digests[todo.case.name])
        if not results or not results[-1].state.seq:  # another process executes the run, or nothing was said
            await self._add(made, [], CaseOutcome(results), spent, error or str(results[-1].stop.summary if results else ""))
            return
        outcome = CaseOutcome(results, folder)
        expect = case.expect if "stop" in case.expect else {"stop": _COMPLETED, **case.expect}
        if outcome.stop == "failed" and "failed" not in expect["stop"]:
            error = error or str(outcome.last.stop.summary)
        findings = [] if error else await _findings(expect, outcome)
        if not error and RUBRIC in expect and all(one.passed for one in findings):
            judgement, cost, error = await self._judge(todo, outcome)
            findings.append(judgement)
            spent += cost
        await self._add(made, findings, outcome, spent, error)

    async def _judge(self, todo: _Todo, outcome: CaseOutcome) -> tuple[Finding, Usage, str]:
        """Have the model judge the answer. Return the finding, what it cost, and the reason if there is no verdict."""
        assert self._options.judge is not None
        run_id = f"{self._job}-{todo.key}"
        problem, cost, error = await judge_rubric(self._options.judge, self._journal, run_id, todo.case, outcome)
        return Finding(RUBRIC, problem), cost, error

    async def _add(self, made: CaseAttempt, findings: list[Finding], outcome: CaseOutcome, spent: Usage, error: str) -> None:
        ran = bool(outcome.results)
        attempt = CaseAttempt(
            made.case,
            made.number,
            made.digest,
            tuple([result.run_id for result in outcome.results]),
            tuple(findings),
            error,
            outcome.stop if ran else "",
            outcome.text[:_OUTPUT] if ran else "",
            outcome.steps,
            round(outcome.seconds, 3),
            outcome.usage.total,
            outcome.cost,
            spent.cost,
        )
        await self._recording.add(attempt)
        self._done += 1
        if self._options.progress is not None:
            self._options.progress(attempt, self._done, self._total)

    def _run_id(self, todo: _Todo) -> str:
        turn = as_turn(self._subject.input_of(todo.case))
        return run_id_of(self._subject.agent.recipe.name, self._job, todo.key, turn, self._user(todo))

    def _user(self, todo: _Todo) -> str:
        """Return the user of an attempt: without a name in the case, one who has no memories of other attempts."""
        return todo.case.user_id or f"{self._job}-{todo.key}"


def _key(case: Case, number: int, judge: Model | None) -> str:
    """Return the name of an attempt's runs. Cases that differ in more than their input have runs of their own."""
    more = [case.answer, case.user_id, case.user.description if case.user else None]
    if case.user is not None and not case.user.model and judge is not None:
        more.append(describe_model(judge))  # it plays the person
    plain = _ODD.sub("-", case.name)[:30].strip("-")
    name = case.name if plain == case.name else f"{plain}-{digest(case.name)[:6]}"
    return f"{name}.{number}" + (f".{digest(more)[:6]}" if any(more) else "")


async def _findings(expect: Mapping[str, Any], outcome: CaseOutcome) -> list[Finding]:
    """Return the findings of all checks but the rubric."""
    return [Finding(check, await find_problem(check, value, outcome)) for check, value in expect.items() if check != RUBRIC]
