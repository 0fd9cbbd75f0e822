"""What evaluations and lessons claim, tried 2,000 times each: a claim that can be false is false in at most 5 %. By day, one
case of each claim.

The data are drawn: rates that all cases share, and rates that are drawn for each case from a beta distribution with most of its
mass at 0 and 1. Three constants were chosen with such data: the planned power, the doubt about the share of cases that differ,
and the numbers of runs after which a lesson is judged. How much attempts of one case correlate in a plan was chosen with half of
a real set (`benchmarks/real_results.py`). Error rates below 5 % follow from the tests, and not from these.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from kaname.evals.results.comparison import Comparison
from kaname.evals.results.report import EvalReport
from kaname.evals.results.statistics import ALPHA, detectable, look_factor, sign_flip
from kaname.evals.trial import adjust, decide
from kaname.memory.lessons.propose import _ALPHA, _LOOKS, fisher
from tests.properties import nightly

pytestmark = pytest.mark.slow
TRIALS = 2000
MOST = 0.05 + 2 * (0.05 * 0.95 / TRIALS) ** 0.5  # two standard errors more than 5 %


@cache
def p_of(sums: tuple[int, ...], repeat: int) -> float:
    return sign_flip([Fraction(one, repeat) for one in sums])


def p_value(counts, repeat=1, groups=None, looks=1):
    """The p-value of differences, given as numbers of attempts, as `compare` computes it."""
    sums = counts if groups is None else np.bincount(groups, weights=counts).astype(int)
    moved = sums[sums != 0]
    moved = -moved if moved.sum() < 0 else moved
    return min(1.0, p_of(tuple(sorted(moved.tolist())), repeat) * look_factor(looks))


def comparison(counts, repeat=1, looks=1, p=None):
    """A comparison of cases with these differences, at this look."""
    report = EvalReport("job", "shop", "", repeat, (), {}, tuple([(float(one),) for one in range(looks)]))
    told = {str(place): one / repeat for place, one in enumerate(counts.tolist())}
    return Comparison(report, report, told, p_value(counts, repeat, looks=looks) if p is None else p)


def rates(chance, kind, cases):
    return np.full(cases, kind) if isinstance(kind, float) else chance.beta(0.5, 0.3, cases)


def alike(chance, kind, cases, repeat=1):
    """The differences of two agents that are equally good at each case."""
    each = rates(chance, kind, cases)
    return chance.binomial(repeat, each) - chance.binomial(repeat, each)


# What can be shown


@pytest.mark.parametrize(("cases", "repeat"), [(20, 1), *nightly((10, 1), (20, 3), (40, 1), (40, 3))])
@pytest.mark.parametrize("world", ["by chance", *nightly("always or never", "other cases")])
def test_detectable_difference_is_shown_in_80_percent(world, cases, repeat):
    chance, points = np.random.default_rng(1), detectable(cases, repeat)
    shown = 0
    for _ in range(TRIALS):
        if world == "by chance":
            before = np.full(cases, 0.5 - points / 2)
            after = before + points
        elif world == "other cases":  # each agent is good at other cases, and many get worse
            before, after = chance.random((2, cases)) * (1 - points)
            after += points
        else:
            before = (chance.random(cases) > max(0.5, points)).astype(float)
            after = np.maximum(before, chance.random(cases) < points / max(0.5, points))
        shown += p_value(chance.binomial(repeat, after) - chance.binomial(repeat, before), repeat) <= ALPHA
    assert shown / TRIALS >= 0.79, shown / TRIALS


def test_detectable_difference_is_smaller_with_repetitions():
    assert [detectable(20, repeat) for repeat in (1, 3, 5)] == [0.54, 0.38, 0.38]
    assert [detectable(100, repeat) for repeat in (1, 3, 5)] == [0.23, 0.17, 0.15]


# How many cases are needed


@pytest.mark.parametrize(
    ("kind", "cases", "repeat", "trials"),
    [
        (0.9, 20, 1, 100),
        *nightly((0.7, 20, 1, TRIALS), (0.9, 40, 1, TRIALS), ("drawn", 20, 1, TRIALS), ("drawn", 20, 3, TRIALS)),
    ],
)
def test_cases_that_are_asked_for_are_enough_if_there_is_no_difference(kind, cases, repeat, trials):
    chance, again, asked = np.random.default_rng(2), 0, 0

    @cache
    def first(key):
        made = comparison(np.array(key), repeat)
        return made.cases_to_ask if made.verdict == "too few" else 0

    @cache
    def is_ruled_out(key):
        return comparison(np.array(key), repeat, looks=2, p=1.0).verdict == "not shown"

    for _ in range(trials):
        counts = np.sort(alike(chance, kind, cases, repeat))
        needed = first(tuple(counts.tolist()))
        if not needed:
            continue
        counts = np.sort(np.concatenate([counts, alike(chance, kind, needed - cases, repeat)]))
        asked += 1
        again += not is_ruled_out(tuple(counts.tolist())) and p_value(counts, repeat, looks=2) > ALPHA
    assert again / asked <= 0.2, again / asked


# Looks and reruns


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["drawn", *nightly(0.7, 0.5)])
def test_looking_after_every_five_cases_stays_below_five_percent(kind):
    chance, alarms, before = np.random.default_rng(3), 0, 0
    for _ in range(TRIALS):
        counts = alike(chance, kind, 60)
        stages = [counts[:end] for end in range(5, 61, 5)]
        alarms += any(p_value(one, looks=look) <= ALPHA for look, one in enumerate(stages, 1))
        before += any(p_value(one) / look_factor(1) <= ALPHA for one in stages)
    assert alarms / TRIALS <= MOST, alarms / TRIALS
    assert before / TRIALS > (0.08 if isinstance(kind, float) else 0.05), "what is corrected for"


@pytest.mark.parametrize("kind", [0.7, *nightly(0.5, "drawn")])
@pytest.mark.parametrize("both", [False, *nightly(True)])
def test_ten_reruns_stay_below_five_percent(kind, both):
    chance, alarms, before = np.random.default_rng(4), 0, 0
    for _ in range(TRIALS):
        each = rates(chance, kind, 40)
        base = chance.binomial(1, each)
        made = [chance.binomial(1, each) - (chance.binomial(1, each) if both else base) for _ in range(10)]
        alarms += any(p_value(one, looks=look) <= ALPHA for look, one in enumerate(made, 1))
        before += any(p_value(one) / look_factor(1) <= ALPHA for one in made)
    assert alarms / TRIALS <= MOST, alarms / TRIALS
    assert before / TRIALS > 0.1, "what is corrected for"


@pytest.mark.parametrize(("gain", "loss"), [(0.15, 0.05), *nightly((0.1, 0.1), (0.3, 0.1), (0.1, 0.0), (0.02, 0.02))])
@pytest.mark.parametrize("cases", [60, *nightly(20, 200)])
def test_bounds_hold_the_difference_in_95_percent(cases, gain, loss):
    chance, held, known = np.random.default_rng(5), 0, {}
    for _ in range(TRIALS):
        drawn = chance.choice([1, -1, 0], size=cases, p=[gain, loss, 1 - gain - loss])
        key = ((drawn > 0).sum(), (drawn < 0).sum())
        known[key] = known.get(key) or comparison(drawn, p=1.0).bounds
        held += known[key][0] <= gain - loss <= known[key][1]
    assert held / TRIALS >= 0.95 - (MOST - 0.05), held / TRIALS


# Groups


@pytest.mark.nightly
@pytest.mark.parametrize("size", [3, *nightly(5, 10)])
def test_groups_that_share_luck_stay_below_five_percent(size):
    """Each group is better or worse as a whole, by 30 points."""
    chance, alarms, before, held = np.random.default_rng(6), 0, 0, 0
    groups = np.repeat(np.arange(12), size)
    for number in range(TRIALS):
        luck = np.repeat(chance.choice([-0.15, 0.15], 12), size)
        counts = chance.binomial(1, 0.6 + luck) - chance.binomial(1, 0.6 - luck)
        alarms += p_value(counts, groups=groups) <= ALPHA
        before += p_value(counts) / look_factor(1) <= ALPHA
        if number < 500:
            report = EvalReport("job", "shop", "", 1, (), {})
            told = {str(place): float(one) for place, one in enumerate(counts)}
            named = {str(place): str(one) for place, one in enumerate(groups)}
            low, high = Comparison(report, report, told, 1.0, groups=named).bounds
            held += low <= 0.0 <= high
    assert alarms / TRIALS <= MOST, alarms / TRIALS
    assert before / TRIALS > 0.06, "what is corrected for"
    assert held / 500 >= 0.93, held / 500


# Lessons


@pytest.mark.parametrize("others", [30, *nightly(10, 100)])
@pytest.mark.parametrize("rate", [0.7, *nightly(0.5, 0.9)])
def test_lesson_is_dropped_by_runs_only_if_it_harms(rate, others):
    chance, dropped, test = np.random.default_rng(7), dict.fromkeys([0.0, 0.1, -0.4], 0), cache(fisher)
    for change in dropped:
        for _ in range(TRIALS):
            rest = int(chance.binomial(others, rate))
            good = np.cumsum(chance.random(_LOOKS[-1]) < min(1.0, rate + change))
            dropped[change] += any(test(int(good[count - 1]), count, rest, others) <= _ALPHA for count in _LOOKS)
    assert dropped[0.0] / TRIALS <= 0.05, dropped
    assert dropped[0.1] / TRIALS <= 0.01, dropped
    assert dropped[-0.4] / TRIALS >= (0.4 if others == 10 else 0.85), dropped


@pytest.mark.nightly  # by day a hundred of them: `test_lessons.py`
@pytest.mark.parametrize(
    ("harm", "cases", "least", "most"),
    [(0.15, 40, 0.0, 0.05), (0.15, 100, 0.0, 0.05), (0.1, 100, 0.0, MOST), (0.0, 40, 0.3, 1.0), (0.0, 100, 0.8, 1.0)],
)
def test_lesson_that_hurts_other_cases_is_not_believed(harm, cases, least, most):
    """The cases that it is about get better by 30 points, the others worse, with three attempts each."""
    chance, believed = np.random.default_rng(8), 0
    for _ in range(TRIALS):
        target = chance.binomial(3, 0.7, 40) - chance.binomial(3, 0.4, 40)
        guard = chance.binomial(3, 0.8 - harm, cases) - chance.binomial(3, 0.8, cases)
        believed += decide(*adjust(comparison(target, 3), comparison(guard, 3))) == "helps"
    assert least <= believed / TRIALS <= most, believed / TRIALS
