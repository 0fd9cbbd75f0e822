"""Compare two evaluations, case by case: is the difference real, is none shown, or are there too few cases to say?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from ...core.notices import join_notices, notice
from ...core.record import record, replace
from .report import CaseReport, EvalReport
from .statistics import ALPHA, cases_needed, detectable, difference_bounds, holm, sign_flip

MARGIN = 0.1  # differences up to 10 points do not matter, unless the caller says otherwise
Verdict = Literal["real", "not shown", "too few"]


@record
class Comparison:
    """Two evaluations, compared case by case.

    `differences`: the pass rate of `other` minus that of `baseline`, of each case that both have. `p`: the p-value of the exact
    sign-flip test, after Holm's adjustment if there are several comparisons. `unpaired`: cases that only one has, or that have
    changed between the two. `margin`: the largest difference that does not matter.
    """

    baseline: EvalReport
    other: EvalReport
    differences: Mapping[str, float]
    p: float
    unpaired: tuple[str, ...] = ()
    margin: float = MARGIN

    @property
    def verdict(self) -> Verdict:
        """Return "real" if the difference is significant (p of at most 0.05); "not shown" if it is not, and a difference of
        more than `margin` is ruled out; "too few" if neither can be said."""
        if self.p <= ALPHA:
            return "real"
        low, high = self.bounds
        return "not shown" if max(-low, high) <= self.margin else "too few"

    @property
    def cases(self) -> int:
        return len(self.differences)

    @property
    def difference(self) -> float:
        """The mean difference: 0.1 is 10 points."""
        return sum(self.differences.values()) / self.cases if self.cases else 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        """The exact 95 % bounds of the mean difference."""
        return difference_bounds([*self.differences.values()]) if self.cases else (-1.0, 1.0)

    @property
    def better(self) -> list[str]:
        return [name for name, one in self.differences.items() if one > 0]

    @property
    def worse(self) -> list[str]:
        return [name for name, one in self.differences.items() if one < 0]

    @property
    def errors(self) -> int:
        """The number of attempts without a verdict, which count as not passed."""
        both = (*self.baseline.cases, *self.other.cases)
        return sum([bool(one.error) for case in both if case.name in self.differences for one in case.attempts])

    @property
    def cases_to_ask(self) -> int:
        """About how many cases are enough to say more."""
        differing = sum([abs(one) for one in self.differences.values()]) / max(1, self.cases)
        return max(self.cases + 1, cases_needed(self.margin, differing))

    def to_json(self) -> dict[str, Any]:
        names = ("verdict", "cases", "difference", "p", "bounds", "better", "worse", "unpaired", "margin", "errors")
        told = {name: getattr(self, name) for name in names}
        needed = self.cases_to_ask if self.verdict == "too few" else None
        return {"baseline": self.baseline.summary(), "other": self.other.summary(), "needed": needed, **told}

    def __str__(self) -> str:
        """Return the result in words."""
        points, p = f"{abs(self.difference) * 100:.1f}", f"{self.p:.3g}"
        signed = f"{self.difference * 100:+.1f}"
        if not self.cases:
            return notice("eval.nothing_to_compare", "nothing to compare: the two evaluations have no case in common")
        if self.verdict == "real":
            told = (
                notice("eval.better", "real: {points} points better (p = {p}, {cases} cases)", points=points, p=p,
                       cases=self.cases)
                if self.difference > 0
                else notice("eval.worse", "real: {points} points worse (p = {p}, {cases} cases)", points=points, p=p,
                            cases=self.cases)
            )  # fmt: skip
        elif self.verdict == "not shown":
            most = f"{max(-self.bounds[0], self.bounds[1]) * 100:.0f}"
            told = notice("eval.not_shown", "not shown: the difference is {points} points (p = {p}); more than {most} points "
                          "either way are ruled out ({cases} cases)", points=signed, p=p, most=most,
                          cases=self.cases)  # fmt: skip
        else:
            low, high = [f"{one * 100:+.0f}" for one in self.bounds]
            told = notice("eval.too_few", "too few cases to say: {points} points (p = {p}), but anything from {low} to {high} "
                          "points is possible. About {needed} cases are needed, and there are {cases}.", points=signed, p=p,
                          low=low, high=high, needed=self.cases_to_ask, cases=self.cases)  # fmt: skip
        if self.errors:
            more = notice(
                "eval.with_errors", " {errors} attempts ended in an error and count as not passed.", errors=self.errors
            )
            return join_notices("", [told, more])
        return told


def compare(baseline: EvalReport, other: EvalReport, *, margin: float = MARGIN) -> Comparison:
    """Compare two evaluations of the same cases.

    Args:
        baseline: The evaluation to compare with.
        other: The new one.
        margin: The largest difference that does not matter, as a share (default: 0.1, which is 10 points).

    Cases are compared in pairs. Repetitions of a case count as one pair, with the difference of its pass rates.
    """
    known = {case.name: case for case in baseline.cases if case.attempts}
    pairs = [(known[case.name], case) for case in other.cases if case.attempts and _same(known.get(case.name), case)]
    paired = {case.name for _, case in pairs}
    unpaired = [case.name for case in (*baseline.cases, *other.cases) if case.name not in paired]
    each = {case.name: _rate(case) - _rate(before) for before, case in pairs}
    told = {name: float(one) for name, one in each.items()}
    return Comparison(baseline, other, told, sign_flip([*each.values()]), tuple(dict.fromkeys(unpaired)), margin)


def compare_all(baseline: EvalReport, others: Sequence[EvalReport], *, margin: float = MARGIN) -> list[Comparison]:
    """Compare several evaluations with one. The p-values are adjusted by Holm, so that false alarms stay below 5 % in all."""
    made = [compare(baseline, other, margin=margin) for other in others]
    return [replace(one, p=p) for one, p in zip(made, holm([one.p for one in made]), strict=True)]


def what_it_can_show(cases: int, repeat: int = 1) -> str:
    """Return which differences an evaluation of so many cases can show, before it is run."""
    least = detectable(cases)
    if least is None:
        return notice(
            "eval.shows_nothing", "too few cases to compare two agents: {cases}, and at least 6 are needed", cases=cases
        )
    told = notice("eval.shows", "{cases} cases can show differences of {points} points or more", cases=cases,
                  points=f"{least * 100:.0f}")  # fmt: skip
    if repeat == 1:
        return told
    more = notice("eval.shows_repeated", " ({repeat} attempts each: more certain, but no replacement for more cases)",
                  repeat=repeat)  # fmt: skip
    return join_notices("", [told, more])


def _same(before: CaseReport | None, case: CaseReport) -> bool:
    return before is not None and before.digest == case.digest


def _rate(case: CaseReport) -> Fraction:
    return Fraction(case.passes, len(case.attempts))
