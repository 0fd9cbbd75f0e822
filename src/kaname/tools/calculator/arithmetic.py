"""Arithmetic as people and models type it: a grammar of numbers, signs and brackets, and nothing else.

Values stay exact (whole numbers and fractions) as long as that is possible. Work and size are bounded, so that no input can
take long or fill memory.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import NamedTuple

from .exact import BITS, Bench, Number, Unsolvable, simplify, too_large

LONGEST = 4_000  # characters
DEEPEST = 100  # brackets, signs and powers inside each other

_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_SPELLINGS = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full width
    **dict.fromkeys(map(ord, "×✕✖⋅·∙・∗"), " * "),  # apart, so that two of them are no other sign
    **dict.fromkeys(map(ord, "÷∕⁄"), " / "),
    **dict.fromkeys(map(ord, "−–﹣"), "-"),
    ord("￥"): "¥",
    ord("\u3000"): " ",
    ord("\xa0"): " ",
    ord("`"): " ",  # models like to put what they type into these
    ord("π"): " pi ",
    ord("Π"): " pi ",
}
_PARTS = {"½": "1/2", "¼": "1/4", "¾": "3/4"}
_PART = re.compile(r"([0-9]+)?([½¼¾])")
_TENS = {"": 1, "十": 10, "百": 10**2, "千": 10**3}
_MYRIADS = {"": 1, "万": 10**4, "億": 10**8, "兆": 10**12}
_UNITS = {tens + name: small * large for tens, small in _TENS.items() for name, large in _MYRIADS.items()}
_UNIT = "(?:[十百千]?[万億兆]|[十百千])"
_KANJI = re.compile("[〇一二三四五六七八九十百千万億兆]+")
_COUNT = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_COUNTED = re.compile(rf"({_COUNT})\s*({_UNIT})?")
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<large>{_COUNT}\s*{_UNIT}(?:{_COUNT}{_UNIT}?)*)
    |(?P<number>(?:[1-9][0-9]{{0,2}}(?:,[0-9]{{3}})+(?![0-9])|[0-9]+(?:_[0-9]+)*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?
              |\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<power>⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)
    |(?P<name>[^\W\d_]\w*)
    |(?P<sign>\*\*|//|[-+*/%^()√])
    )""",
    re.VERBOSE,
)
_MONEY = re.compile(
    r"(?<![0-9.)])[¥$€£]\s*(?=[.0-9])|(?<=[0-9十百千万億兆])\s*円(?!\s*[0-9(])"
)  # which says nothing of the number
_CONSTANTS = {"pi": math.pi, "e": math.e}
_KNOWN = "only numbers, + - * / // % **, brackets, sqrt(…), pi and e"
_LONGEST_HINT = 60  # characters


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


_END = _Token("end", "", -1, -1)


def evaluate(text: str) -> Number:
    if len(text) > LONGEST:
        raise Unsolvable(f"the input has {len(text):,} characters; at most {LONGEST:,} are read")
    typed = _PART.sub(_part, text).translate(_SPELLINGS).strip()
    typed = _MONEY.sub("", re.sub(r"\s*=\s*\??$", "", typed.removeprefix("=")))
    if not typed.strip():
        raise Unsolvable("there is nothing to calculate")
    return _Parser(typed).whole()


def _part(found: re.Match[str]) -> str:
    """`½`, and `1½`."""
    return f"({found[1] or 0}+{_PARTS[found[2]]})"


class _Parser:
    """Recursive descent with Python's precedence. It calculates while it reads.

    `_share` says what the value read last is made of: "" has no percentage in it, "percent" is a percentage, "mixed" is
    calculated with one, "rate" the same and begins with it. Only a sum needs to know.
    """

    def __init__(self, text: str, *, hints: bool = True) -> None:
        self._text, self._hints = text, hints
        self._tokens = _tokens(text)
        self._place = 0
        self._depth = 0
        self._share = ""
        self._bench = Bench()

    def whole(self) -> Number:
        value = self._sum()
        if self._next.kind != "end":
            raise self._unexpected_token()
        return value

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self, *signs: str) -> str:
        """The sign that comes next, if it is one of these."""
        token = self._next
        if token.kind == "sign" and token.text in signs:
            self._place += 1
            return token.text
        return ""

    def _sum(self) -> Number:
        value = self._product()
        while sign := self._take("+", "-"):
            before, start = self._share, self._next.start
            right = self._product()
            if self._share == "percent" and before != "percent":
                right = self._part_of(value, right, before, f"{sign} {self._text[start : self._tokens[self._place - 1].end]}")
            elif self._share == "rate" and not before:
                raise self._two_meanings(f"{sign} {self._text[start : self._tokens[self._place - 1].end]}")
            elif self._share != before:
                self._share = "mixed"
            value = self._bench.work(sign, value, right)
        return value

    def _part_of(self, whole: Number, percent: Number, before: str, typed: str) -> Number:
        """`100 + 10%` adds ten percent of 100, as a pocket calculator does. `100*5% + 10%` can mean that, or a sum of rates."""
        if before == "mixed":
            decimal = f"{typed[0]} {float(percent):g}"
            raise Unsolvable(f"{typed!r} has two meanings here: write (…) * (1 {typed}) to change by that part, or {decimal}")
        self._share = ""
        return self._bench.work("*", whole, percent)

    def _two_meanings(self, typed: str) -> Unsolvable:
        """`100 + 10% * 2`: a fifth of 100 more, or 0.2."""
        apart = f"{typed[0]} ({typed[2:]})"
        return Unsolvable(
            f"{typed!r} has two meanings here: write (…) * (1 {apart}) to change by that part, or {apart} for the product alone"
        )

    def _product(self) -> Number:
        value = self._signed_term()
        mixed = "rate" if self._share == "percent" else "mixed"
        while sign := self._take("*", "/", "//", "%") or self._times():
            before = self._share
            value = self._bench.work(sign, value, self._signed_term())
            self._share = mixed if before or self._share else ""
        return value

    def _times(self) -> str:
        """`3 x 4`."""
        if self._next.kind == "name" and self._next.text in ("x", "X"):
            after = self._tokens[self._place + 1]
            if after.kind in ("number", "name") or after.text == "(":
                self._place += 1
                return "*"
        return ""

    def _signed_term(self) -> Number:
        if not (sign := self._take("+", "-")):
            return self._power()
        self._deeper()
        value = self._signed_term()
        self._depth -= 1
        return -value if sign == "-" else value

    def _power(self) -> Number:
        value = self._atom()
        while True:
            if self._next.kind == "power":
                value = self._bench.power(value, _superscript(self._next.text))
                self._share = self._share and "mixed"
                self._place += 1
            elif self._is_percent():
                value = self._bench.work("/", value, 100)
                self._share = "percent"
                self._place += 1
            else:
                break
        if not self._take("**", "^"):
            return value
        self._deeper()
        before = self._share
        value = self._bench.power(value, self._signed_term())
        self._share = "mixed" if before or self._share else ""
        self._depth -= 1
        return value

    def _is_percent(self) -> bool:
        """`20%` and `20% + 1`, but not the remainder: `17 % 5`, `17 % (2 + 3)`, `17 % -5`."""
        token = self._next
        if token.text != "%":
            return False
        after = self._tokens[self._place + 1]
        if after.text == "(" or (after.kind in ("number", "name") and after.text not in ("x", "X")):
            return False
        spaced = token.start > 0 and self._text[token.start - 1].isspace() and after.start > token.end
        operand = self._tokens[min(self._place + 2, len(self._tokens) - 1)]
        return not (spaced and after.text in ("+", "-") and operand.start == after.end)

    def _atom(self) -> Number:
        token = self._next
        self._place += 1
        self._share = ""
        if token.kind == "number":
            return _literal(token.text)
        if token.kind == "large":
            return _large(token.text)
        if token.kind == "name" and token.text.lower() in _CONSTANTS:
            return _CONSTANTS[token.text.lower()]
        if token.text == "√" or (token.text.lower() == "sqrt" and self._next.text == "("):
            self._deeper()
            value = self._bench.power(self._atom(), Fraction(1, 2))
            self._depth -= 1
            return value
        if token.text == "(":
            self._deeper()
            value = self._sum()
            if not self._take(")"):
                raise self._unexpected_token(")")
            self._share = "mixed" if self._share == "rate" else self._share
            self._depth -= 1
            return value
        self._place -= 1
        raise self._unexpected_token()

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unsolvable(f"it is nested more than {DEEPEST} levels deep")

    def _unexpected_token(self, wanted: str = "") -> Unsolvable:
        token = self._next
        if token.kind == "end":
            missing = wanted or "a number"
            return Unsolvable(f"{missing} is missing at the end")
        place = f"{token.text[:40]!r} ({'character'} {token.start + 1})"
        if token.text == ")":
            return Unsolvable(f"{place} closes nothing, or an empty bracket")
        constant = token.text.lower() in _CONSTANTS
        if token.kind == "name" and not constant:
            digits = "; write numbers in digits: 3,000,000" if _KANJI.fullmatch(token.text) else ""
            return Unsolvable(f"{token.text[:40]!r} is not known here: {_KNOWN}{digits or self._times_hint()}")
        if token.kind in ("number", "large") or constant or token.text in ("(", "√"):
            return Unsolvable(f"an operator or a bracket is missing before {place}{self._times_hint()}")
        return Unsolvable(f"a number is missing before {place}")

    def _times_hint(self) -> str:
        """`2(3+4)`: a product, most likely, but `1/2(3+4)` would be two of them; it is only proposed, if it works."""
        written = self._as_product() if self._hints else ""
        for _ in range(_LONGEST_HINT):
            parser = _Parser(written, hints=False)
            try:
                parser.whole()
            except Unsolvable:
                written = parser._as_product()
            else:
                return f"; for a product write {written}"
            if not written:
                break
        return ""

    def _as_product(self) -> str:
        """The text with `*` before what comes next, if that could be meant."""
        token, before = self._next, self._tokens[self._place - 1] if self._place else _END
        number = "number", "large"
        follows = before.kind in number or before.text == ")" or before.text.lower() in _CONSTANTS
        product = (
            token.text in ("(", "√", "sqrt")
            or token.text.lower() in _CONSTANTS
            or (token.kind in number and before.text == ")")
        )
        if not (follows and product) or len(self._text) > _LONGEST_HINT:
            return ""
        return f"{self._text[: token.start].rstrip()}*{self._text[token.start :]}"


def _tokens(text: str) -> list[_Token]:
    found, place = [], 0
    end = len(text.rstrip())
    while place < end:
        token = _TOKEN.match(text, place)
        if token is None:
            rest = text[place:].lstrip()
            raise Unsolvable(
                "',' stands between thousands only: 1,234,567"
                if rest.startswith(",")
                else f"{rest[:1]!r} is not part of arithmetic (character {len(text) - len(rest) + 1})"
            )
        kind = token.lastgroup or ""
        found.append(_Token(kind, token[kind], token.start(kind), token.end(kind)))
        place = token.end()
    return [*found, _END]


def _superscript(text: str) -> int:
    digits = "".join([str(_SUPERSCRIPTS.index(char)) for char in text.lstrip("⁻")])
    if len(digits) > 6:
        raise too_large()
    return -int(digits) if text.startswith("⁻") else int(digits)


def _large(text: str) -> Number:
    """`3万`, `1億2000万`, `3万5千`: each part is smaller than the unit before it."""
    value, unit = Fraction(0), 0
    for count, name in _COUNTED.findall(text):
        part = Fraction(_literal(count)) * _UNITS.get(name, 1)  # a float never stands in a text of digits
        if unit and (part >= unit or _UNITS.get(name, 1) >= unit):
            raise Unsolvable(f"{text[:40]!r} is not a number: write it in digits, 1,200,000")
        value, unit = value + part, _UNITS.get(name, 1)
    return simplify(value)


def _literal(text: str) -> Number:
    mantissa, _, exponent = text.replace(",", "").replace("_", "").lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    if len(exponent) > 6 or len(whole) + len(decimals) + abs(int(exponent or 0)) > BITS // 4:
        raise too_large()
    shift = int(exponent or 0) - len(decimals)
    digits = int(whole + decimals or "0") if len(whole + decimals) < 4000 else _long_int(whole + decimals)
    return digits * 10**shift if shift >= 0 else simplify(Fraction(digits, 10**-shift))


def _long_int(digits: str) -> int:
    """Past the limit that Python sets for `int(text)`."""
    value = 0
    for start in range(0, len(digits), 1000):
        part = digits[start : start + 1000]
        value = value * 10 ** len(part) + int(part)
    return value
