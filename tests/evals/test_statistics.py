"""Statistics of evaluations: exact, and no more false alarms than they promise."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import pytest

from kaname.core.record import replace
from kaname.evals import compare, compare_all
from kaname.evals.results.comparison import what_it_can_show
from kaname.evals.results.report import CaseAttempt, CaseReport, EvalReport, Finding
from kaname.evals.results.statistics import (
    ALPHA,
    cases_needed,
    detectable,
    difference_bounds,
    holm,
    kappa,
    look_factor,
    mcnemar,
    pass_power,
    power,
    rate_interval,
    sign_flip,
    wilson,
)
from tests.properties import nightly


def report(passes, k, name="a"):
    """A report of cases that passed so often of k attempts."""
    no = (Finding("contains", "no"),)
    cases = [
        CaseReport(
            f"c{place}", "", "d", tuple(CaseAttempt(f"c{place}", n, "d", findings=() if n < count else no) for n in range(k)), k
        )
        for place, count in enumerate(passes)
    ]
    return EvalReport(f"eval-{name}", name, name, k, tuple(cases), {})


def test_mcnemar_is_exact_and_needs_six_cases_of_twenty():
    assert mcnemar(6, 0) == 2 / 64
    assert mcnemar(5, 0) == 2 / 32
    assert mcnemar(8, 2) == pytest.approx(0.109375)
    assert detectable(20) == 0.54
    assert detectable(5) is None
    shown = "20 cases × 1: a difference of 54 points is shown in 80 % of evaluations (with 3 attempts per case: 38 points)"
    assert what_it_can_show(20) == shown
    assert what_it_can_show(20, 3) == "20 cases × 3: a difference of 38 points is shown in 80 % of evaluations"
    assert what_it_can_show(5) == "too few cases to compare two agents: 5, and at least 6 are needed"


def test_sign_flip_counts_all_signs_and_is_mcnemar_for_single_attempts():
    chance = random.Random(1)
    for _ in range(40):
        better, worse = chance.randrange(15), chance.randrange(15)
        assert sign_flip([1] * better + [-1] * worse + [0] * 4) == pytest.approx(mcnemar(better, worse))
    for _ in range(20):
        given = [Fraction(chance.randint(-5, 5), 5) for _ in range(8)]
        moved = [one for one in given if one]
        sums = [
            abs(sum(sign * one for sign, one in zip(signs, moved, strict=True)))
            for signs in product((1, -1), repeat=len(moved))
        ]
        assert sign_flip(given) == pytest.approx(sum(one >= abs(sum(given)) for one in sums) / len(sums))
    assert sign_flip([]) == 1.0
    assert sign_flip([Fraction(1, 3) - Fraction(1, 2)] * 6) == 2 / 64, "different numbers of attempts"


def test_intervals_bounds_and_the_rest_have_their_known_values():
    assert wilson(18, 20) == pytest.approx((0.699, 0.972), abs=1e-3)
    assert wilson(0, 0) == (0.0, 1.0)
    assert rate_interval([(1, 1)] * 18 + [(0, 1)] * 2) == pytest.approx(wilson(18, 20))
    alike = rate_interval([(5, 5)] * 18 + [(0, 5)] * 2)
    assert alike == pytest.approx(wilson(18, 20), abs=0.01), "five equal attempts are no five cases"
    assert difference_bounds([0.0] * 20) == pytest.approx((-0.168, 0.168), abs=1e-3)
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert pass_power(4, 5, 2) == 0.6
    assert pass_power(1, 1, 2) is None
    assert kappa([(True, True)] * 5 + [(False, False)] * 4 + [(True, False)]) == pytest.approx(0.8)
    assert kappa([]) is None
    assert kappa([(True, True)] * 3) is None
    assert cases_needed(0.1, 0.2) > 150


def attempts(chance, rate, k):
    return sum(chance.random() < rate for _ in range(k))


NULLS = {
    "alike": lambda chance: (0.7, 0.7),
    "clustered": lambda chance: (one := chance.betavariate(0.5, 0.3), one),  # most cases are nearly always right, or wrong
    "both drawn": lambda chance: (chance.betavariate(0.5, 0.3), chance.betavariate(0.5, 0.3)),  # alike only on the whole
}


@pytest.mark.parametrize("k", [1, *nightly(5)])
@pytest.mark.parametrize("null", ["alike", *nightly(*[null for null in NULLS if null != "alike"])])
def test_false_alarms_stay_below_five_percent(null, k):
    """1,000 comparisons of two agents that are equally good. By chance, 5 % ± 1.4 % (two standard errors) could be seen."""
    chance, alarms = random.Random(f"{null}{k}"), 0
    for _ in range(1000):
        rates = [NULLS[null](chance) for _ in range(40)]
        one, other = [report([attempts(chance, rate[side], k) for rate in rates], k) for side in (0, 1)]
        alarms += compare(one, other).p <= ALPHA
    assert alarms <= 50, f"{alarms} of 1000"
    assert alarms >= 5, "a test that never speaks is no test"


@pytest.mark.parametrize("trials", [100, *nightly(500)])
def test_false_alarms_over_several_variants_stay_below_five_percent_in_all(trials):
    chance, alarms = random.Random(3), 0
    for _ in range(trials):
        made = [report([attempts(chance, 0.6, 1) for _ in range(60)], 1) for _ in range(5)]
        alarms += any(one.p <= ALPHA for one in compare_all(made[0], made[1:]))
    assert alarms <= trials // 20, f"{alarms} of {trials}"


@pytest.mark.parametrize(("better", "worse", "cases"), [(0.3, 0.05, 40), *nightly((0.2, 0.1, 100), (0.15, 0.0, 60))])
def test_real_differences_are_seen_as_often_as_theory_says(better, worse, cases):
    chance, seen, tries = random.Random(4), 0, 600
    for _ in range(tries):
        drawn = [chance.random() for _ in range(cases)]
        one = report([int(better <= point) for point in drawn], 1)
        other = report([int(not better <= point < better + worse) for point in drawn], 1)
        seen += compare(one, other).p <= ALPHA
    expected = power(cases, better, worse)
    assert 0.2 < expected < 0.99
    assert seen / tries == pytest.approx(expected, abs=3 * (expected * (1 - expected) / tries) ** 0.5)


def test_repetitions_make_a_real_difference_visible_sooner():
    seen = {}
    for k in (1, 5):
        chance = random.Random(5)
        rates = [0.3 + 0.4 * chance.random() for _ in range(40)]
        made = [
            (report([attempts(chance, r, k) for r in rates], k), report([attempts(chance, r + 0.2, k) for r in rates], k))
            for _ in range(200)
        ]
        seen[k] = sum(compare(*pair).p <= ALPHA for pair in made) / 200
    assert seen[5] > seen[1] + 0.3, seen


@pytest.mark.parametrize("k", [5, *nightly(1)])
def test_the_interval_of_a_rate_holds_it_with_clustered_cases(k):
    chance, held = random.Random(6), 0
    for _ in range(1000):
        counts = [(attempts(chance, chance.betavariate(0.7, 0.3), k), k) for _ in range(40)]
        low, high = rate_interval(counts)
        held += low <= 0.7 <= high
    assert held >= 930, held


def test_a_comparison_says_real_not_shown_or_too_few():
    assert compare(report([0] * 8 + [1] * 12, 1), report([1] * 20, 1)).verdict == "real"
    few = compare(report([0] * 2 + [1] * 18, 1), report([1] * 20, 1))
    assert (few.verdict, few.cases, few.better) == ("too few", 20, ["c0", "c1"])
    assert few.cases_to_ask > 20
    many = compare(report([0, 1] * 150, 1), report([0, 1] * 148 + [1, 1, 1, 0], 1))
    assert many.verdict == "not shown"
    assert str(many).startswith("not shown: the difference is +0.3 points")
    worse = compare(report([1] * 20, 1), report([0] * 8 + [1] * 12, 1))
    assert str(worse).startswith("real: 40.0 points worse (p = 0.0117")


def test_changed_cases_are_not_compared():
    one, other = report([1, 1, 0], 1), report([1, 1, 1], 1)
    changed = CaseReport("c2", "", "another digest", other.cases[2].attempts, 1)
    made = compare(one, EvalReport("x", "x", "", 1, (*other.cases[:2], changed), {}))
    assert (made.cases, made.unpaired) == (2, ("c2",))
    assert compare(report([], 1), other).verdict == "too few"
    assert str(compare(report([], 1), other)).startswith("nothing to compare")


def looked_at(passes, *times):
    """A report that was complete at these times; several lists for evaluations that were made anew."""
    return replace(report(passes, 1), completed=times)


def test_looks_count_what_there_was_to_compare_and_no_more():
    def looks(one, other):
        return compare(looked_at([1] * 6, *one), looked_at([1] * 6, *other)).looks

    assert looks([], []) == looks([(1.0,)], [(2.0,)]) == 1
    assert looks([(1.0, 3.0, 5.0)], [(2.0, 4.0, 6.0)]) == 3, "both grow"
    assert looks([(1.0,)], [(2.0, 3.0, 4.0)]) == looks([(2.0, 3.0, 4.0)], [(1.0,)]) == 3, "one grows"
    assert looks([(1.0, 2.0, 3.0)], [(4.0,)]) == 1, "a baseline that grew before the other version was there"
    assert looks([(1.0,)], [(2.0,), (3.0,), (4.0,)]) == looks([(4.0,)], [(1.0,), (2.0,), (3.0,)]) == 3, "made anew"
    assert sum([1 / look_factor(look) for look in range(1, 10_000)]) == pytest.approx(1, abs=1e-3), "5 % in all"


def test_looks_make_p_and_bounds_more_careful():
    once = compare(looked_at([0] * 8 + [1] * 12, (1.0,)), looked_at([1] * 20, (2.0,)))
    often = compare(looked_at([0] * 8 + [1] * 12, (1.0,)), looked_at([1] * 20, (2.0,), (3.0,)))
    assert (once.verdict, often.verdict) == ("real", "too few")
    assert often.p == pytest.approx(once.p * 5)
    assert often.bounds[0] < once.bounds[0] < once.difference < once.bounds[1] < often.bounds[1]
    assert str(often).endswith("This is look 2 at these versions, and p counts all of them.")


def test_groups_count_as_one_in_tests_and_intervals():
    def grouped(passes):
        made = report(passes, 1)
        return replace(made, cases=tuple([replace(case, group=f"doc {place // 4}") for place, case in enumerate(made.cases)]))

    alone = compare(report([0] * 8 + [1] * 32, 1), report([1] * 40, 1))
    together = compare(grouped([0] * 8 + [1] * 32), grouped([1] * 40))
    assert (alone.verdict, together.verdict) == ("real", "too few"), "two documents are no eight cases"
    assert together.difference == alone.difference
    assert together.bounds[0] < alone.bounds[0] < alone.bounds[1] < together.bounds[1]
    wide, narrow = [one.interval[1] - one.interval[0] for one in (together.baseline, alone.baseline)]
    assert wide > narrow


def test_comparison_of_an_incomplete_evaluation_says_so():
    whole = report([0] * 8 + [1] * 12, 1)
    part = replace(report([1] * 20, 1), cases=(*report([1] * 20, 1).cases, CaseReport("c20", "", "d", ())))
    made = compare(whole, part)
    assert made.verdict == "too few"
    assert str(made).startswith("an evaluation is not complete: run it again")
