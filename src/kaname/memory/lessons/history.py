"""Read recorded runs: what was asked, which tools were used, and, if a run failed, the one cause that its facts show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from ...core.calls import call_key
from ...core.errors import RunNotFound
from ...core.events import (
    WITHHELD,
    Custom,
    Event,
    ModelReplied,
    Opened,
    Received,
    Stopped,
    ToolFinished,
    ToolStarted,
    withholds,
)
from ...core.messages import REFUSAL, ModelReply, Provided, ToolCall, ToolResult
from ...core.record import record, replace
from ...core.runs import LESSONS, UNDER_WAY, RunInfo, is_own_run
from ...core.sentences import split_sentences
from ...core.steps import Stop
from ...kernel.load import list_runs, read_run
from ...kernel.ports import Journal
from ...run.figures import RATING
from ...tools.search.tokenize import query_terms

Cause = Literal["", "tool error", "wrong arguments", "loop", "limit", "refused", "bad form", "user unhappy", "error"]
WRITER = "lessons-writer"  # the agent with which a model suggests lessons
_FORM, _LOOP = ("undecodable", "incomplete"), 3  # equal calls
_SOON = 600.0  # seconds in which a request that is made again was not fulfilled
_WRONG = re.compile(  # a whole sentence: what else stands in it can turn its meaning
    r"(?:no\W+)?(?:sorry\W+)?(?:(?:(?:that|this|it|your answer)(?:['’]s| is| was) )?(?:still )?(?:wrong|incorrect|not (?:right|"
    r"correct|what i (?:asked(?: for)?|meant|said|wanted)))|you misunderstood(?: me)?)"
    r"|no\W+i (?:meant|said|asked for) (?!to\b).+"
    r"|(?:いや|いいえ)?、?(?:それは|これは|その答えは)?、?(?:まだ)?(?:(?:違|ちが)(?:います|うよ?)|(?:間違|まちが)(?:っています|ってる|いです)"
    r"|そうではありません|そうじゃない|そういう意味ではありません)",
    re.I,
)


@record
class UsedTool:
    """A call of a run: the tool, the names of its arguments, and "" or the cause of its failure."""

    name: str
    arguments: tuple[str, ...] = ()
    problem: Cause = ""


@record
class PastRun:
    """A run that has ended, as lessons see it.

    `task`: what the user asked; "" if that was blocked. `cause`: "" if it went well. `tool`: the tool that the cause is about.
    `note`: what the user said about the result. `told`: the lessons that the model was told. `offered`: the agent's tools.
    """

    run_id: str
    agent: str
    user: str
    session: str
    time: float
    task: str
    calls: tuple[UsedTool, ...] = ()
    cause: Cause = ""
    tool: str = ""
    note: str = ""
    told: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools in the order of their use. Several calls of one in a row count once."""
        names = [one.name for one in self.calls]
        return tuple([name for place, name in enumerate(names) if not place or names[place - 1] != name])


async def read_history(journal: Journal, *, agent: str = "", user: str | None = None, limit: int = 300) -> list[PastRun]:
    """Return the last runs that have ended, the oldest first. Cancelled runs, evaluations and child runs are left out."""
    found, withheld = list[PastRun](), list[tuple[tuple[str, ...], Custom]]()

    def counts(card: RunInfo) -> bool:
        return card.status not in (*UNDER_WAY, "cancelled") and is_own_run(card) and card.agent != WRITER

    for card in await list_runs(journal, counts, agent=agent, user=user, limit=limit):
        with suppress(RunNotFound):  # deleted meanwhile
            events = await read_run(journal, card.run_id)
            found.append(_read(card, events))
            facts = [event.body for event in events if isinstance(event.body, Custom) and event.body.name == WITHHELD]
            withheld += [((card.agent, card.user, card.session), fact) for fact in facts]

    def is_blocked(one: PastRun) -> bool:
        """Return True if the question was blocked later, in the same run or in one of its session."""
        return any(chat == (one.agent, one.user, one.session) and withholds(fact, "texts", one.task) for chat, fact in withheld)

    return _with_corrections([replace(one, task="") if withheld and is_blocked(one) else one for one in found[::-1]])


def _read(card: RunInfo, events: Iterable[Event]) -> PastRun:
    known: Mapping[str, Any] = {}
    asked, started, results = dict[str, ToolCall](), set[str](), list[ToolResult]()
    task, stop, rating, told = "", Stop("completed"), dict[str, Any](), tuple[str, ...]()
    refused = False
    for event in events:
        match event.body:
            case Opened(recipe={"tools": Mapping() as tools}):
                known = tools
            case Received(message) if message.role == "user":
                task = message.text
            case ModelReplied(reply):
                asked |= {call.id: call for call in reply.message.calls}
                refused = _is_refusal(reply)
            case ToolStarted(call):
                started.add(call.id)
                asked.setdefault(call.id, call)
            case ToolFinished(result) if not result.waiting:
                results.append(result)
            case Stopped(ended):
                stop = ended
            case Custom(name, dict() as data) if name == RATING:
                rating = data
            case Custom(name, dict() as data) if name.startswith(f"{LESSONS}:"):
                told = tuple((data.get("value") or {}).get("ids", ()))
    calls = tuple([_use(one, asked.get(one.call_id), one.call_id in started, known) for one in results])
    cause, tool = _cause(stop, calls, [*asked.values()], refused)
    cause = cause or _RATED.get(str(rating.get("rating")), "")
    note, task = str(rating.get("note", "")), "" if stop.blocks_input else task
    whose = (card.run_id, card.agent, card.user, card.session, card.created)
    return PastRun(*whose, task, calls, cause, tool, note, told, tuple(known))


def _use(result: ToolResult, call: ToolCall | None, started: bool, known: Mapping[str, Any]) -> UsedTool:
    given = call.args if call is not None and isinstance(call.args, Mapping) else {}
    problem: Cause = ""
    if result.is_error and started:
        problem = "tool error"
    elif result.is_error:
        of_form = result.retryable if result.not_run else result.name not in known
        problem = "wrong arguments" if of_form else "refused"
    return UsedTool(result.name, tuple(given), problem)


_RATED: dict[str, Cause] = {"bad": "user unhappy"}


def _is_refusal(reply: ModelReply) -> bool:
    return any(isinstance(part, Provided) and part.data.get("type") == REFUSAL for part in reply.message.parts)


def _most_repeated(calls: Iterable[ToolCall]) -> tuple[str, int]:
    """Return the tool that was called most often with the same arguments, and how often."""
    counts: Any = Counter([call_key(call) for call in calls]).most_common(1)
    return (str(counts[0][0][0]), counts[0][1]) if counts else ("", 0)


def _cause(stop: Stop, calls: Sequence[UsedTool], asked: Sequence[ToolCall], refused: bool) -> tuple[Cause, str]:
    """Return the cause of a failure and the tool that it is about. The first rule that fits decides."""
    if stop.kind == "completed":
        return ("refused", "") if refused else ("", "")
    if stop.kind == "blocked":
        return "refused", ""
    if stop.kind in _FORM:
        return "bad form", ""
    failed = Counter([(one.problem, one.name) for one in calls if one.problem])
    worst = failed.most_common(1)[0][0] if failed else None
    if stop.kind == "degraded":
        return worst or ("tool error", "")
    if worst is not None and failed.total() * 2 >= len(calls):  # a call that fails is repeated because it fails
        return worst
    repeated, times = _most_repeated(asked)
    if stop.kind == "duplicate" or times >= _LOOP:
        return "loop", repeated
    return ("error", "") if stop.kind == "failed" else ("limit", "")


def _with_corrections(runs: list[PastRun]) -> list[PastRun]:
    """Mark runs that went well, and whose next message in the same conversation corrects or repeats the request."""
    last: dict[tuple[str, str, str], int] = {}
    for place, one in enumerate(runs):
        chat = (one.agent, one.user, one.session)
        before = last.get(chat) if one.session else None
        if before is not None and not runs[before].cause and _corrects(one, runs[before]):
            runs[before] = replace(runs[before], cause="user unhappy", note=runs[before].note or one.task)
        last[chat] = place
    return runs


def is_correction(text: str) -> bool:
    """Return True if the first sentence of a message says, and does no more, that the answer before it is wrong.

    These are words, and not their meaning: "No, thanks" and "No, shorter" leave open what the user thinks, and do not count.
    """
    first = next(iter(split_sentences(text, also=":;")), "")
    return not first.endswith(("?", "？")) and _WRONG.fullmatch(first.strip(" ,、.!:;…。！：")) is not None


def _corrects(now: PastRun, before: PastRun) -> bool:
    if is_correction(now.task):
        return True
    said, words = set(query_terms(now.task)), set(query_terms(before.task))
    return bool(said) and said == words and now.time - before.time < _SOON
