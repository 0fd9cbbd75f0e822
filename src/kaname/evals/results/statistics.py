"""Statistics that hold for few cases: exact tests and bounds, and intervals that respect that repetitions of a case are alike.

Nothing here needs a package. A test or an interval of a difference never uses the normal distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from math import ceil, comb, exp, floor, gcd, lgamma, log, sqrt

ALPHA = 0.05  # the rate of false alarms that every test here keeps
_Z = 1.959964  # the 97.5 % quantile of the normal distribution, for the Wilson interval
_STEPS = 40  # of a bisection


def wilson(passed: float, of: float) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a rate: `passed` successes in `of` independent trials."""
    if of <= 0:
        return 0.0, 1.0
    rate, square = passed / of, _Z * _Z
    centre = (rate + square / (2 * of)) / (1 + square / of)
    half = _Z / (1 + square / of) * sqrt(rate * (1 - rate) / of + square / (4 * of * of))
    return max(0.0, centre - half), min(1.0, centre + half)


def rate_interval(counts: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Return the 95 % interval of the mean rate of cases, given `(passed, attempts)` of each.

    Attempts of one case are not independent: the interval is that of as many independent trials as the variance between the
    cases allows, and never fewer than there are cases.
    """
    counts = [one for one in counts if one[1]]
    rates = [passed / of for passed, of in counts]
    if len(rates) < 2:
        return wilson(sum(rates), len(rates))
    mean, attempts = sum(rates) / len(rates), sum([of for _, of in counts])
    between = sum([(rate - mean) ** 2 for rate in rates]) / (len(rates) - 1) / len(rates)  # the variance of the mean
    trials = mean * (1 - mean) / between if between > 0 else float(len(rates))
    trials = min(float(attempts), max(float(len(rates)), trials))
    return wilson(mean * trials, trials)


def pass_power(passed: int, attempts: int, k: int) -> float | None:
    """Return the probability that k attempts of a case all pass (pass^k), estimated without bias; None with fewer than k."""
    return comb(passed, k) / comb(attempts, k) if 0 < k <= attempts else None


def mcnemar(better: int, worse: int) -> float:
    """Return the p-value of the exact McNemar test: so many cases that only one variant passed, and only the other."""
    pairs, few = better + worse, min(better, worse)
    ways: int = sum([comb(pairs, one) for one in range(few + 1)])
    return min(1.0, float(Fraction(2 * ways, 2**pairs)))


def sign_flip(differences: Sequence[Fraction | float | int]) -> float:
    """Return the p-value of the exact sign-flip test: is the mean of the differences between pairs zero?

    If two variants are alike, each case could as well have turned out the other way around: all signs are equally likely. Each
    case counts once, however often it was repeated. With differences of -1, 0 and 1, this is the exact McNemar test.
    """
    parts = [Fraction(one).limit_denominator(10_000) for one in differences if one]
    scale = 1
    for one in parts:
        scale = scale * one.denominator // gcd(scale, one.denominator)
    values = [int(one * scale) for one in parts]
    if not values:
        return 1.0
    divisor = gcd(*values)
    values = [one // divisor for one in values]
    sizes = [abs(one) for one in values]
    least = (sum(sizes) + abs(sum(values))) // 2  # a subset of the sizes with at least this sum is as extreme
    width = len(sizes) // 8 + 1  # bytes for the number of subsets with one sum
    ways = 1
    for size in sizes:
        ways += ways << (8 * width * size)
    text = ways.to_bytes((sum(sizes) + 1) * width, "little")
    extreme = sum(
        [int.from_bytes(text[place * width : (place + 1) * width], "little") for place in range(least, sum(sizes) + 1)]
    )
    return min(1.0, float(Fraction(2 * extreme, 2 ** len(sizes))))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values, adjusted by Holm for as many comparisons."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def least_cases() -> int:
    """Return how many cases must differ, all in one direction, before a difference can be shown."""
    count = 1
    while mcnemar(count, 0) > ALPHA:
        count += 1
    return count


def detectable(cases: int) -> float | None:
    """Return the smallest difference of two pass rates that so many cases can show; None if they cannot show any.

    Repetitions do not change it: they make each case more certain, but they are not other cases.
    """
    return least_cases() / cases if cases >= least_cases() else None


def power(cases: int, better: float, worse: float) -> float:
    """Return the probability that a difference is shown, if each case gets better and worse with these probabilities."""
    differ, total = better + worse, 0.0
    for pairs in range(cases + 1):
        chance = _binomial(pairs, cases, differ)
        shown = [one for one in range(pairs + 1) if _is_shown(one, pairs)]
        total += chance * sum([_binomial(one, pairs, better / differ if differ else 0.0) for one in shown])
    return total


@cache
def _is_shown(better: int, pairs: int) -> bool:
    return mcnemar(better, pairs - better) <= ALPHA


def cases_needed(margin: float, differing: float) -> int:
    """Return about how many cases rule out a difference of more than `margin`, if there is none.

    `differing`: the share of cases that only one of the variants passes.
    """
    cases = least_cases()
    while cases < 1_000_000 and max(_bounds(each := ceil(cases * differing / 2), each, cases)) > margin:
        cases = cases * 11 // 10 + 1
    return cases


def difference_bounds(differences: Sequence[float]) -> tuple[float, float]:
    """Return 95 % bounds of the mean difference, from exact bounds of the gains and of the losses."""
    gains, losses = sum([max(0.0, one) for one in differences]), sum([max(0.0, -one) for one in differences])
    return _bounds(gains, losses, len(differences))


def _bounds(gains: float, losses: float, count: int) -> tuple[float, float]:
    tail = ALPHA / 4
    low = _lower_bound(floor(gains + 1e-9), count, tail) - _upper_bound(ceil(losses - 1e-9), count, tail)
    high = _upper_bound(ceil(gains - 1e-9), count, tail) - _lower_bound(floor(losses + 1e-9), count, tail)
    return low, high


def kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """Return Cohen's κ of two raters; None if it is undefined, because there are no pairs or both always say the same."""
    if not pairs:
        return None
    same = sum([one == other for one, other in pairs]) / len(pairs)
    first, second = [sum([pair[place] for pair in pairs]) / len(pairs) for place in (0, 1)]
    chance = first * second + (1 - first) * (1 - second)
    return None if chance >= 1 else (same - chance) / (1 - chance)


def _binomial(successes: int, trials: int, chance: float) -> float:
    if chance <= 0 or chance >= 1:
        return float(successes == (trials if chance >= 1 else 0))
    ways = lgamma(trials + 1) - lgamma(successes + 1) - lgamma(trials - successes + 1)
    return exp(ways + successes * log(chance) + (trials - successes) * log(1 - chance))


def _upper_bound(successes: int, trials: int, tail: float) -> float:
    if successes >= trials:
        return 1.0
    return _bisect(lambda chance: _at_most(successes, trials, chance) > tail)


def _at_most(successes: int, trials: int, chance: float) -> float:
    """Return the probability of at most so many successes: a regularized incomplete beta function."""
    if chance <= 0 or chance >= 1:
        return float(chance <= 0)
    first, second, place = float(trials - successes), successes + 1.0, 1 - chance
    ways = lgamma(first + second) - lgamma(first) - lgamma(second)
    front = exp(ways + first * log(place) + second * log(chance))
    if place < (first + 1) / (first + second + 2):
        return front * _continued_fraction(first, second, place) / first
    return 1 - front * _continued_fraction(second, first, chance) / second


def _continued_fraction(first: float, second: float, place: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function (Lentz's method)."""
    numerator, denominator = 1.0, 1 / _not_zero(1 - (first + second) * place / (first + 1))
    value = denominator
    for step in range(1, 1000):
        even = step * (second - step) * place / ((first + 2 * step - 1) * (first + 2 * step))
        odd = -(first + step) * (first + second + step) * place / ((first + 2 * step) * (first + 2 * step + 1))
        for part in (even, odd):
            denominator = 1 / _not_zero(1 + part * denominator)
            numerator = _not_zero(1 + part / numerator)
            value *= denominator * numerator
        if abs(denominator * numerator - 1) < 1e-12:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


def _lower_bound(successes: int, trials: int, tail: float) -> float:
    return 1 - _upper_bound(trials - successes, trials, tail) if successes else 0.0


def _bisect(is_below: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high
