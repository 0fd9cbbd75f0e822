"""State of a run: a fold over its facts. `evolve` accepts every fact, and costs the same at the first and the millionth."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import Any

from .calls import call_key
from .events import (
    RESULT,
    WITHHELD,
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
    withholds,
)
from .messages import NOTHING, Message, ToolCall, ToolResult, Usage, is_withheld, placeholder, said_by, user, withheld_form
from .reading.as_read import read_text
from .record import field, mutable, replace
from .steps import Stop

FOLD = 20
"""Raise it with every change of `State` or of what `evolve` makes of a fact: snapshots of another fold are not used."""
MINTED = re.compile(r"c(\d{1,9})_\d+")  # the ids of calls: see kernel.replies


@mutable
class Spent:
    """Counters for the limits. They start from zero with every turn, and when a run is resumed after a stop.

    A step is a model's reply, or a call that no reply asked for. `by_tool` counts how often each tool was started, each retry
    and each call as a stand-in included. `by_call` counts calls that are equal, each once, also those that never started.
    """

    steps: int = 0
    seconds: float = 0.0
    usage: Usage = NOTHING
    by_tool: dict[str, int] = field(factory=dict)
    by_call: dict[Hashable, int] = field(factory=dict)
    charged: set[tuple[str, str]] = field(factory=set)  # calls, by their id and the tool that was used


@mutable
class State:
    """The state of a run, computed from its facts.

    A *turn* begins with a message of the user. The conversation includes the earlier runs that this run continues.

    Attributes:
        agent: The name of the agent at work.
        session: The session of the run, or "".
        user: The user to whom the run belongs, or "".
        by: The person who started the run for the user, or "" if the user did.
        messages: The conversation, without the instructions.
        said: All messages of the user, also those that a summary has replaced.
        filed: Messages with files that a summary has replaced.
        parent: The run and the call that opened this run, if it is a child.
        trace: The `traceparent` with which the run was started, or "".
        model: The name of the model with which the run was started.
        strategy: The kind of the strategy; "" in older records.
        turns: The number of turns, including this one.
        turn_start: The index in `messages` at which this turn begins.
        withheld: The question of this turn, if a policy has blocked it and has not let it through since.
        open: The calls of the last reply by id, in its order, until all of them have results.
        callers: The agents that asked for the open calls, by call id.
        unanswered: The number of open calls without a result.
        judging: True if the last reply has not been acted on yet.
        noted: True if the note for the next model call is already in the messages.
        replies: The replies of this turn.
        started: The calls that have started and not finished, by id.
        interrupted: Ids of calls that a crash interrupted. Running one of them again does not count as another start.
        starts: The number of starts of each tool in this turn, by name. Resuming the run does not reset it.
        stand_ins: The calls of this turn for which another tool was used, as pairs of the call id and that tool's name.
        results: The results of this turn, by call id.
        questions: The questions that wait for an answer, by key.
        answers: The answers, by the keys of their questions.
        answered_by: The people who gave the answers, by key.
        settled: The answered questions about calls, by key.
        custom: The data of the last custom fact of each name.
        spent: The counters for limits.
        usage: Tokens and cost of this run.
        limit: The limit that was reached, while the model is asked for its final answer.
        stop: The end of the run, if it has ended.
        output: The output that the end of the run recorded, as JSON; None if there is none, or the run has not ended.
        attempt: 1, and 1 more for each time that the run was resumed.
        seq: The number of this run's last fact.
        replied: The number of replies in the conversation. Call ids are made from it.
        facts: The number of facts in the conversation.
        time: The time of the last fact, in seconds since 1970.
    """

    agent: str = ""
    session: str = ""
    user: str = ""
    by: str = ""
    messages: list[Message] = field(factory=list)
    said: list[Message] = field(factory=list)
    filed: list[Message] = field(factory=list)
    parent: tuple[str, str] | None = None
    trace: str = ""
    model: str = ""
    strategy: str = ""
    turns: int = 0
    turn_start: int = 0
    withheld: Message | None = None
    open: dict[str, ToolCall] = field(factory=dict)
    callers: dict[str, str] = field(factory=dict)
    unanswered: int = 0
    judging: bool = False
    noted: bool = False
    replies: list[ModelReplied] = field(factory=list)
    started: dict[str, ToolStarted] = field(factory=dict)
    interrupted: list[str] = field(factory=list)
    starts: dict[str, int] = field(factory=dict)
    stand_ins: list[tuple[str, str]] = field(factory=list)
    results: dict[str, ToolResult] = field(factory=dict)
    questions: dict[str, Asked] = field(factory=dict)
    answers: dict[str, Any] = field(factory=dict)
    answered_by: dict[str, str] = field(factory=dict)
    settled: dict[str, Asked] = field(factory=dict)
    custom: dict[str, Any] = field(factory=dict)
    spent: Spent = field(factory=Spent)
    usage: Usage = NOTHING
    limit: Stop | None = None
    stop: Stop | None = None
    output: Any = None
    attempt: int = 1
    seq: int = 0
    replied: int = 0
    facts: int = 0
    time: float = 0.0

    def is_another(self, person: str) -> bool:
        """Return True for a person who is neither the user nor the one who started the run for the user."""
        return person not in ("", self.user, self.by)

    @property
    def waiting(self) -> bool:
        return bool(self.questions)

    @property
    def finished(self) -> bool:
        """Return True if there is nothing to do now: the run has stopped, or waits for an answer."""
        return self.stop is not None or bool(self.questions)

    @property
    def concluding(self) -> Stop | None:
        """Return the limit for which a last answer is requested, until the answer has come."""
        return self.limit if self.noted else None

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """Return the calls that have no result yet."""
        return tuple([call for call in self.open.values() if call.id not in self.results])

    @property
    def history(self) -> tuple[Message, ...]:
        """Return the messages in a form that every provider accepts: a call without a result gets one that says what is known
        of it."""
        return (*self.messages, *_answers_to_open_calls(self)) if self.open else tuple(self.messages)

    @property
    def turn(self) -> tuple[Message, ...]:
        """Return the messages of this turn."""
        return self.history[self.turn_start :]

    @property
    def question(self) -> Message | None:
        """Return the user's message of this turn; the placeholder, if it is blocked."""
        return self.messages[self.turn_start] if self.turn_start < len(self.messages) else None

    @property
    def let_in(self) -> bool:
        """Return True if the facts show that this turn's question passed: it was answered, or only the answer was blocked.

        A run that was cancelled or failed before the first reply does not show it.
        """
        if self.withheld is not None or self.question is None or is_withheld(self.question):
            return False
        answered = any(not is_withheld(one.reply.message) for one in self.replies)
        stop = self.stop
        return answered or (stop is not None and (stop.kind in ("completed", "degraded") or stop.withheld == "output"))


def copy_of(state: State) -> State:
    """Return a copy of a state that can evolve while the original stays as it is."""
    lists = ("messages", "said", "filed", "replies", "stand_ins", "interrupted")
    dicts = ("open", "callers", "started", "starts", "results", "questions", "answers", "answered_by", "settled", "custom")
    names = (*lists, *dicts)
    return replace(state, **{name: copy(getattr(state, name)) for name in names})


def evolve(state: State, event: Event) -> State:
    """Apply one fact to the state, in place, and return the state. Appending in place keeps a long run fast."""
    state.seq = event.seq
    state.facts += 1
    body, kind = event.body, type(event.body)
    if state.time and kind not in _PAUSES:
        state.spent.seconds += max(0.0, event.time - state.time)
    state.time = event.time
    if (step := _EVOLVE.get(kind)) is not None:
        step(state, body, event)
    return state


_PAUSES = frozenset({Opened, Received, Resumed, Answered})  # the time before these is not counted: the run waited


def _apply_opened(state: State, body: Opened, event: Event) -> None:
    before, state.user = state.user, body.user
    state.agent, state.session, state.parent = event.agent, body.session, body.parent
    state.usage, state.attempt, state.trace, state.by = NOTHING, 1, body.trace, body.by
    state.strategy, state.model = str(body.recipe.get("strategy", "")), str(body.recipe.get("model", ""))
    state.spent = Spent()
    state.limit, state.stop, state.output = None, None, None
    _show_question(state)
    if before != body.user and state.said:
        _change_user(state, before)
    if body.base is not None:
        _forget_approvals(state)


def _forget_approvals(state: State) -> None:
    """Forget the answers that allow an effect: each run asks for itself. A call that is done needs none, and the ids of calls
    of a plan come again in the next turn."""
    for key in [key for key, asked in state.settled.items() if asked.allows_effect]:
        for held in (state.settled, state.answers, state.answered_by):
            held.pop(key, None)


def _change_user(state: State, before: str) -> None:
    """Mark what the user of the runs before this one has said as theirs, and what this run's user said earlier as their own."""
    known = {one.text for one in state.said}
    for messages in (state.messages, state.said):
        for place, one in enumerate(messages):
            if one.role == "user" and one.text in known:
                messages[place] = said_by(one, before, state.user)
    state.withheld = None if state.withheld is None else said_by(state.withheld, before, state.user)


def _apply_resumed(state: State, body: Resumed, event: Event) -> None:
    state.attempt = body.attempt
    nowhere = state.stop is not None and state.stop.kind in ("undecodable", "incomplete", "blocked")
    led_nowhere = nowhere or state.limit is not None
    state.stop, state.output, state.interrupted = None, None, list(state.started)
    _show_question(state)
    if body.renewed:
        state.questions = {
            key: asked for key, asked in state.questions.items() if not asked.until
        }  # asked anew, with more time
        state.spent, state.limit = Spent(), None
        if led_nowhere and not state.open:  # ask anew instead of judging the same reply again
            state.replies, state.judging = [], False


def _apply_received(state: State, body: Received, event: Event) -> None:
    hide_question(state)
    state.withheld = None
    state.messages.extend(_answers_to_open_calls(state))
    state.open, state.unanswered, state.started, state.questions, state.results = {}, 0, {}, {}, {}
    state.turn_start = len(state.messages)
    state.turns += body.message.role == "user"  # else it was said before this run, elsewhere
    state.callers, state.stand_ins, state.starts = {}, [], {}
    minted = [MINTED.fullmatch(call.id) for call in body.message.calls]
    state.replied = max([state.replied, *[int(one[1]) for one in minted if one]])  # no id is given twice
    state.messages.append(body.message)
    if body.message.role == "user":
        state.said.append(body.message)
    state.replies, state.judging, state.noted = [], False, False
    state.spent, state.limit, state.stop, state.output = Spent(), None, None, None


def _apply_interjected(state: State, body: Interjected, event: Event) -> None:
    state.messages.extend([*_answers_to_open_calls(state), body.message])  # none are open but those of an earlier run
    state.open, state.unanswered, state.judging = {}, 0, False  # the last reply does not answer everything any more
    state.said += [] if body.id in state.custom else [body.message]
    state.custom |= {body.id: {**state.custom[body.id], "told": True}} if body.id in state.custom else {}  # background work


def _apply_noted(state: State, body: Noted, event: Event) -> None:
    state.messages.append(body.message)
    state.noted, state.limit = True, body.limit


def _apply_model_replied(state: State, body: ModelReplied, event: Event) -> None:
    reply, spent = body.reply, state.spent
    state.messages.append(reply.message)
    state.replies.append(body)
    state.judging, state.noted = True, False
    if state.withheld is not None and not is_withheld(reply.message):
        state.withheld = None  # it was let through this time
    state.replied += 1
    spent.steps += 1
    _charge(state, reply.usage)
    for call in reply.message.calls:
        state.unanswered += call.id not in state.open and call.id not in state.results
        state.open[call.id] = call
        state.callers[call.id] = event.agent


def _apply_tool_started(state: State, body: ToolStarted, event: Event) -> None:
    call = body.call
    before, state.started[call.id] = state.started.get(call.id), body
    asked = state.open.get(call.id)
    if asked is not None and asked.name != call.name and (call.id, call.name) not in state.stand_ins:
        state.stand_ins.append((call.id, call.name))
    _charge_call(state, call)
    if state.interrupted and call.id in state.interrupted:
        state.interrupted.remove(call.id)
        if before is not None and before.call.name == call.name:
            return
    starts, by_tool = state.starts, state.spent.by_tool
    starts[call.name] = starts.get(call.name, 0) + 1
    by_tool[call.name] = by_tool.get(call.name, 0) + 1


def _close_calls(state: State) -> None:
    """Add the results of the open calls to the conversation, in the order of the calls."""
    state.messages.extend([Message("tool", (state.results[call],)) for call in state.open])
    state.open, state.judging = {}, False


def _apply_tool_finished(state: State, body: ToolFinished, event: Event) -> None:
    result = body.result
    started = state.started.pop(result.call_id, None)
    if started is None and result.call_id not in state.results and not result.waiting:
        _charge_call(state, state.open.get(result.call_id) or ToolCall(result.call_id, result.name))
        if f"{RESULT}{result.call_id}" in state.answers:  # the caller has carried it out
            _count_start(state, result.name, 1)
    _charge(state, result.usage)
    if started is not None and result.not_run:  # the tool itself has refused it
        _count_start(state, started.call.name, -1)
    if result.call_id in state.open and result.call_id not in state.results:
        state.unanswered -= 1
    state.results[result.call_id] = result
    for key in [key for key, question in state.questions.items() if question.call_id == result.call_id]:
        del state.questions[key]  # it was answered by the result itself, as in a fork
    if state.open and state.unanswered == 0:
        _close_calls(state)


def _apply_asked(state: State, body: Asked, event: Event) -> None:
    if body.key not in state.answers:
        state.questions[body.key] = body
    paused = None if body.in_doubt else state.started.get(body.call_id)
    if paused is not None and not (body.rules and paused.run_id != event.run_id):  # by the tool: it is not in flight
        del state.started[body.call_id]
        _count_start(state, paused.call.name, -1)  # it is started once more with the answer


def _apply_answered(state: State, body: Answered, event: Event) -> None:
    asked = state.questions.pop(body.key, None)
    state.answers[body.key], state.answered_by[body.key] = body.answer, body.by
    if asked is not None and (asked.about is not None or asked.allows_effect):
        state.settled[body.key] = asked


def _apply_handed_off(state: State, body: HandedOff, event: Event) -> None:
    state.agent = body.to


def _apply_custom(state: State, body: Custom, event: Event) -> None:
    state.custom[body.name] = body.data
    if body.name == WITHHELD:
        for messages in (state.messages, state.said, state.filed):
            outside = {id(message) for message in from_outside(messages)}
            for place, message in enumerate(messages):
                texts = (message.text, read_text(message)) if id(message) in outside else ()
                if any(withholds(body, "texts", text) for text in texts):
                    messages[place] = withheld_form(message)


def _apply_compacted(state: State, body: Compacted, event: Event) -> None:
    upto = min(max(0, body.upto), len(state.messages))
    if upto:
        question = state.messages[state.turn_start : min(state.turn_start + 1, upto)]
        state.filed += [one for one in state.messages[:upto] if one not in question and one.holds_media]
        state.messages[:upto] = [user(body.summary), *question]
        state.turn_start = max(1, state.turn_start - upto + 1)
    _charge(state, body.usage)


def _apply_stopped(state: State, body: Stopped, event: Event) -> None:
    state.stop, state.output = body.stop, body.output
    _charge(state, body.usage)
    if body.stop.kind == "blocked":
        state.withheld = state.question if body.stop.blocks_input else None
    hide_question(state)


def what_was_said(events: Iterable[Event]) -> list[tuple[Event, Message]]:
    """Return all messages that these facts put into the conversation, each with its fact, including those summarised since.

    A message that was blocked is the placeholder.
    """
    state, facts = State(), list[Event]()
    for event in events:
        if type(event.body) is not Compacted:
            evolve(state, event)
            facts += [event] * (len(state.messages) - len(facts))
    hide_question(state)
    return list(zip(facts, state.messages, strict=True))


def from_outside(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of a conversation that came from outside, and not from the agent or its tools."""
    results = [part for message in messages for part in message.parts if type(part) is ToolResult]
    calls = {one.call_id for one in results if one.source}
    return [
        message
        for message in messages
        if message.role in ("user", "system") or message.quotes or any(call.id in calls for call in message.calls)
    ]


def hide_question(state: State) -> None:
    """Replace this turn's question by the placeholder, if it is blocked."""
    if state.withheld is not None:
        _replace_question(state, placeholder())


def _show_question(state: State) -> None:
    """Restore a blocked question: the run is resumed, and the question is judged again."""
    if state.withheld is not None:
        _replace_question(state, state.withheld)


def _replace_question(state: State, message: Message) -> None:
    before, state.messages[state.turn_start] = state.messages[state.turn_start], message
    if before in state.said:  # more may have been said since
        state.said[len(state.said) - 1 - state.said[::-1].index(before)] = message


def _charge(state: State, usage: Usage) -> None:
    if usage is NOTHING:
        return
    spent, same = state.spent, state.spent.usage is state.usage  # in the first turn of a run
    state.usage += usage
    spent.usage = state.usage if same else spent.usage + usage


def _charge_call(state: State, call: ToolCall) -> None:
    """Count a call once per tool, as a step and as a repeat of calls that are equal. A retry of it is the same call."""
    spent, key = state.spent, (call.id, call.name)
    if key in spent.charged:
        return
    spent.charged.add(key)
    spent.steps += call.id not in state.open
    same = call_key(call)
    spent.by_call[same] = spent.by_call.get(same, 0) + 1


def _count_start(state: State, name: str, more: int) -> None:
    """Count a start of a tool in this turn, and since a resume."""
    for counts in (state.starts, state.spent.by_tool):
        counts[name] = max(0, counts.get(name, 0) + more)


def _answers_to_open_calls(state: State) -> list[Message]:
    return [Message("tool", (state.results.get(call.id) or _unfinished_result(state, call),)) for call in state.open.values()]


def _unfinished_result(state: State, call: ToolCall) -> ToolResult:
    if call.id in state.started:
        text = "interrupted: this call was started and may or may not have taken effect; check before you repeat it"
    elif any(question.call_id == call.id for question in state.questions.values()):
        text = "not run yet: this call waits for somebody's answer, and may still be run"
    elif state.stop is None:
        text = "not run yet"
    else:
        text = "not run: the run was stopped before this call"
    return ToolResult(error=text, call_id=call.id, name=call.name)


_EVOLVE: dict[type, Callable[[State, Any, Event], None]] = {
    Opened: _apply_opened,
    Resumed: _apply_resumed,
    Received: _apply_received,
    Interjected: _apply_interjected,
    Noted: _apply_noted,
    ModelReplied: _apply_model_replied,
    ToolStarted: _apply_tool_started,
    ToolFinished: _apply_tool_finished,
    Asked: _apply_asked,
    Answered: _apply_answered,
    HandedOff: _apply_handed_off,
    Custom: _apply_custom,
    Compacted: _apply_compacted,
    Stopped: _apply_stopped,
}
