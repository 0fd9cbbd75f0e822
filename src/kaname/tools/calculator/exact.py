"""Exact arithmetic on numbers, with limits on their size and on the work."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation, Overflow, localcontext
from fractions import Fraction

Number = int | Fraction | float

BITS = 40_000  # of a value on the way
_WORK = 2_000_000_000  # bits times bits, in all
_LARGEST_ROOT = 64
_LONGEST_EXPONENT = 300  # digits


class Unsolvable(ValueError):
    """What is wrong with the input, in words for whoever typed it."""


def simplify(value: Number) -> Number:
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


def _bits(value: Number) -> int:
    if isinstance(value, float):
        return 64
    return value.numerator.bit_length() + (value.denominator.bit_length() if isinstance(value, Fraction) else 0)


class Bench:
    """Where values are put together, with an eye on how large they grow and how much work it has been."""

    def __init__(self) -> None:
        self._left = _WORK

    def work(self, sign: str, left: Number, right: Number) -> Number:
        self._pay(_bits(left), _bits(right), isinstance(left, Fraction) or isinstance(right, Fraction) or sign == "/")
        if sign in ("/", "//", "%") and right == 0:
            raise Unsolvable("division by zero")
        exact = not isinstance(left, float) and not isinstance(right, float)
        if sign == "/" and exact:
            return self._check_size(simplify(Fraction(left, right)))  # type: ignore[arg-type]
        try:
            value = simplify(_SIGNS[sign](left, right))
        except (OverflowError, ZeroDivisionError):  # too small for a float, and not 0
            raise too_large() from None
        if value == 0 and sign in "*/" and left != 0 != right:
            raise too_large()
        return self._check_size(value)

    def _whole_power(self, base: int | Fraction, exponent: int) -> Number:
        if base in (0, 1, -1):
            return base**exponent if base else int(exponent == 0)
        size = _bits(base) * abs(exponent)
        if size > BITS + 64:
            return self._check_size(_grown(base, exponent))
        self._pay(size, size, False)
        return self._check_size(simplify(Fraction(base) ** exponent))

    def power(self, base: Number, exponent: Number) -> Number:
        if base == 0 and exponent < 0:
            raise Unsolvable("division by zero")
        if isinstance(exponent, int) and not isinstance(base, float):
            return self._whole_power(base, exponent)
        if base < 0 and not (isinstance(exponent, int) or (isinstance(exponent, float) and exponent.is_integer())):
            raise Unsolvable("a root of a negative number is not a real number")
        if isinstance(exponent, Fraction) and not isinstance(base, float):
            exact = self._root(base, exponent)
            if exact is not None:
                return exact
        try:
            value = float(base) ** float(exponent)
        except OverflowError:
            raise too_large() from None
        if value == 0 != base:
            raise too_large()
        return self._check_size(value)

    def _root(self, base: int | Fraction, exponent: Fraction) -> Number | None:
        """The root where it comes out exactly."""
        degree = exponent.denominator
        if degree > _LARGEST_ROOT:
            return None
        self._pay(_bits(base) * 8, _bits(base), True)
        above, below = _whole_root(base.numerator, degree), _whole_root(base.denominator, degree)
        if above is None or below is None:
            return None
        return self.power(simplify(Fraction(above, below)), exponent.numerator)

    def _pay(self, left: int, right: int, fractions: bool) -> None:
        self._left -= (left + 64) * (right + 64) * (8 if fractions else 1)
        if self._left < 0:
            raise Unsolvable("this takes too much work; make it smaller")

    def _check_size(self, value: Number) -> Number:
        if isinstance(value, float) and not math.isfinite(value):
            raise too_large()
        if _bits(value) > BITS:
            raise too_large()
        return value


_SIGNS: dict[str, Callable[..., Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def _grown(base: int | Fraction, exponent: int) -> float:
    """A fraction to a high power, as interest has it: too many digits to be exact, and yet no large number."""
    if isinstance(base, int) or abs(exponent) >= 10**_LONGEST_EXPONENT:
        raise too_large()
    digits = 40 + len(str(abs(exponent)))  # what is rounded off the base is multiplied by the exponent
    with localcontext(Context(prec=digits, Emax=10**6, Emin=-(10**6), traps=[InvalidOperation, Overflow])):
        try:
            value = float((Decimal(base.numerator) / Decimal(base.denominator)) ** exponent)
        except (InvalidOperation, Overflow, OverflowError):
            raise too_large() from None
    if value == 0 or not math.isfinite(value):
        raise too_large()
    return value


def _whole_root(value: int, degree: int) -> int | None:
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**degree < value:
            low = middle + 1
        else:
            high = middle
    return low if low**degree == value else None


def too_large() -> Unsolvable:
    return Unsolvable("the numbers become too large (or too small) to be handled")
