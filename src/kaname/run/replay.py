"""Replay a recorded run offline: the same loop, with recorded replies and results in place of model and tools."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from difflib import unified_diff
from itertools import groupby, zip_longest
from typing import Any, cast

from ..core.codec import dump, encode_body
from ..core.errors import ReplayDiverged
from ..core.events import (
    RESULT,
    Answered,
    Asked,
    Compacted,
    Custom,
    Event,
    HandedOff,
    Interjected,
    ModelReplied,
    Noted,
    Opened,
    Received,
    Resumed,
    Stopped,
    ToolFinished,
    ToolStarted,
)
from ..core.messages import ToolCall, ToolResult, user
from ..core.notices import join_notices, notice, without_wording
from ..core.people.answers import asks_person
from ..core.people.labels import FLOW
from ..core.record import field, mutable, record, replace
from ..core.state import State
from ..core.values import parting
from ..kernel.arguments import shown_arguments
from ..kernel.bases import ActionBase, optional, options_of
from ..kernel.load import load, read_run
from ..kernel.loop import advance
from ..kernel.ports import Action, Journal, Lease, Policy, Recipe, ToolContext
from ..kernel.scope import COMPACTED, Scope
from ..models.providers.replay import ReplayModel, without_folder
from ..people.left import LEFT
from ..policies.permission.flow.outbox import OUTBOX
from ..stores.memory import MemoryJournal
from ..strategies.orchestrate import Orchestrate
from ..tools.mcp.recorded import RecordedServerTool
from .child import question_as
from .recipe import describe, for_run, with_flow

_SHOWN = 400
_OPENING = (Opened, HandedOff, Received, Interjected, ToolFinished)
_COMPARED = (Noted, ModelReplied, ToolFinished, Asked, HandedOff, Compacted, Stopped)
_DECLARED = ("takes_context", "unfold", "identity")
_SETTINGS = notice("replay.settings", "the settings have changed")
_AFTER = notice("replay.after_the_end", "after the end of the record")
_NOTHING = notice("replay.nothing", "nothing")
_ELSEWHERE = notice(
    "replay.elsewhere", "instructions, settings and tools are the same: a context part or the strategy has changed the prompt"
)


@record
class Difference:
    """`fact`: the recorded fact's number, 0 where the record had ended. `prompt`: the model is sent something else than it was
    when it was recorded; what it would answer is not known."""

    fact: int
    recorded: str
    now: str
    prompt: bool = False

    def __str__(self) -> str:
        where = notice("replay.at", "at fact {fact}", fact=self.fact) if self.fact else _AFTER
        if self.prompt:
            return where
        return notice(
            "replay.difference",
            "{where}\n  recorded: {recorded}\n  now:      {now}",
            where=where,
            recorded=self.recorded or _NOTHING,
            now=self.now or _NOTHING,
        )


@record
class Replay:
    """`same`, or the first `difference`, with what has changed in the agent since the recording."""

    run_id: str
    difference: Difference | None
    changes: tuple[str, ...]

    @property
    def same(self) -> bool:
        return self.difference is None

    def raise_for_difference(self) -> Replay:
        if not self.same:
            raise ReplayDiverged(str(self))
        return self

    def __str__(self) -> str:
        if self.difference is None:
            return notice("replay.same", "run {run} takes the same decisions", run=self.run_id)
        since, where = join_notices("", ["\n" + change for change in self.changes]), str(self.difference)
        if not self.difference.prompt:
            return notice(
                "replay.decision",
                "run {run} takes a different decision {difference}{since}",
                run=self.run_id,
                difference=where,
                since=since,
            )
        if self.changes == (_SETTINGS,):
            return notice(
                "replay.request",
                "run {run} sends the model a different request {where}{since}",
                run=self.run_id,
                where=where,
                since=since,
            )
        return notice(
            "replay.prompt",
            "run {run} sends the model a different prompt {where}{since}",
            run=self.run_id,
            where=where,
            since=since or "\n" + _ELSEWHERE,
        )


class _RecordedTool(ActionBase):
    """Checks arguments as the real tool does, asks what it asked, and gives the recorded result."""

    def __init__(self, tool: Action, rerun: _Rerun, really_run: bool) -> None:
        self._tool, self._rerun, self._really_run = tool, rerun, really_run
        self.name, self.description, self.parameters, self.effect = tool.name, tool.description, tool.parameters, tool.effect
        self.options = replace(options_of(tool), timeout=None, undo=None, reconcile=None, price=0.0)
        for name in _DECLARED:
            setattr(self, name, optional(tool, ActionBase, name))

    def prepare(self, call: ToolCall) -> Any:
        return self._tool.prepare(call)

    def shown(self, prepared: Any) -> Mapping[str, Any]:
        return shown_arguments(self._tool, prepared).args

    async def act(self, prepared: Any, context: ToolContext) -> ToolResult:
        if self._really_run and self.effect == "pure":
            return await self._tool.act(prepared, context)
        if (question := self._rerun.open_question(context.call_id, context.state)) is not None:
            raise question_as(question.key, question)
        if not self._rerun.was_let_through(context.call_id):
            raise ReplayDiverged.of(
                "replay.no_call", "{name} was called; in the record it was not, or was refused", name=self.name
            )
        await self._rerun.try_again(context.call_id)
        return self._rerun.results[context.call_id]


async def replay(
    recipe: Recipe, journal: Journal, run_id: str, rerun_pure_tools: bool = False, deps: Any = None, servers: Any = None
) -> Replay:
    """Replay a run with an agent's recipe. The tools of servers that are not started are known from the record.

    Args:
        servers: The agent's tool servers. They are started to run pure tools for real, and for a record of an older kaname,
            which does not say which of the tools were theirs.
    """
    events = await read_run(journal, run_id)
    first = events[0].body if isinstance(events[0].body, Opened) else Opened()
    then, now = first.recipe, describe(recipe)
    if servers is not None and (rerun_pure_tools or "served" not in then):
        await servers.start()
    served = {} if servers is None else _server_tools(then)
    unstarted = [name for name, (of, _) in served.items() if name not in recipe.tools and servers.names(*of)]
    state = await load(journal, *first.base) if first.base else State()
    state.seq = 0
    stand_ins = {name: cast(Action, RecordedServerTool(name, events, *served[name])) for name in unstarted}
    offline = _with_stand_ins(recipe, stand_ins) if unstarted else recipe
    again = await _Rerun(for_run(offline, state, _opening(events), {}), state, events, rerun_pure_tools, deps).facts()
    changes, difference = tuple(_changes(then, now, unstarted, recipe)), _first_difference(events, again, blind=bool(unstarted))
    if difference is None and unstarted:
        others = {**now, "model": then.get("model"), "models": then.get("models")}
        if any(_changes(then, others, unstarted, recipe)):
            difference = Difference(next((e.seq for e in events if isinstance(e.body, ModelReplied)), 0), "", "", prompt=True)
    return Replay(run_id, difference, changes)


def _with_stand_ins(recipe: Recipe, stand_ins: Mapping[str, Action]) -> Recipe:
    tools, strategy = {**recipe.tools, **stand_ins}, recipe.strategy
    if isinstance(strategy, Orchestrate):  # it checks plans against the tools
        strategy = copy(strategy)  # also of a subclass with a constructor of its own
        object.__setattr__(strategy, "tools", tools)
    return recipe.with_changes(tools=tools, strategy=strategy)


def _server_tools(then: Mapping[str, Any]) -> Mapping[str, tuple[tuple[str, str], Sequence[Any]]]:
    """Return the recorded tools of servers: the server of each and its name there, then its effect and its labels.

    An older record does not say them.
    """
    named = then.get("served", ())
    told = {name: named[name] if isinstance(named, Mapping) else ("", "") for name in named}
    return {name: ((one[0], one[1]), one[2:4]) for name, one in told.items()}


class _Rerun:
    """The run once more: the same loop and policies, with the recorded replies and results in place of model and tools."""

    def __init__(self, recipe: Recipe, state: State, events: Sequence[Event], really_run: bool, deps: Any) -> None:
        self.events, self._really_run = list(_without_gaps(events)), really_run
        self.results = {e.body.result.call_id: e.body.result for e in self.events if isinstance(e.body, ToolFinished)}
        self._asked = list(_of_tools(self.events))
        self._started = list(_starts(self.events))
        self._model = ReplayModel(_as_given(self.events, state.replied))
        self._decided, self._begun = list[Event](), Counter[str]()
        self._clock, self._journal = _Clock(self.events, self._decided), MemoryJournal()
        recipe, lease = self._offline(recipe), Lease(0, 0)
        self._scope = scope = Scope(
            events[0].run_id, recipe, self._journal, lease=lease, state=state, sinks=[self._count], clock=self._clock
        )
        scope.deps, scope.guarded, scope.recalled = deps, with_flow, _brought_in(self.events, state.replied)

    def _offline(self, recipe: Recipe) -> Recipe:
        tools = {name: _RecordedTool(tool, self, self._really_run) for name, tool in recipe.tools.items()}
        for name in getattr(recipe.tools, "hidden", ()):
            tools[name].options = replace(tools[name].options, listed=False)
        policies = [one for policy in recipe.policies for one in _in_replay(policy, self.events)]
        team = {name: self._offline(member.with_changes(team={})) for name, member in recipe.team.items()}
        return recipe.with_changes(model=self._model, tools=tools, policies=tuple(policies), team=team)

    def _count(self, event: Event) -> None:
        if _is_decision(event.body):
            self._decided.append(event)
        if isinstance(event.body, ToolStarted):
            self._begun[event.body.call.id] += 1

    def open_question(self, call_id: str, state: State) -> Asked | None:
        """Return a question that the tool asked in this call and that is not answered yet."""
        return next((one for one in self._asked if one.call_id == call_id and one.key not in state.answers), None)

    def was_let_through(self, call_id: str) -> bool:
        """Return True if the call has a result in the record that is not a refusal before its tool was started."""
        result = self.results.get(call_id)
        return result is not None and (not result.not_run or any(one.call.id == call_id for one in self._started))

    async def try_again(self, call_id: str) -> None:
        """Record the further tries of a call, which limits count."""
        tries = [one for one in self._started if one.call.id == call_id][self._begun[call_id] :]
        if tries:
            await self._scope.record(*tries)

    async def facts(self) -> list[Event]:
        """Run to the end of the record, and return the facts."""
        scope, first, before = self._scope, self.events[0].body, self._scope.state.replied
        if isinstance(first, Opened) and first.base is not None:
            await self._journal.claim(first.base[0])  # what it goes on from is in the state already
        for stage in _stages(self.events):
            await self._begin(stage)
            while not scope.state.finished and (stage.upto is None or len(self._decided) < stage.upto):
                scope.inbox += [] if scope.inbox else stage.heard.pop(scope.state.replied - before, [])
                await advance(scope)
                await scope.write_pending()
            scope.inbox += [letter for letters in stage.heard.values() for letter in letters]  # what no reply has followed
        return [event async for event in self._journal.read(scope.run_id)]

    async def _begin(self, stage: _Stage) -> None:
        """Record what came from outside, at its time."""
        scope, state = self._scope, self._scope.state
        scope.lease = await self._journal.claim(scope.run_id, takeover=True)  # a stop has ended the lease before it
        self._clock.outside = stage.time
        if stage.stopped is not None and state.stop is None:
            begun = [one for one in stage.begun if one.call.id in state.open and one.call.id not in state.results]
            unread, scope.inbox = [one for one in scope.inbox if isinstance(one, Interjected)], []
            await scope.record(*begun, *unread, stage.stopped)
            self._begun.subtract([one.call.id for one in begun])  # running them again is the same start
            scope.lease = await self._journal.claim(scope.run_id, takeover=True)
        await scope.record(*stage.inbox)
        scope.interrupted, state.interrupted = dict(state.started), list(state.started)  # those that a person was asked about
        for call_id in [body.key.removeprefix(RESULT) for body in stage.inbox if isinstance(body, Answered)]:
            if call_id in self.results:  # the caller ran the call itself, and has spent this on it
                scope.charge(self.results[call_id].usage, call_id)
        self._clock.outside, scope.failure = None, None


def _in_replay(policy: Policy, events: Sequence[Event]) -> Iterator[Policy]:
    """Yield what stands in a replay where the policy stood."""
    if policy.about.repeat is not None:
        yield policy.about.repeat(events)
    if policy.about.replayed:
        yield policy


def _of_tools(events: Sequence[Event]) -> Iterator[Asked]:
    """Yield the questions that tools asked, while they ran. Those of policies are asked by the policies once more.

    The policies that a parent adds to its child do not stand in the replay of the child: their questions are repeated, too.
    """
    first, started = events[0].body, set[str]()
    for body in [event.body for event in events]:
        if isinstance(body, ToolStarted):
            started.add(body.call.id)
        elif isinstance(body, Asked) and (body.call_id in started or (isinstance(first, Opened) and first.parent is not None)):
            yield body


def _starts(events: Sequence[Event]) -> Iterator[ToolStarted]:
    """Yield the starts of calls that count: running an interrupted call again is the same start."""
    at_work: dict[str, str] = {}
    interrupted: dict[str, str] = {}
    for body in [event.body for event in events]:
        if isinstance(body, Resumed):
            interrupted = dict(at_work)
        elif isinstance(body, ToolFinished):
            at_work.pop(body.result.call_id, None)
        elif isinstance(body, ToolStarted):
            at_work[body.call.id] = body.call.name
            if interrupted.pop(body.call.id, None) != body.call.name:
                yield body


class _Clock:
    """Tells the time of the record: `outside`, when something came from outside, otherwise that of the next decision."""

    def __init__(self, events: Sequence[Event], decided: Sequence[Event]) -> None:
        self.outside: float | None = None
        self._decided = decided
        self._times = [*[event.time for event in events if _is_decision(event.body)], events[-1].time]

    def __call__(self) -> float:
        return self._times[min(len(self._decided), len(self._times) - 1)] if self.outside is None else self.outside


def _without_gaps(events: Sequence[Event]) -> Iterator[Event]:
    """Yield the facts as if no time had passed where the run stood still and its replay does not: after a crash, and while
    nobody had said how a call ended. A run does not count such times."""
    gaps, last = 0.0, events[0].time
    for event, after in zip_longest(events, events[1:], fillvalue=events[-1]):
        if isinstance(event.body, Resumed | Answered) and not _comes(event.body) and not _comes(after.body):
            gaps += event.time - last
        last = event.time
        yield replace(event, time=event.time - gaps)


def _as_given(events: Sequence[Event], replied: int) -> Iterator[Event]:
    """Yield the facts with the replies as the model gave them: `Flow` adds the calls that waited, and does so once more."""
    box: Mapping[str, Any] = {}
    for event in events:
        body = event.body
        if isinstance(body, Custom) and body.name == OUTBOX and isinstance(body.data, Mapping):
            box = body.data
        elif isinstance(body, ModelReplied):
            replied += 1
            if box.get("reply") == replied:
                message = body.reply.message
                own = tuple([part for part in message.parts if not (isinstance(part, ToolCall) and part.id in box["ids"])])
                reply = replace(body.reply, message=replace(message, parts=own))
                event = replace(event, body=replace(body, reply=reply))
        yield event


def _brought_in(events: Sequence[Event], replied: int) -> dict[tuple[str, int], Any]:
    """Return the values from outside of the run, and the summaries, by the number of the reply before which each was used."""
    found: dict[tuple[str, int], Any] = {}
    for body in [event.body for event in events]:
        replied += isinstance(body, ModelReplied)
        if isinstance(body, Compacted):
            found.setdefault((COMPACTED, replied + 1), []).append((body.summary, body.usage))
        elif isinstance(body, Custom) and isinstance(body.data, Mapping) and isinstance(body.data.get("reply"), int):
            found[body.name, body.data["reply"]] = body.data.get("value")
    return found


@mutable
class _Stage:
    """A stretch between two moments when the run stood still: what came from outside then, and where it was stopped from
    outside after so many decisions in all, if it was, with the calls that were under way at that moment."""

    stopped: Stopped | None
    inbox: list[Any]
    time: float = 0.0  # when it came
    upto: int | None = None
    heard: dict[int, list[Interjected]] = field(factory=dict)  # what was said after so many replies of the run
    begun: tuple[ToolStarted, ...] = ()


def _stages(events: Sequence[Event]) -> list[_Stage]:
    """Opened, Received | … Asked | Resumed, Answered | … Stopped (cancelled) | Resumed … gives three stages, of which the
    second is stopped from outside. A life after a crash is no stage of its own: in a replay nobody dies."""
    opening = _opening(events)
    stages = [_Stage(None, opening, events[max(0, len(opening) - 1)].time)]
    decided = sum([_is_decision(body) for body in opening])
    stopped: Stopped | None = None
    at_work: dict[str, ToolStarted] = {}
    stood_still, replied = True, 0
    for event in events[len(opening) :]:
        body = event.body
        decided += _is_decision(body)
        replied += isinstance(body, ModelReplied)
        stages[-1].heard.setdefault(replied, []).extend([body] if isinstance(body, Interjected) else [])
        if isinstance(body, ToolStarted):
            at_work[body.call.id] = body
        elif isinstance(body, ToolFinished):
            at_work.pop(body.result.call_id, None)
        if isinstance(body, Stopped) and _is_outside(body):
            stopped, stages[-1].upto = body, decided
        came = _comes(body)
        if came and not stood_still:
            stages.append(_Stage(stopped, [], begun=tuple(at_work.values())))
            stopped = None
        if came:
            stages[-1].inbox.append(body)
            stages[-1].time = event.time
        stood_still = came or (stood_still and isinstance(body, Resumed | Answered))
    return stages


def _opening(events: Sequence[Event]) -> list[Any]:
    """Return the facts with which a run begins. A fork begins with the open questions of the run from which it goes on."""
    found: list[Any] = []
    for event in events:
        asks = isinstance(event.body, Asked) and found and not any(isinstance(body, Received) for body in found)
        if not asks and not _opens(event.body):
            break
        found.append(event.body)
    return found


def _opens(body: Any) -> bool:
    noted = isinstance(body, Custom) and (body.name == FLOW or body.name.startswith(LEFT))  # of messages and earlier runs
    return noted or isinstance(body, _OPENING)


def _comes(body: Any) -> bool:
    """Return True for what begins a stage: an answer of a person, or a new start after a stop."""
    return (isinstance(body, Resumed) and body.renewed) or (isinstance(body, Answered) and asks_person(body.key))


def _first_difference(recorded: Sequence[Event], again: Sequence[Event], *, blind: bool = False) -> Difference | None:
    """`blind`: what was sent to the model cannot be compared, only what was decided."""
    cut = not _ended_by_itself(recorded)  # by death or from outside: it is compared as far as it goes
    again = [*_without_unfinished(recorded, again)] if cut else again
    before, now = list(_decisions(recorded, blind=blind)), list(_decisions(again, blind=blind))
    for old, new in zip_longest(before, now):
        if old is None and cut:
            return None
        fact, then, prompt, was = old or (0, "", "", "")
        _, told, sent, words = new or (0, "", "", "")
        if old is None or new is None or then != told:
            return Difference(fact, *parting(was, words, _SHOWN))
        if prompt != sent and not blind:
            return Difference(fact, prompt, sent, prompt=True)
    return None


def _without_unfinished(recorded: Sequence[Event], again: Sequence[Event]) -> Iterator[Event]:
    """Yield the facts of a replay without the results of calls that have none in the record."""
    known = {event.body.result.call_id for event in recorded if isinstance(event.body, ToolFinished)}
    return (event for event in again if not isinstance(event.body, ToolFinished) or event.body.result.call_id in known)


def _decisions(events: Sequence[Event], *, blind: bool) -> Iterator[tuple[int, str, str, str]]:
    """Return the decisions in order, each with the fingerprint of the request that led to it, and as it is shown.

    What ran in parallel is put in the order of the calls, with a transfer among them."""
    kept = [event for event in events if _is_decision(event.body)]
    for _, group in groupby(kept, key=lambda e: 0 if isinstance(e.body, ToolFinished | Asked | HandedOff) else e.seq):
        told = [(event.seq, *_told_apart(event.body, blind=blind)) for event in group]
        yield from sorted(told, key=lambda one: one[1]) if len(told) > 1 else told


def _told_apart(body: Any, *, blind: bool) -> tuple[str, str, str]:
    """Return a fact as it is compared, the fingerprint of the request that led to it, and the fact as it is shown."""
    if isinstance(body, ModelReplied):
        step = replace(body.step, instructions=None, schema=None) if blind else body.step  # of a plan, they list the tools
        told = " ".join(encode_body(replace(body, request="", step=step)))
        return told, body.request, told
    shown = " ".join(encode_body(body))
    if isinstance(body, Noted):  # what the model is told is a part of the next request, whose fingerprint is compared
        body = replace(body, message=user(""))
    kind, data = encode_body(replace(body, until=0.0) if isinstance(body, Asked) else body)
    return f"{kind} {data if '_notice' not in data else dump(without_wording(json.loads(data)))}", "", shown


def _is_decision(body: Any) -> bool:
    return isinstance(body, _COMPARED) and not _is_outside(body)


def _is_outside(body: Any) -> bool:
    if isinstance(body, Asked):
        return body.in_doubt or not asks_person(body.key)
    return isinstance(body, Stopped) and not body.decided


def _ended_by_itself(events: Sequence[Event]) -> bool:
    last = events[-1].body
    return isinstance(last, Stopped) and last.decided


def _changes(then: Mapping[str, Any], now: Mapping[str, Any], unstarted: Collection[str], recipe: Recipe) -> Iterator[str]:
    """Yield the differences between two descriptions of an agent. `unstarted`: the tools of servers that are not started."""
    lists_others = [name for name, one in recipe.tools.items() if unstarted and options_of(one).loads_tools]
    if then.get("instructions", "") != now.get("instructions", ""):
        old, new = str(then.get("instructions", "")), str(now.get("instructions", ""))
        heads = notice("replay.then", "--- instructions then"), notice("replay.now", "+++ instructions now")
        yield join_notices("\n", [*heads, *list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1))[2:]])
    if then.get("settings") != now.get("settings"):
        yield _SETTINGS
    if _models(then, strip=True) != _models(now, strip=True):
        yield notice("replay.model", "the model was {then} and is now {now}", then=_models(then), now=_models(now))
    before, after = then.get("tools", {}), now.get("tools", {})
    for name in sorted({*before, *after} - {*unstarted, *lists_others}):
        if before.get(name) != after.get(name):
            server = _server_tools(then).get(name, (("", ""), ()))[0][0]
            if name not in before:
                yield notice("replay.tool_new", "tool {name} is new", name=name)
            elif name in after:
                yield notice("replay.tool_other", "the description or the schema of tool {name} has changed", name=name)
            elif server:
                yield notice(
                    "replay.served_gone", "tool {name} of the server {server!r} no longer exists", name=name, server=server
                )
            else:
                yield notice("replay.tool_gone", "tool {name} no longer exists", name=name)


def _models(described: Mapping[str, Any], *, strip: bool = False) -> Any:
    """Return the name of the agent's model; of several, a list of names and of lists of equals."""
    names = described.get("models") or described.get("model")
    return without_folder(names) if strip and isinstance(names, str) else names
