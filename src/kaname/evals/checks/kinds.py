"""The checks of a case, by name: how each value is read, and what must hold. A check returns "" or what is wrong."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any, get_args

from ...core.durations import dollars, seconds
from ...core.errors import ConfigError
from ...core.messages import ToolCall
from ...core.notices import notice
from ...core.reading.japanese_numbers import japanese_numbers
from ...core.steps import StopKind
from ...core.values import identity, plain_text, read_json
from ...kernel.boundary import Failure, attempt
from ...tools.arguments.schema import matches, problems
from ...tools.loading import object_from
from .outcome import CaseOutcome
from .state import file_problem, prepare_sql, sql_problem

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)  # 合計300円 has one
_NO_NUMBER = re.compile(  # a date, a time, or three and more numbers that belong together: a version, a telephone number
    r"\d+([-/.:])\d+(?:\1\d+)+|\d{1,2}:\d{2}(?!\d)|\d{4}年\d{1,2}月(?:\d{1,2}日)?|(?<!\d)(?:19|20)\d\d-(?:0[1-9]|1[0-2])(?!\d)"
)
_COUNTER = re.compile(r"[円個名人件枚本冊台回泊通点年月日時分秒歳度倍割%]|ドル|ユーロ|パーセント|キロ|メートル|グラム|[ヶか]月")
_SHOWN = 200  # characters of an answer in a reason


def prepare(check: str, value: Any) -> Any:
    """Return the value of a check in its usual form. Raises `ConfigError` if it cannot be used."""
    read = KINDS[check][0]
    try:
        return value if read is None else read(value)
    except (TypeError, ValueError, KeyError, AttributeError, re.error) as problem:
        message = notice("eval.bad_check", "{check}: {value!r:.200} cannot be used: {problem}", check=check, value=value,
                      problem=str(problem))  # fmt: skip
        raise ConfigError(message) from problem


async def find_problem(check: str, value: Any, outcome: CaseOutcome) -> str:
    """Return the problem that a check finds in the outcome, or "" if it passes. A check that raises an exception fails."""
    work = KINDS[check][1]
    assert work is not None
    found = await attempt(work, outcome, value, passing=())
    return (
        notice("eval.check_failed", "the check raised {failure}", failure=str(found)) if isinstance(found, Failure) else found
    )


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]


def _equals(outcome: CaseOutcome, wanted: Any) -> str:
    given = outcome.output
    same_text = isinstance(wanted, str) and outcome.text.strip() == wanted.strip()
    if same_text or (not isinstance(wanted, str) and identity(_as_value(given)) == identity(wanted)):
        return ""
    return notice("eval.not_equal", "expected {wanted!r:.200}, got {given!r:.200}", wanted=wanted, given=given)


def _as_value(given: Any) -> Any:
    """Return the JSON value in a text; the text itself if there is none."""
    if not isinstance(given, str):
        return given
    try:
        return read_json(given)
    except ValueError:
        return given


def _contains(outcome: CaseOutcome, wanted: list[str]) -> str:
    text = unicodedata.normalize("NFKC", outcome.text)
    missing = [one for one in wanted if unicodedata.normalize("NFKC", one) not in text]
    if not missing:
        return ""
    return notice("eval.not_in", "{missing} is not in the answer {text!r}", missing=", ".join(map(repr, missing)),
                  text=outcome.text[:_SHOWN])  # fmt: skip


def _read_pattern(value: Any) -> str:
    re.compile(value)
    return str(value)


def _matches(outcome: CaseOutcome, pattern: str) -> str:
    found = matches(pattern, outcome.text)
    if found:
        return ""
    if found is None:
        return notice("eval.pattern_unknown", "whether the answer matches {pattern!r} cannot be said: it is too long, or the "
                      "pattern takes too long", pattern=pattern)  # fmt: skip
    return notice(
        "eval.no_match", "the answer {text!r} does not match {pattern!r}", text=outcome.text[:_SHOWN], pattern=pattern
    )


def _read_number(value: Any) -> tuple[float, float]:
    if not isinstance(value, Mapping):
        return float(value), 0.0
    if unknown := {*value} - {"is", "within"}:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    wanted, within = float(value["is"]), value.get("within", 0)
    share = isinstance(within, str) and within.strip().endswith("%")
    return wanted, abs(wanted) * float(within.strip().rstrip("%")) / 100 if share else float(within)


def _numbers_in(text: str) -> list[float]:
    """Return the numbers that a text names, in digits or in Japanese numerals. Dates and times are not numbers."""
    plain = _NO_NUMBER.sub(" # ", unicodedata.normalize("NFKC", text).replace("−", "-"))
    found, rest = list[float](), plain
    for one, value in japanese_numbers(plain):
        counts = len(one[0]) > 1 or _COUNTER.match(plain, one.end())  # 千 alone is a part of a name
        if counts and rest[one.start()] != "#":  # not a part of a number that was read already
            found.append(-value if plain[: one.start()].endswith("-") else value)
            rest = rest[: one.start()] + "#" * len(one[0]) + rest[one.end() :]
    return [float(one.replace(",", "")) for one in _NUMBER.findall(rest)] + found


def _number(outcome: CaseOutcome, wanted: tuple[float, float]) -> str:
    value, within = wanted
    given = outcome.output
    found = [float(given)] if isinstance(given, int | float) and not isinstance(given, bool) else _numbers_in(outcome.text)
    if any(abs(one - value) <= within + 1e-9 * max(1.0, abs(value)) for one in found):
        return ""
    listed = ", ".join([f"{one:g}" for one in found[:10]]) or "-"
    return notice("eval.no_number", "expected the number {value} (± {within}), got {found}", value=f"{value:g}",
                  within=f"{within:g}", found=listed)  # fmt: skip


def _schema(outcome: CaseOutcome, schema: Mapping[str, Any]) -> str:
    wrong = problems(_as_value(outcome.output), schema, "output")
    return wrong[0] if wrong else ""


def _read_schema(value: Any) -> Mapping[str, Any]:
    return {**value}


def _read_predicate(value: Any) -> Callable[[CaseOutcome], Any]:
    found = object_from(value, Path.cwd()) if isinstance(value, str) else value
    if not callable(found):
        raise TypeError("it is not a function")
    return found  # type: ignore[no-any-return]


async def _predicate(outcome: CaseOutcome, judge: Callable[[CaseOutcome], Any]) -> str:
    said = judge(outcome)
    said = await said if isawaitable(said) else said
    if isinstance(said, str):
        return said
    name = getattr(judge, "__name__", repr(judge))
    return "" if said else notice("eval.predicate", "{name} says no to {text!r}", name=name, text=outcome.text[:_SHOWN])


Wanted = tuple[str, Mapping[str, Any]]


def _read_calls(value: Any) -> list[Wanted]:
    made: list[Wanted] = []
    for one in [value] if isinstance(value, str | Mapping) else value:
        if isinstance(one, str):
            made.append((one, {}))
        else:
            made += [(str(name), dict(args or {})) for name, args in one.items()]
    return made


def _fits(call: ToolCall, wanted: Wanted) -> bool:
    name, args = wanted
    given = _as_value(call.args)
    if call.name != name or (args and not isinstance(given, Mapping)):
        return False
    return all(key in given and identity(given[key]) == identity(value) for key, value in args.items())


def _name(wanted: Wanted) -> str:
    return f"{wanted[0]}({', '.join([f'{key}={plain_text(value)}' for key, value in wanted[1].items()])})"


def _list_calls(outcome: CaseOutcome) -> str:
    return ", ".join([f"{call.name}({plain_text(call.args)[:80]})" for call in outcome.calls]) or "-"


def _calls(outcome: CaseOutcome, wanted: list[Wanted]) -> str:
    left = list(outcome.calls)
    for one in wanted:
        place = next((number for number, call in enumerate(left) if _fits(call, one)), None)
        if place is None:
            return notice(
                "eval.not_called", "{call} was not called. Calls: {calls}", call=_name(one), calls=_list_calls(outcome)
            )
        del left[place]
    return ""


def _calls_in_order(outcome: CaseOutcome, wanted: list[Wanted]) -> str:
    left = iter(outcome.calls)
    for one in wanted:
        if not any(_fits(call, one) for call in left):
            return notice("eval.not_in_order", "{call} was not called, or not in this order. Calls: {calls}", call=_name(one),
                          calls=_list_calls(outcome))  # fmt: skip
    return ""


def _no_calls(outcome: CaseOutcome, unwanted: list[Wanted]) -> str:
    made = [_name(one) for one in unwanted if any(_fits(call, one) for call in outcome.calls)]
    return notice("eval.called", "{call} was called", call=", ".join(made)) if made else ""


def _read_stop(value: Any) -> list[str]:
    for one in _texts(value):
        if one not in get_args(StopKind):
            raise ValueError(", ".join(get_args(StopKind)))
    return _texts(value)


def _stop(outcome: CaseOutcome, kinds: list[str]) -> str:
    if outcome.stop in kinds:
        return ""
    why = outcome.last.stop.summary
    return notice("eval.stop", "the run ended with {stop!r}, not {kinds}: {why}", stop=outcome.stop, kinds=", ".join(kinds),
                  why=why)  # fmt: skip


def _cost(outcome: CaseOutcome, most: float) -> str:
    if outcome.cost is None:
        return notice("eval.cost_unknown", "the cost is unknown, because the model has no known price")
    message = notice("eval.cost", "it cost ${cost}, more than ${most}", cost=f"{outcome.cost:.4f}", most=f"{most:.4f}")
    return message if outcome.cost > most else ""


def _steps(outcome: CaseOutcome, most: int) -> str:
    message = notice("eval.steps", "it took {steps} steps, more than {most}", steps=outcome.steps, most=most)
    return message if outcome.steps > most else ""


def _time(outcome: CaseOutcome, most: float) -> str:
    message = notice("eval.time", "it took {seconds} s, more than {most} s", seconds=f"{outcome.seconds:.1f}", most=f"{most:g}")
    return message if outcome.seconds > most else ""


def _read_rubric(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError("a text is needed")
    return value


RUBRIC = "rubric"  # a model judges it: see rubric.py
KINDS: dict[str, tuple[Callable[[Any], Any] | None, Callable[[CaseOutcome, Any], Any] | None]] = {
    "equals": (None, _equals),
    "contains": (_texts, _contains),
    "matches": (_read_pattern, _matches),
    "number": (_read_number, _number),
    "schema": (_read_schema, _schema),
    "predicate": (_read_predicate, _predicate),
    "calls": (_read_calls, _calls),
    "calls_in_order": (_read_calls, _calls_in_order),
    "no_calls": (_read_calls, _no_calls),
    "files": (_read_schema, file_problem),
    "sql": (prepare_sql, sql_problem),
    "stop": (_read_stop, _stop),
    "cost": (dollars, _cost),
    "steps": (int, _steps),
    "time": (seconds, _time),
    RUBRIC: (_read_rubric, None),
}
