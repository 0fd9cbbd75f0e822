"""Suggest lessons from failures and corrections, by rules or by a model, and drop lessons that have stopped helping."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from math import comb

from ...core.notices import join_notices, notice
from ...core.record import replace
from ...core.values import shorten
from ...kernel.ports import Journal
from .book import Lesson, LessonBook, make_lesson
from .history import Cause, PastRun, read_history
from .patterns import FailureGroup, group_failures, is_same_kind, telling_words

_LEAST, _EVIDENCE = 2, 20  # failed runs before a lesson is suggested; ids that are kept
_NAME = re.compile(r"[\w.-]{1,64}")  # of a tool: anything else is not quoted
_ARGUMENT = re.compile(r"[A-Za-z]\w{0,23}", re.ASCII)
_OLD = 6  # digits of ids of lessons that an older kaname stored
LONGEST = 300  # characters of an advice
_COMPARED = 10  # runs without a lesson before it is judged by them
_LOOKS = (5, 15, 50, 150)  # numbers of runs with a lesson after which it is judged
_ALPHA = 0.05 / len(_LOOKS)  # so that a lesson that changes nothing is dropped in at most 5 % of all cases

Ask = Callable[[FailureGroup], Awaitable[str]]
# fmt: off
_ADVICE: dict[Cause, Callable[[str], str]] = {
    "wrong arguments": lambda tool: notice(
        "lessons.parameters", "Check the parameters of {tool} before you call it.", tool=tool),
    "tool error": lambda tool: notice(
        "lessons.tool_error", "If {tool} fails, do not repeat the same call: change the arguments or avoid it.", tool=tool),
    "loop": lambda tool: notice(
        "lessons.loop", "Do not call {tool} again with the same arguments: work with the result that you have.", tool=tool),
    "refused": lambda tool: notice(
        "lessons.refused", "{tool} is not allowed for such tasks: do not call it, and say what you cannot do.", tool=tool),
    "limit": lambda tool: notice("lessons.limit", "Plan the steps first, and answer as soon as you can."),
    "bad form": lambda tool: notice(
        "lessons.form", "Give the final answer complete and exactly in the requested form, without other text."),
}
# fmt: on


async def learn_lessons(
    journal: Journal, agent: str, user: str | None = None, *, limit: int = 300, ask: Ask | None = None
) -> list[Lesson]:
    """Read the last runs of an agent, suggest new lessons, and drop those that do not help any more. Return what has changed.

    Args:
        journal: The journal with the runs.
        agent: The name of the agent.
        user: Read only the runs of this user (default: all; every lesson belongs to one user even so).
        limit: How many runs to read.
        ask: Asks a model to suggest lessons as well, see `kaname.evals.ask_model`. They always need a person's approval.
    """
    book, runs = LessonBook(journal), await read_history(journal, agent=agent, user=user, limit=limit)
    known = {one.id: one for one in await book.all(agent)}
    groups = group_failures(runs)
    found = list(chain.from_iterable([suggest(group, runs) for group in groups]))
    if ask is not None:
        found += [lesson_from(group, group.runs, runs, said, source="model") for group in groups if (said := await ask(group))]
    found = [replace(one, id=one.id[:_OLD]) if one.id[:_OLD] in known else one for one in found]
    new = [await book.put(one) for one in {one.id: one for one in found}.values() if _is_news(one, known.get(one.id))]
    judged = [(one, why) for one in known.values() if one.status != "dropped" and (why := judge_by_runs(one, runs))]
    return new + [await book.put(replace(one, status="dropped", why=why)) for one, why in judged]


def _is_news(lesson: Lesson, known: Lesson | None) -> bool:
    """Return True for a lesson that is new, or that has twice the evidence and was not tried or judged before."""
    untouched = known is not None and known.status == "suggested" and not known.trial
    return known is None or (untouched and len(lesson.evidence) >= 2 * len(known.evidence))


def suggest(group: FailureGroup, runs: Sequence[PastRun]) -> Iterator[Lesson]:
    """Yield lessons for a group of failures, by rules. `runs`: all runs, to see what succeeded."""
    if group.cause == "user unhappy":
        for one in group.runs:
            if one.note.strip():
                yield lesson_from(group, [one], runs, shorten(" ".join(one.note.split()), LONGEST), source="user")
        return
    if len(group.runs) >= _LEAST and (advice := _advice(group, runs)):
        yield lesson_from(group, group.runs, runs, advice)


def lesson_from(group: FailureGroup, of: Iterable[PastRun], runs: Sequence[PastRun], advice: str, **more: str) -> Lesson:
    meant = [*of]
    others = [one.task for one in runs if one.agent == meant[0].agent and one not in meant]
    evidence = tuple([one.run_id for one in meant[-_EVIDENCE:]])
    when = telling_words([one.task for one in meant], others) if others else ()
    about = {"cause": group.cause, "tool": group.tool, "when": when, "evidence": evidence, **more}
    return make_lesson(meant[0].agent, group.user, advice, **about)


def _advice(group: FailureGroup, runs: Sequence[PastRun]) -> str:
    """Return the advice; "" if the cause alone does not say. Only names of tools that the agent has, and of their
    arguments, are quoted: everything else in a run can be other people's text."""
    tool = group.tool if group.tool in group.runs[-1].offered and _NAME.fullmatch(group.tool) else ""
    if group.cause == "wrong arguments":
        names = ", ".join(_arguments(tool, group.user, runs)) if tool else ""
        if names:
            return notice("lessons.arguments", "Call {tool} with these arguments: {names}.", tool=tool, names=names)
        if not tool:
            return notice("lessons.tools", "Call only tools that you have, by their exact names.")
    if group.cause not in _ADVICE or ("{tool}" in _ADVICE[group.cause]("{tool}") and not tool):
        return ""
    avoided = tool if group.cause in ("tool error", "refused") else ""
    way = () if group.cause in ("wrong arguments", "bad form") else _way(group, runs, avoided)
    worked = [notice("lessons.way", "This order of tools has worked: {tools}.", tools=" → ".join(way))] if way else []
    return join_notices(" ", [_ADVICE[group.cause](tool), *worked])


def _arguments(tool: str, user: str, runs: Sequence[PastRun]) -> tuple[str, ...]:
    """Return the arguments that calls of a tool by the same user have had that fitted it.

    A tool that takes any argument lets a model write text as the name of one: only short names are quoted.
    """
    own = [call for run in runs if run.user == user for call in run.calls]
    seen = Counter([call.arguments for call in own if call.name == tool and not call.problem])
    best = seen.most_common(1)[0][0] if seen else ()
    return best if all(_ARGUMENT.fullmatch(name) for name in best) else ()


def _way(group: FailureGroup, runs: Sequence[PastRun], avoided: str) -> tuple[str, ...]:
    """Return the tools, in their order, that such tasks of the same user were done with most often, without one of them."""
    good = [one for one in runs if not one.cause and one.user == group.user and one.tools and avoided not in one.tools]
    ways = Counter([one.tools for one in good if is_same_kind(one.task, group.runs[-1].task)]).most_common(1)
    usable = ways and ways[0][1] >= _LEAST and all(_NAME.fullmatch(name) for name in ways[0][0])
    return ways[0][0] if usable else ()


def judge_by_runs(lesson: Lesson, runs: Sequence[PastRun]) -> str:
    """Return the reason to drop a lesson, by the runs that were told it and others like them; "" if it is kept.

    It is dropped if Fisher's exact test shows that runs with it go worse. It is judged at a few fixed numbers of runs, each
    time by the first ones, so that it does not matter how often it is looked at, nor that this is done after failures.
    """
    parts = [not one.cause for one in runs if lesson.id in one.told]
    others = [
        not one.cause for one in runs if lesson.id not in one.told and one.agent == lesson.agent and lesson.fits(one.task)
    ]
    count = max([one for one in _LOOKS if one <= len(parts)], default=0)
    good, rest = sum(parts[:count]), sum(others)
    if len(others) < _COMPARED or not count or fisher(good, count, rest, len(others)) > _ALPHA:
        return ""
    return notice("lessons.harmed", "{good} of {count} runs with it went well, and {rate} without it", good=good, count=count,
                  rate=f"{rest / len(others):.0%}")  # fmt: skip


def fisher(good: int, count: int, rest: int, others: int) -> float:
    """Return the p-value of Fisher's exact test: `good` of `count` is not fewer than `rest` of `others` by more than chance."""
    every = good + rest
    ways: int = sum([comb(count, one) * comb(others, every - one) for one in range(max(0, every - others), good + 1)])
    return float(Fraction(ways, comb(count + others, every)))
