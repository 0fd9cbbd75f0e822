"""`calculator`: arithmetic that can be trusted with whatever a model types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from ...core.events import Effect
from ...core.messages import ToolResult
from .arithmetic import evaluate
from .exact import Number, Unsolvable

MOST_DIGITS = 1_000
_EXACT_DIGITS = 30  # of a decimal fraction; a longer one is rounded to what a float holds


class CalculatorTool:
    """`+ - * / // % **`, brackets, decimals, percent, sqrt, 万 and 億, pi and e; exact as far as possible.

    `100 + 10%` is 110, as on a pocket calculator. Anything else is refused, with the way to write it where there is one.
    """

    name = "calculator"
    description = (
        "Calculate an arithmetic expression exactly: + - * / // % ** ( ), decimals, percent (350*20%; 100 + 10% is 110), "
        "sqrt(16), pi, e. No other functions, no variables."
    )
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "for example (12.5 + 3) * 4"}},
        "required": ["expression"],
    }
    effect: Effect = "pure"
    labels: Mapping[str, Any] = {"result": "trusted"}

    async def execute(self, input_text: str) -> ToolResult:
        try:
            return ToolResult(format_number(evaluate(input_text)))
        except Unsolvable as problem:
            return ToolResult(error=str(problem), retryable=False)  # the same again would fail again


def format_number(value: Number) -> str:
    """The number as one writes it: whole numbers whole, decimals exactly where they end soon, else to 15–17 digits."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, int):
        return _whole(value)
    return _decimal(value)


def _whole(value: int) -> str:
    digits = int(value.bit_length() * math.log10(2)) + 1
    if abs(value) >= 10**MOST_DIGITS:
        raise Unsolvable(f"the result has about {digits:,} digits; at most {MOST_DIGITS:,} are shown")
    return str(value)


def _decimal(value: Fraction) -> str:
    ends = 10 ** (2 * _EXACT_DIGITS) % value.denominator == 0
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = MOST_DIGITS + 50, 10**6, -(10**6)
        exact = Decimal(value.numerator) / Decimal(value.denominator)
        if ends and len(exact.as_tuple().digits) <= _EXACT_DIGITS and abs(exact.adjusted()) < _EXACT_DIGITS:
            return f"{exact:f}"
        if abs(exact.adjusted()) < 300:
            return repr(float(value))
        context.prec = 17
        return str(+exact).replace("E", "e").replace("e+", "e")
