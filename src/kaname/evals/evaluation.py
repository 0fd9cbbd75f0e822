"""`Evaluation`: cases to measure an agent on. Every attempt is a run in the journal, made once and never repeated."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.codec import digest
from ..core.errors import ConfigError, JournalError
from ..models.registry import resolve
from .case import Case, prepare_check
from .checks.rubric import no_judge
from .execution import EvaluationOptions, Execution, Progress
from .records import PREFIX, Recording, read_report
from .results.report import EvalReport
from .subject import Subject

if TYPE_CHECKING:
    from ..kernel.ports import Journal, Model
    from ..run.many.batches import BatchPrices

_PLAIN = re.compile(r"[\w.-]{1,40}", re.ASCII)


class Evaluation:
    """Cases to measure an agent on.

    Args:
        name: Its name, in reports and ids.
        cases: The cases: `Case` objects, or texts.
        repeat: How often each case is tried (default: 1).
        judge: The model that judges rubrics and plays simulated users, unless they name another.
        checks: Checks that all cases share, by name: `{"steps": 8, "no_calls": ["refund"]}`.
        files: A folder that is copied into the workspace of each attempt, for agents that are made for a folder.
        agent: Where the agent is found: `FILE.py:NAME`, or a name in `kaname.yaml`. Only `kaname eval` reads it.

    Raises:
        ConfigError: If there are no cases, or a check cannot be used.
    """

    def __init__(
        self,
        name: str,
        cases: Iterable[Case | str],
        *,
        repeat: int = 1,
        judge: Model | str | None = None,
        checks: Mapping[str, Any] | None = None,
        files: str | Path | None = None,
        agent: str = "",
    ) -> None:
        shared = {check: prepare_check(check, value) for check, value in (checks or {}).items()}
        made = [case if isinstance(case, Case) else Case(case) for case in cases]
        if not made:
            raise ConfigError.of("eval.no_cases", "the evaluation {name!r} has no cases", name=name)
        if repeat < 1:
            raise ConfigError.of("eval.repeat", "repeat must be a number from 1 up, not {repeat!r}", repeat=repeat)
        self.name, self.repeat, self.judge, self.agent = name, repeat, judge, agent
        self.cases = tuple(_number_names([case.with_checks(shared) for case in made]))
        self.files = None if files is None else Path(files)
        self.people: tuple[str, ...] = ()  # users whose words are in it, beside those in the cases
        self.related: tuple[str, ...] = ()  # how the ids of other runs begin that have been made from it

    def __repr__(self) -> str:
        return f"<Evaluation {self.name!r}: {len(self.cases)} cases × {self.repeat}>"

    @property
    def everyone(self) -> set[str]:
        """Return the users whose words are in it."""
        return {*self.people, *[name for case in self.cases for name in case.people]} - {""}

    def only(self, names: Iterable[str]) -> Evaluation:
        """Return the evaluation with these cases only."""
        wanted = {*names}
        if unknown := sorted(wanted - {case.name for case in self.cases}):
            raise ConfigError.of("eval.no_case", "there is no case {names}", names=", ".join(unknown))
        made = Evaluation.__new__(Evaluation)
        made.__dict__.update(self.__dict__, cases=tuple([case for case in self.cases if case.name in wanted]))
        return made

    async def run(
        self,
        agent: Any,
        *,
        repeat: int = 0,
        label: str = "",
        fresh: bool = False,
        at_once: int = 8,
        batch: bool | BatchPrices = False,
        judge: Model | str | None = None,
        journal: Journal | None = None,
        deps: Any = None,
        progress: Progress | None = None,
    ) -> EvalReport:
        """Try each case, check the outcomes, and return the report.

        Attempts that the journal has are not made again: call `run` again after a crash, with more cases, or with a higher
        `repeat`. Attempts belong to one version of the agent: one with other instructions, tools or settings, or another
        model, is measured anew.

        Args:
            agent: An agent or a workflow, or a function that takes a folder and returns the agent to use in it. The function
                is called for each attempt, and again if an attempt is resumed.
            repeat: How often each case is tried (default: as the evaluation says).
            label: A name for this version of the agent, for reports and comparisons.
            fresh: Make all attempts anew, as a second evaluation of the same agent.
            at_once: How many attempts are under way at the same time (default: 8).
            batch: True to use the provider's batch API, for half the price.
            judge: The model that judges rubrics and plays simulated users (default: as the evaluation says).
            journal: The journal (default: that of the agent).
            deps: What tools find in `ToolContext.deps`.
            progress: A function that is called with each attempt, the number of attempts so far, and that of all.
        """
        wanted, count = judge or self.judge, repeat or self.repeat
        options = EvaluationOptions(count, at_once, batch, None if wanted is None else resolve(wanted), deps, progress)
        if options.judge is None and any(case.needs_judge for case in self.cases):
            raise ConfigError(no_judge())
        subject = Subject.of(agent, journal, self.files)
        try:
            return await self._run(subject, label, options, fresh=fresh)
        finally:
            await subject.close()

    async def _run(self, subject: Subject, label: str, options: EvaluationOptions, *, fresh: bool) -> EvalReport:
        await subject.describe()
        job = await self._job(subject.journal, subject.version, fresh=fresh)
        listed = [[case.name, case.title, case.digest(options.judge), case.group] for case in self.cases]
        about = {**subject.about, "version": subject.version, "time": time.time()}
        header: dict[str, Any] = {"name": self.name, "label": label, "repeat": options.repeat, "cases": listed, "about": about}
        if people := self.everyone:  # `erase_user` reads this
            header |= {"people": sorted(people), "runs": [*self.related]}
        recording = Recording(subject.journal, job, header)
        await recording.open(subject.description)
        try:
            await Execution(self.cases, subject, recording, options).run()
        except BaseException:
            with suppress(JournalError):  # what is raised says more
                await recording.close()
            raise
        await recording.close()
        return await read_report(subject.journal, job)

    async def _job(self, journal: Journal, version: str, *, fresh: bool) -> str:
        name = self.name if _PLAIN.fullmatch(self.name) else digest(self.name)[:8]
        job = f"{PREFIX}{name}-{version[:8]}"
        number = 1
        while fresh and await journal.runs(run_id=job if number == 1 else f"{job}-{number}", limit=1):
            number += 1
        return job if number == 1 else f"{job}-{number}"


def _number_names(cases: list[Case]) -> Iterable[Case]:
    """Number cases of the same name."""
    seen: dict[str, int] = {}
    for case in cases:
        number = seen[case.name] = seen.get(case.name, 0) + 1
        yield case if number == 1 else case.with_name(f"{case.name} ({number})")
