"""Merge what several agents (or people) said into one answer; who said otherwise, and who failed, is told beside it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from statistics import fmean, median
from typing import Any, Literal, get_args

from ..core.errors import ConfigError
from ..core.people.answers import normalize_answer
from ..core.record import field, record
from ..core.values import plain_text, read_json
from ..run.result import Result

Strategy = Literal["majority", "weighted", "sum", "average", "median", "best", "synthesis"]
_SYNONYMS = {"majority_vote": "majority", "summation": "sum", "llm_based_synthesis": "synthesis"}
_NUMBER = re.compile(
    r"(?<![\w.,\-−])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d{1,300})(?:\.\d{1,300})?(?![\w,])|(?<![\w.])[-+−]?\.\d{1,300}(?!\w)"
)
_CLOSE = 1e-9
_LONGEST_CHOICE = 6  # digits
_BEST = """Several answers to one task follow, each under a number. Choose the best one: right, complete, and nothing made up.
Answer with JSON alone: {"number": its number, "reason": "why, in a sentence"}"""
_SYNTHESIS = """Several answers to one task follow. Write one answer from them: keep what they agree on, say where they
disagree, add nothing of your own. Write the answer alone."""


@record
class Merged:
    """The merged answer of several agents.

    Attributes:
        value: The merged answer.
        strategy: The strategy by which the answers were merged.
        agreement: The share of the answers, by their weights, that agree with `value`. Numbers must be equal to it.
        dissent: The other answers, by agent.
        failed: The reasons of agents without an answer, by agent.
        tied: True if another answer has the same weight.
        reason: The reason of the judge, if one was asked.
        run_id: The run of the judge, if one was asked.
    """

    value: Any
    strategy: str
    agreement: float
    dissent: Mapping[str, Any] = field(factory=dict)
    failed: Mapping[str, str] = field(factory=dict)
    tied: bool = False
    reason: str = ""
    run_id: str = ""


async def merge(
    results: Mapping[str, Any] | Iterable[Any],
    strategy: Strategy | str | Callable[[Mapping[str, Any]], Any] = "majority",
    *,
    weights: Mapping[str, float] | None = None,
    judge: Any = None,
    task: str = "",
) -> Merged:
    """Merge the answers of several agents, models or people into one.

    Args:
        results: Results of runs, plain values, or the errors that were raised: by name, or in a list.
        strategy: "majority", "weighted", "sum", "average", "median", "best", "synthesis", or a function of the answers by name.
        weights: For "weighted": the weight of each answer by name (default: 1).
        judge: For "best" and "synthesis": the agent that chooses the best answer, or writes one from all.
        task: The question, for the judge.

    Raises:
        ConfigError: There is no answer, or an argument cannot be used.
    """
    if isinstance(results, str) or not isinstance(results, Mapping | Iterable):
        raise ConfigError.of(
            "merge.results", "results must be a list, or a dict by name, not {results!r:.100}", results=results
        )
    kind = strategy if callable(strategy) else _check_strategy(strategy, weights, judge)
    answers, failed = _answers(results)
    if not answers:
        why = "; ".join([f"{name}: {why}" for name, why in failed.items()])
        raise ConfigError.of("merge.nothing", "there is nothing to merge: {why}", why=why or "no results")
    if callable(kind):
        value = kind(answers)
        return _as_merged(await value if isawaitable(value) else value, getattr(kind, "__name__", "own"), answers, failed)
    if kind in ("majority", "weighted"):
        return _vote(kind, answers, failed, weights or {})
    if kind in ("sum", "average", "median"):
        return _combine_numbers(kind, answers, failed)
    return await (_best if kind == "best" else _synthesis)(answers, failed, judge, task)


def _check_strategy(strategy: Any, weights: Any, judge: Any) -> str:
    """Return the usual name of a strategy. Raises `ConfigError` if it is unknown, or its judge or its weights are wrong."""
    if not isinstance(strategy, str):
        raise ConfigError.of(
            "merge.strategy_kind", "strategy must be a name or a function, not {strategy!r:.100}", strategy=strategy
        )
    kind = _SYNONYMS.get(strategy, strategy)
    if weights is not None and kind != "weighted":
        raise ConfigError.of("merge.weights_elsewhere", "weights can only be used with strategy 'weighted'")
    if kind not in get_args(Strategy):
        raise ConfigError.of(
            "merge.strategy",
            "strategy must be majority (majority_vote), weighted, sum (summation), average, median, best, synthesis "
            "(llm_based_synthesis) or a function, not {strategy!r}",
            strategy=strategy,
        )
    if kind in ("best", "synthesis") and judge is None:
        raise ConfigError.of("merge.judge", "strategy {kind!r} needs an agent that decides: pass judge=…", kind=kind)
    return kind


def _answers(results: Mapping[str, Any] | Iterable[Any]) -> tuple[dict[str, Any], dict[str, str]]:
    named = results.items() if isinstance(results, Mapping) else enumerate(results, 1)
    answers, failed = dict[str, Any](), dict[str, str]()
    for name, one in [(str(name), one) for name, one in named]:
        stop = one.stop if isinstance(one, Result) else None
        if isinstance(one, BaseException):
            failed[name] = f"{type(one).__name__}: {one}"
        elif stop is not None and stop.kind not in ("completed", "degraded"):
            failed[name] = stop.summary
        else:
            answers[name] = one.output if isinstance(one, Result) else one
    return answers, failed


def _same(value: Any) -> str:
    """Return a form that is equal for answers that mean the same: width, case and surrounding punctuation do not count."""
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFKC", value).casefold().strip(" \t\n.,;:!?。、！？「」\"'`*").split())
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.12g}"
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _as_merged(value: Any, strategy: str, answers: Mapping[str, Any], failed: Mapping[str, str], **more: Any) -> Merged:
    meant = _same(value)
    dissent = {name: one for name, one in answers.items() if _same(one) != meant}
    more.setdefault("agreement", (len(answers) - len(dissent)) / len(answers))
    return Merged(value, strategy, dissent=dissent, failed=failed, **more)


def _vote(kind: str, answers: Mapping[str, Any], failed: Mapping[str, str], weights: Mapping[str, float]) -> Merged:
    if unknown := [name for name in weights if name not in answers and name not in failed]:
        raise ConfigError.of(
            "merge.weights_unknown",
            "weights has unknown names: {unknown}; available: {there}",
            unknown=", ".join(unknown),
            there=", ".join(answers),
        )
    if not all(isinstance(weight, int | float) and 0 <= weight < float("inf") for weight in weights.values()):
        raise ConfigError.of("merge.weights", "weights must be numbers of 0 or more")
    counted, first = dict[str, float](), dict[str, Any]()
    for name, one in answers.items():
        counted[_same(one)] = counted.get(_same(one), 0.0) + weights.get(name, 1.0)
        first.setdefault(_same(one), one)
    most = max(counted.values())
    winners = [meant for meant, count in counted.items() if count >= most - _CLOSE]
    whole = sum(counted.values())
    return _as_merged(first[winners[0]], kind, answers, failed, agreement=most / whole if whole else 0.0, tied=len(winners) > 1)


def _combine_numbers(kind: str, answers: Mapping[str, Any], failed: Mapping[str, str]) -> Merged:
    """Sum, average or median. An answer without exactly one number counts as failed; `dissent` lists answers that differ."""
    numbers, unread = dict[str, float](), dict[str, str](failed)
    for name, one in answers.items():
        found = [one] if isinstance(one, int | float) and not isinstance(one, bool) else _numbers(plain_text(one))
        if len(found) == 1:
            numbers[name] = found[0]
        else:
            unread[name] = f"{len(found)} numbers in {plain_text(one)[:80]!r}"
    if not numbers:
        raise ConfigError.of(
            "merge.nothing",
            "there is nothing to merge: {why}",
            why="; ".join([f"{name}: {why}" for name, why in unread.items()]),
        )
    held = list(numbers.values())
    value = sum(held) if kind == "sum" else fmean(held) if kind == "average" else median(held)
    value = int(value) if float(value).is_integer() else value
    if kind == "sum":  # its parts are no other opinions
        return Merged(value, kind, 1.0, {}, unread)
    return _as_merged(value, kind, numbers, unread)


def _numbers(text: str) -> list[float]:
    """Units may follow in another script, `1,000円`; letters of the same one make a word of it."""
    plain = re.sub(r"(?<=\d)(?=[^\W\d_a-zA-Z])", " ", unicodedata.normalize("NFKC", text))
    found = [one.replace(",", "").replace("−", "-") for one in _NUMBER.findall(plain)]
    return [float(one) if "." in one else int(one) for one in found]


async def _best(answers: Mapping[str, Any], failed: Mapping[str, str], judge: Any, task: str) -> Merged:
    names = list(answers)
    result = await _ask_judge(judge, _BEST, answers, task)
    number, reason = _choice(result.output)
    if not 0 < number <= len(names):
        raise ConfigError.of(
            "merge.judge_chose_none",
            "the judge did not choose one of the {count} answers: {said}",
            count=len(names),
            said=plain_text(result.output)[:200],
        )
    return _as_merged(answers[names[number - 1]], "best", answers, failed, reason=reason, run_id=result.run_id)


def _choice(output: Any) -> tuple[int, str]:
    """Return the number that a judge chose, and its reason: `{"number": 2, "reason": "…"}`, or the number alone; else 0."""
    held: Any = output
    if isinstance(output, str):
        try:
            held = read_json(output)
        except ValueError:
            held = output
    reason = ""
    if isinstance(held, Mapping):
        held, reason = held.get("number"), str(held.get("reason", ""))
    if isinstance(held, str):
        bare = normalize_answer(held).removeprefix("#")
        held = int(bare) if bare.isdecimal() and len(bare) < _LONGEST_CHOICE else 0
    whole = isinstance(held, int | float) and not isinstance(held, bool) and held == held // 1
    return (int(held), reason) if whole else (0, "")


async def _synthesis(answers: Mapping[str, Any], failed: Mapping[str, str], judge: Any, task: str) -> Merged:
    result = await _ask_judge(judge, _SYNTHESIS, answers, task)
    if not result.completed:
        raise ConfigError(f"the judge wrote no answer: {result.stop.kind} {result.stop.detail}".strip())
    shares = [sum([_same(one) == _same(other) for other in answers.values()]) for one in answers.values()]
    agreed = max(shares) / len(answers)
    return Merged(result.output, "synthesis", agreed, {} if agreed == 1 else dict(answers), failed, run_id=result.run_id)


def _ask_judge(judge: Any, what: str, answers: Mapping[str, Any], task: str) -> Awaitable[Any]:
    """Ask the judge, in a run of its own. The names of the agents are left out, so that it judges only the answers."""
    listed = [f"<answer number={number}>\n{plain_text(one)}\n</answer>" for number, one in enumerate(answers.values(), 1)]
    asked: Awaitable[Any] = judge.run("\n\n".join([what, f"Task: {task}" if task else "", *listed]))
    return asked
