"""Statistics that hold for few cases: exact tests, and intervals that respect that attempts and cases of a group are alike.

Nothing here needs a package. No test uses the normal distribution.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import cache
from math import ceil, comb, exp, floor, gcd, lgamma, log, sqrt

ALPHA = 0.05  # the rate of false alarms that every test here keeps, over all looks at a comparison
_POWER = 0.82  # how often a difference is planned to be shown, for 80 %: attempts of a case are not quite independent pairs
_ALIKE = 0.3  # how much attempts of one case correlate, in plans: three are worth 1.9 cases. Real judges: 0.04 to 0.41
_STEP, _MOST = 1.05, 250  # the sizes of evaluations that a plan chooses from: 6 cases, and up to 250 times 5 % more
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


def rate_interval(counts: Sequence[tuple[int, int]], groups: Sequence[Hashable] = ()) -> tuple[float, float]:
    """Return the 95 % interval of the mean rate of cases, given `(passed, attempts)` of each, and the group of each.

    Neither attempts of one case nor cases of one group are independent: the interval is that of as many independent trials as
    the variance between the groups allows. Without `groups`, each case is one.
    """
    places = [place for place, one in enumerate(counts) if one[1]]
    rates = [counts[place][0] / counts[place][1] for place in places]
    mean = sum(rates) / len(rates) if rates else 0.0
    most = sum([counts[place][1] for place in places])
    trials = _independent(rates, [groups[place] for place in places] if groups else places, mean * (1 - mean), most)
    return wilson(mean * trials, trials)


def _independent(values: Sequence[float], groups: Sequence[Hashable], variance: float, most: float) -> float:
    """Return the number of independent trials, each with this variance, whose mean is as certain as that of the values.

    The variance of the mean is the cluster-robust one, made larger as few groups demand. The result is at most `most`, and
    not below the number of groups; groups of different sizes count as fewer.
    """
    held = defaultdict[Hashable, list[float]](list)
    for value, group in zip(values, groups, strict=True):
        held[group].append(value)
    if len(held) < 2:
        return float(len(held))
    mean, count = sum(values) / len(values), len(held)
    least = len(values) ** 2 / sum([len(one) ** 2 for one in held.values()])
    between = sum([sum([value - mean for value in one]) ** 2 for one in held.values()]) / len(values) ** 2
    if count <= 4 or between <= 1e-12:
        return least
    return min(float(most), max(least, variance / (between * count / (count - 4))))


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


def look_factor(looks: int) -> float:
    """Return by what p is multiplied at this look at a comparison: 1.5, 7.5, 17.5, 31.5, …

    The k-th look may raise a false alarm in `ALPHA * 2 / (4 k² - 1)` of trials. That is `ALPHA` over all looks, however many
    there are and however they depend on each other.
    """
    return (4 * looks * looks - 1) / 2


def least_cases() -> int:
    """Return the number of cases that must differ, all in one direction, before a first look can show a difference."""
    count = 1
    while mcnemar(count, 0) * look_factor(1) > ALPHA:
        count += 1
    return count


def detectable(cases: int, repeat: int = 1) -> float | None:
    """Return the smallest difference of two pass rates, in whole points, that is shown in 80 % of trials; None if none is.

    It is shown as often if all cases have about the same chance, one half, to pass an attempt, so that repetitions count
    almost as cases; and if cases always pass or always fail, and none gets worse, so that repetitions do not help.
    """
    trials = floor(cases * repeat / (1 + (repeat - 1) * _ALIKE))

    def is_shown(points: int) -> bool:
        share = points / 100
        chances = ((1 + share) / 2) ** 2, ((1 - share) / 2) ** 2
        return power(cases, share, 0.0) >= _POWER and power(trials, *chances) >= _POWER

    if not is_shown(100):
        return None
    low, high = 0, 100
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_shown(middle) else (middle, high)
    return high / 100


def power(cases: int, better: float, worse: float) -> float:
    """Return the probability that a first look shows a difference, if each case gets better and worse with these chances."""
    differ, total = better + worse, 0.0
    middle, spread = cases * differ, 6 * sqrt(cases * differ * (1 - differ)) + 1
    for pairs in range(max(0, floor(middle - spread)), min(cases, floor(middle + spread)) + 1):
        few = _shown_below(pairs)
        if few >= 0:
            chance, gain = _binomial(pairs, cases, differ), better / differ
            total += chance * (_at_most(few, pairs, gain) + _at_most(few, pairs, 1 - gain))
    return total


@cache
def _shown_below(pairs: int) -> int:
    """Return the largest number of the rarer kind, of so many differing cases, that a first look takes for real; or -1."""
    low, high = -1, (pairs + 1) // 2
    while high - low > 1:
        middle = (low + high) // 2
        is_shown = 2 * _at_most(middle, pairs, 0.5) * look_factor(1) <= ALPHA
        low, high = (middle, high) if is_shown else (low, middle)
    return low


def cases_needed(margin: float, differing: float, looks: int = 1, trials: float = 1.0) -> int:
    """Return the number of cases that rule out a difference of more than `margin` in 80 % of trials, if there is none.

    `differing`: the share of cases that only one of the variants passes. `looks`: the number of that look. `trials`: the number
    of independent trials that a case is worth.
    """

    def is_enough(step: int) -> bool:
        count = ceil(least_cases() * _STEP**step) * trials
        chance = 1.2816 * sqrt(differing / count)  # of the difference, in one of ten trials to each side
        gains = min(1.0, (differing + chance) / 2)
        return _bounds(gains, max(0.0, differing - gains), count, ALPHA / look_factor(looks))[1] <= margin

    low, high = -1, _MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return ceil(least_cases() * _STEP**high)


def difference_trials(differences: Sequence[float], groups: Sequence[Hashable] = (), repeat: int = 1) -> float:
    """Return the number of independent single attempts in pairs that the differences are worth. See `difference_bounds`."""
    mean, differing = [sum(each) / len(differences) for each in (differences, map(abs, differences))]
    groups = groups or range(len(differences))
    return _independent(differences, groups, differing - mean * mean, len(differences) * repeat)


def difference_bounds(
    differences: Sequence[float], groups: Sequence[Hashable] = (), repeat: int = 1, alpha: float = ALPHA
) -> tuple[float, float]:
    """Return the bounds of the mean difference, at 1 - `alpha`.

    They are joined from exact bounds of the share of gains and the share of losses, by squares (MOVER).

    Args:
        differences: That of each case, from -1 to 1.
        groups: The group of each case (default: each is one). Groups are independent, cases of one group need not be.
        repeat: The attempts per case.
        alpha: How often the mean is outside, on both sides together.
    """
    gains, losses = [sum([max(0.0, sign * one) for one in differences]) / len(differences) for sign in (1, -1)]
    return _bounds(gains, losses, difference_trials(differences, groups, repeat), alpha)


def _bounds(gains: float, losses: float, trials: float, alpha: float) -> tuple[float, float]:
    ends = [(share - _lower_bound(share * trials, trials, alpha / 2), upper_bound(share * trials, trials, alpha / 2) - share)
            for share in (gains, losses)]  # fmt: skip
    alike = sqrt(gains * losses / ((1 - gains) * (1 - losses))) if gains + losses < 1 else 1.0  # a case cannot be both
    (down, up), (less, more) = ends
    mean = gains - losses
    low, high = [sqrt(one * one + other * other + 2 * alike * one * other) for one, other in ((down, more), (up, less))]
    return max(-1.0, mean - low), min(1.0, mean + high)


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


def upper_bound(successes: float, trials: float, tail: float) -> float:
    """Return the exact (Clopper-Pearson) upper bound of a rate. It is exceeded in `tail` of trials at most."""
    if successes >= trials - 1e-9:
        return 1.0
    return _bisect(lambda chance: _at_most(successes, trials, chance) > tail)


def _at_most(successes: float, trials: float, chance: float) -> float:
    """Return the probability of at most so many successes: a regularized incomplete beta function."""
    if successes >= trials:
        return 1.0
    if chance <= 0 or chance >= 1:
        return float(chance <= 0)
    first, second, place = trials - successes, successes + 1.0, 1 - chance
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


def _lower_bound(successes: float, trials: float, tail: float) -> float:
    return 1 - upper_bound(trials - successes, trials, tail) if successes > 1e-9 else 0.0


def _bisect(is_below: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high
