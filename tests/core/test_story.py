"""A run as lines: each with its own fact, a result where it was known, and parallel results below their calls."""

from __future__ import annotations

import pytest

from kaname.core.events import (
    Answered,
    Asked,
    Event,
    ModelReplied,
    Opened,
    Received,
    Resumed,
    Stopped,
    ToolFinished,
    ToolStarted,
)
from kaname.core.messages import Message, ModelReply, Text, ToolCall, ToolResult, user
from kaname.core.people.story import Order, lines
from kaname.core.steps import CallModel, Stop


def replied(text="", *calls):
    parts = (*([Text(text)] if text else []), *[ToolCall(one, f"tool_{one}", {"n": 1}) for one in calls])
    return ModelReplied(ModelReply(Message("assistant", parts), "end_turn"), CallModel())


def started(call):
    return ToolStarted(ToolCall(call, f"tool_{call}", {"n": 1}))


def finished(call, error=None):
    return ToolFinished(ToolResult(call_id=call, output=f"result of {call}", error=error, name=f"tool_{call}"))


def asked(call):
    return Asked(f"approve:{call}", f"Run {call}?", call_id=call)


def answered(call):
    return Answered(f"approve:{call}", "yes", "ann")


def events(*bodies, run="r"):
    return [Event(run, seq, float(seq), "a", body) for seq, body in enumerate(bodies, 1)]


def told(facts):
    return [(line.event.seq, line.kind, line.apart) for line in lines(facts)]


def test_story_tells_an_approved_result_after_its_approval():
    facts = events(Opened(), Received(user("go")), replied("", "a"), asked("a"), Resumed(2), answered("a"), started("a"),
                   finished("a"), replied("done"))  # fmt: skip
    assert told(facts) == [
        (2, "asked", False),
        (3, "call", False),
        (4, "question", False),
        (5, "resumed", False),
        (6, "answer", False),
        (8, "result", True),
        (9, "said", False),
    ]


def test_story_tells_parallel_results_below_their_calls_in_the_order_of_the_calls():
    facts = events(Opened(), replied("", "a", "b"), started("a"), started("b"), finished("b"), finished("a"))
    assert told(facts) == [(2, "call", False), (6, "result", False), (2, "call", False), (5, "result", False)]


def test_story_of_parallel_calls_of_which_one_asks_tells_no_result_before_its_question():
    facts = events(replied("", "a", "b", "c"), started("c"), finished("c"), asked("a"), asked("b"), answered("b"), started("b"),
                   finished("b"), answered("a"), finished("a", "refused"))  # fmt: skip
    assert told(facts) == [
        (1, "call", False),
        (1, "call", False),
        (1, "call", False),
        (3, "result", False),
        (4, "question", False),
        (5, "question", False),
        (6, "answer", False),
        (8, "result", True),
        (9, "answer", False),
        (10, "error", True),
    ]


def test_story_of_a_workflow_tells_each_task_with_its_result():
    facts = events(Opened(), started("x"), started("y"), finished("y"), started("z"), finished("x"), finished("z"))
    assert [(line.event.seq, line.kind, line.whose) for line in lines(facts)] == [
        (2, "call", "x"), (6, "result", "x"), (3, "call", "y"), (4, "result", "y"), (5, "call", "z"), (7, "result", "z"),
    ]  # fmt: skip


def test_story_of_a_call_that_a_crash_cut_tells_its_result_after_the_restart():
    cut = events(replied("", "a"), started("a"), Resumed(2, died=True), started("a"), finished("a"))
    assert told(cut) == [(1, "call", False), (3, "resumed", False), (5, "result", True)]
    assert [line.kind for line in lines(cut[:2])] == ["call", "started"], "an open call was started"


def test_story_of_a_fork_tells_a_given_result_below_the_call_of_the_earlier_run():
    base = events(replied("", "a", "b"), started("a"), started("b"), finished("b"))
    fork = events(Opened(base=("r", 3)), finished("a"), started("b"), finished("b"), run="fork")
    found = [(line.event.run_id, line.event.seq, line.kind) for line in lines([*base[:3], *fork])]
    assert found == [("r", 1, "call"), ("fork", 2, "result"), ("r", 1, "call"), ("fork", 4, "result")]


def test_story_leaves_out_no_stop_but_a_completed_one():
    assert told(events(Stopped(Stop("completed"), "x"))) == []
    (line,) = lines(events(Stopped(Stop("failed", "no such city"))))
    assert (line.whose, line.text) == ("failed", "no such city")


@pytest.mark.parametrize("begin", range(1, 9))
def test_order_needs_the_facts_before_only_once(begin):
    facts = events(replied("", "a"), started("a"), finished("a"), replied("", "b"), asked("b"), answered("b"), started("b"),
                   finished("b"))  # fmt: skip
    whole, part = Order(), Order()
    expected = [whole.take(fact) for fact in facts]
    for fact in facts[:begin]:
        part.take(fact)
    assert [part.take(fact) for fact in facts[begin:]] == expected[begin:]
