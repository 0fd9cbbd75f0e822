"""`EvalReport`: the cases of an evaluation with their attempts, and the numbers that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...core.notices import from_json, to_json
from ...core.record import record
from .statistics import kappa, pass_power, rate_interval

RUBRIC = "rubric"


@record
class Finding:
    """A check and what is wrong; "" if it holds."""

    check: str
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem


@record
class CaseAttempt:
    """One attempt at a case.

    `digest`: the fingerprint of the case. `run_ids`: its runs; several for a conversation. `error`: why there is no verdict,
    such as a provider that could not be reached; such an attempt counts as not passed, and is made again the next time.
    `overhead`: what judges and simulated users have cost. `rating`: a person's rating of the run, "good" or "bad".
    """

    case: str
    number: int
    digest: str
    run_ids: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    error: str = ""
    stop: str = ""
    output: str = ""
    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    cost: float | None = 0.0
    overhead: float | None = 0.0
    rating: str = ""

    @property
    def passed(self) -> bool:
        return not self.error and all(one.passed for one in self.findings)

    @property
    def why(self) -> str:
        """The first reason why it did not pass; "" if it did."""
        return self.error or next((one.problem for one in self.findings if not one.passed), "")

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__match_args__}
        found = [[one.check, to_json(one.problem)] for one in self.findings]
        return {**data, "run_ids": list(self.run_ids), "findings": found, "error": to_json(self.error)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> CaseAttempt:
        known = {name: told[name] for name in cls.__match_args__ if name in told}
        found = tuple([Finding(check, from_json(problem)) for check, problem in told["findings"]])
        return cls(**{**known, "run_ids": tuple(told["run_ids"]), "findings": found, "error": from_json(told["error"])})


@record
class CaseReport:
    """A case and its attempts. `planned`: how many attempts are to be made. `group`: cases of one group share their luck."""

    name: str
    title: str
    digest: str
    attempts: tuple[CaseAttempt, ...]
    planned: int = 1
    group: str = ""

    @property
    def passes(self) -> int:
        return sum([one.passed for one in self.attempts])

    @property
    def passed(self) -> bool:
        """True if every attempt was made and passed."""
        return self.passes == self.planned == len(self.attempts)

    @property
    def rate(self) -> float:
        return self.passes / len(self.attempts) if self.attempts else 0.0


@record
class EvalReport:
    """The result of an evaluation of one agent.

    `job`: its id. `label`: the newest of its `labels`. `about`: the agent, its model, the time of the evaluation, and so on.
    `completed`: the times at which this evaluation, and each other one of the same version that was made anew, was complete
    with new attempts.
    """

    job: str
    name: str
    label: str
    repeat: int
    cases: tuple[CaseReport, ...]
    about: Mapping[str, Any]
    completed: tuple[tuple[float, ...], ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def attempts(self) -> list[CaseAttempt]:
        return [attempt for case in self.cases for attempt in case.attempts]

    @property
    def complete(self) -> bool:
        return all(len(case.attempts) >= case.planned for case in self.cases)

    @property
    def counts(self) -> list[tuple[int, int]]:
        return [(case.passes, len(case.attempts)) for case in self.cases if case.attempts]

    @property
    def rate(self) -> float:
        """The share of attempts that pass, each case counted once (pass@1)."""
        return sum([passed / of for passed, of in self.counts]) / len(self.counts) if self.counts else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the rate."""
        made = [case for case in self.cases if case.attempts]
        return rate_interval(self.counts, [case.group or (place,) for place, case in enumerate(made)])

    @property
    def reliability(self) -> float | None:
        """The estimated share of cases of which all k attempts pass (pass^k); None unless every case has k attempts."""
        each = [pass_power(passed, of, self.repeat) for passed, of in self.counts]
        known = [one for one in each if one is not None]
        return sum(known) / len(known) if known and len(known) == len(self.cases) else None

    @property
    def errors(self) -> int:
        return sum([bool(one.error) for one in self.attempts])

    @property
    def cost(self) -> float | None:
        return _total([one.cost for one in self.attempts])

    @property
    def overhead(self) -> float | None:
        return _total([one.overhead for one in self.attempts])

    @property
    def has_judge(self) -> bool:
        """True if a model judged an answer."""
        return any(found.check == RUBRIC for one in self.attempts for found in one.findings)

    @property
    def agreement(self) -> tuple[float | None, int]:
        """How well the judge agrees with people: Cohen's κ, and the number of attempts that both have rated."""
        pairs = [(found.passed, one.rating == "good") for one in self.attempts for found in one.findings
                 if found.check == RUBRIC and one.rating]  # fmt: skip
        return kappa(pairs), len(pairs)

    def summary(self) -> dict[str, Any]:
        """Return the numbers of the report as JSON."""
        agreement, rated = self.agreement
        return {
            "job": self.job,
            "name": self.name,
            "label": self.label,
            "repeat": self.repeat,
            "cases": len(self.cases),
            "attempts": len(self.attempts),
            "passed": sum([case.passed for case in self.cases]),
            "complete": self.complete,
            "rate": self.rate,
            "interval": list(self.interval),
            "reliability": self.reliability,
            "errors": self.errors,
            "cost": self.cost,
            "overhead": self.overhead,
            "judge": {"kappa": agreement, "rated": rated} if self.has_judge else None,
            "about": dict(self.about),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the whole report as JSON."""
        cases = [
            {"name": case.name, "title": case.title, "passed": case.passed, "rate": case.rate, "digest": case.digest,
             "group": case.group, "attempts": [{**one.to_json(), "passed": one.passed} for one in case.attempts]}
            for case in self.cases
        ]  # fmt: skip
        return {**self.summary(), "results": cases}


def labels_of(header: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the labels that an evaluation was given, oldest first."""
    labels = header.get("labels") or [header.get("label", "")]
    return tuple([label for label in labels if label])


def make_report(
    job: str, header: Mapping[str, Any], attempts: Iterable[CaseAttempt], completed: tuple[tuple[float, ...], ...] = ()
) -> EvalReport:
    """Build a report from what is recorded. Attempts at cases that have changed since are left out."""
    by_case: dict[str, dict[int, CaseAttempt]] = {}
    for one in attempts:
        by_case.setdefault(one.case, {})[one.number] = one
    repeat, cases = int(header["repeat"]), list[CaseReport]()
    for name, title, digest, *group in header["cases"]:
        made: Sequence[CaseAttempt] = [one for _, one in sorted(by_case.get(name, {}).items())]
        fitting = tuple([one for one in made if one.digest == digest and one.number < repeat])
        cases.append(CaseReport(name, title, digest, fitting, repeat, *group))
    return EvalReport(
        job,
        header["name"],
        header.get("label", ""),
        repeat,
        tuple(cases),
        header.get("about", {}),
        completed,
        labels_of(header),
    )


def _total(costs: Iterable[float | None]) -> float | None:
    total = 0.0
    for one in costs:
        if one is None:
            return None
        total += one
    return total
