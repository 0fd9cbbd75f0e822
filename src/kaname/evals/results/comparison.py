"""Compare two evaluations, case by case: is the difference real, is none shown, or are there too few cases to say?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from ...core.notices import join_notices, notice
from ...core.record import field, record, replace
from .report import CaseReport, EvalReport
from .statistics import (
    ALPHA,
    cases_needed,
    detectable,
    difference_bounds,
    difference_trials,
    holm,
    least_cases,
    look_factor,
    sign_flip,
    upper_bound,
)

MARGIN = 0.1  # differences up to 10 points do not matter, unless the caller says otherwise
_DOUBT = 0.35  # how often the share of cases that differ is higher than the one that is planned with
_REPEATED = 3  # the attempts per case for which a plan says what they would change
Verdict = Literal["real", "not shown", "too few"]


@record
class Comparison:
    """Two evaluations, compared case by case.

    `differences`: the pass rate of `other` minus that of `baseline`, of each case that both have. `p`: the p-value of the exact
    sign-flip test, adjusted for the looks, and by Holm if there are several comparisons. `unpaired`: cases that only one has,
    or that have changed between the two. `margin`: the largest difference that does not matter. `groups`: the group of each
    case that has one.
    """

    baseline: EvalReport
    other: EvalReport
    differences: Mapping[str, float]
    p: float
    unpaired: tuple[str, ...] = ()
    margin: float = MARGIN
    groups: Mapping[str, str] = field(factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Return "real" if the difference is significant (p of at most 0.05); "not shown" if it is not, and a difference of
        more than `margin` is ruled out; "too few" if neither can be said, or one of the evaluations is not complete."""
        if not self.complete:
            return "too few"
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
    def complete(self) -> bool:
        """True if all attempts of both evaluations were made."""
        return self.baseline.complete and self.other.complete

    @property
    def looks(self) -> int:
        """How often there was something new to compare: more cases or attempts, or an evaluation of a version made anew."""
        first = [min([one[0] for one in side.completed], default=0.0) for side in (self.baseline, self.other)]
        since = max(first)  # when there was one of both
        seen = [[max(1, sum([time > since for time in one]) + (one[0] <= since)) for one in side.completed]
                for side in (self.baseline, self.other)]  # fmt: skip
        return max(1, *[sum(side) for side in seen])

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of the mean difference. In 95 % of comparisons they hold it at every look."""
        return self.bounds_at(ALPHA)

    def bounds_at(self, alpha: float) -> tuple[float, float]:
        """Return the bounds that hold the mean difference at every look in all but `alpha` of comparisons."""
        if not self.cases:
            return -1.0, 1.0
        return difference_bounds(*self._parts, alpha / look_factor(self.looks))

    @property
    def _parts(self) -> tuple[list[float], list[str], int]:
        groups = _groups_of(self.differences, self.groups)
        return [*self.differences.values()], groups, min(self.baseline.repeat, self.other.repeat)

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
        """How many cases are enough to say more at the next look, in 80 % of evaluations, even if there is no difference."""
        if not self.cases:
            return least_cases()
        trials = difference_trials(*self._parts)
        differing = sum([abs(one) for one in self.differences.values()]) / self.cases
        most = upper_bound(differing * trials, trials, _DOUBT)
        return max(self.cases + 1, cases_needed(self.margin, most, self.looks + 1, trials / self.cases))

    def to_json(self) -> dict[str, Any]:
        names = ("verdict", "cases", "difference", "p", "bounds", "better", "worse", "unpaired", "margin", "errors", "looks")
        data = {name: getattr(self, name) for name in names}
        needed = self.cases_to_ask if self.verdict == "too few" else None
        return {"baseline": self.baseline.summary(), "other": self.other.summary(), "needed": needed, **data}

    def __str__(self) -> str:
        """Return the result in words."""
        points, p = f"{abs(self.difference) * 100:.1f}", f"{self.p:.3g}"
        signed = f"{self.difference * 100:+.1f}"
        if not self.cases:
            return notice("eval.nothing_to_compare", "nothing to compare: the two evaluations have no case in common")
        if not self.complete:
            text = notice("eval.incomplete", "an evaluation is not complete: run it again to make the missing attempts. "
                          "So far, the difference is {points} points", points=signed)  # fmt: skip
        elif self.verdict == "real":
            text = (
                notice("eval.better", "real: {points} points better (p = {p}, {cases} cases)", points=points, p=p,
                       cases=self.cases)
                if self.difference > 0
                else notice("eval.worse", "real: {points} points worse (p = {p}, {cases} cases)", points=points, p=p,
                            cases=self.cases)
            )  # fmt: skip
        elif self.verdict == "not shown":
            most = f"{max(-self.bounds[0], self.bounds[1]) * 100:.0f}"
            text = notice("eval.not_shown", "not shown: the difference is {points} points (p = {p}); more than {most} points "
                          "either way are ruled out ({cases} cases)", points=signed, p=p, most=most,
                          cases=self.cases)  # fmt: skip
        else:
            low, high = [f"{one * 100:+.0f}" for one in self.bounds]
            text = notice("eval.too_few", "too few cases to say: {points} points (p = {p}), but anything from {low} to {high} "
                          "points is possible. About {needed} cases are needed, and there are {cases}.", points=signed, p=p,
                          low=low, high=high, needed=self.cases_to_ask, cases=self.cases)  # fmt: skip
        more = list[str]()
        if self.looks > 1:
            more.append(notice("eval.looks", " This is look {looks} at these versions, and p counts all of them.",
                               looks=self.looks))  # fmt: skip
        if self.errors:
            more.append(
                notice("eval.with_errors", " {errors} attempts ended in an error and count as not passed.", errors=self.errors)
            )
        return join_notices("", [text, *more]) if more else text


def compare(baseline: EvalReport, other: EvalReport, *, margin: float = MARGIN) -> Comparison:
    """Compare two evaluations of the same cases.

    Args:
        baseline: The evaluation to compare with.
        other: The new one.
        margin: The largest difference that does not matter, as a share (default: 0.1, which is 10 points).

    Cases are compared in pairs. Repetitions of a case count as one pair, with the difference of its pass rates, and cases of
    one group count together.
    """
    known = {case.name: case for case in baseline.cases if case.attempts}
    pairs = [(known[case.name], case) for case in other.cases if case.attempts and _same(known.get(case.name), case)]
    paired = {case.name for _, case in pairs}
    unpaired = [case.name for case in (*baseline.cases, *other.cases) if case.name not in paired]
    each = {case.name: _rate(case) - _rate(before) for before, case in pairs}
    data = {name: float(one) for name, one in each.items()}
    groups = {case.name: case.group for _, case in pairs if case.group}
    made = Comparison(baseline, other, data, 1.0, tuple(dict.fromkeys(unpaired)), margin, groups)
    sums = defaultdict[str, Fraction](Fraction)
    for group, one in zip(_groups_of(each, groups), each.values(), strict=True):
        sums[group] += one
    return replace(made, p=min(1.0, sign_flip([*sums.values()]) * look_factor(made.looks)))


def compare_all(baseline: EvalReport, others: Sequence[EvalReport], *, margin: float = MARGIN) -> list[Comparison]:
    """Compare several evaluations with one. The p-values are adjusted by Holm, so that false alarms stay below 5 % in all."""
    made = [compare(baseline, other, margin=margin) for other in others]
    return [replace(one, p=p) for one, p in zip(made, holm([one.p for one in made]), strict=True)]


def what_it_can_show(cases: int, repeat: int = 1) -> str:
    """Return a sentence with the difference that an evaluation of `cases` cases will show in 80 % of trials."""
    shown, repeated = detectable(cases, repeat), detectable(cases, _REPEATED)
    if shown is None:
        return notice("eval.shows_nothing", "too few cases to compare two agents: {cases}, and at least {least} are needed",
                      cases=cases, least=least_cases())  # fmt: skip
    message = notice("eval.shows", "{cases} cases × {repeat}: a difference of {points} points is shown in 80 % of evaluations",
                  cases=cases, repeat=repeat, points=f"{shown * 100:.0f}")  # fmt: skip
    if repeat >= _REPEATED or repeated is None or repeated >= shown:
        return message
    more = notice("eval.shows_repeated", " (with {repeat} attempts per case: {points} points)", repeat=_REPEATED,
                  points=f"{repeated * 100:.0f}")  # fmt: skip
    return join_notices("", [message, more])


def _groups_of(names: Iterable[str], groups: Mapping[str, str]) -> list[str]:
    """Return the group of each case. A case without one is a group of its own, whatever its name."""
    return [f"group {groups[name]}" if name in groups else f"case {name}" for name in names]


def _same(before: CaseReport | None, case: CaseReport) -> bool:
    return before is not None and before.digest == case.digest


def _rate(case: CaseReport) -> Fraction:
    return Fraction(case.passes, len(case.attempts))
