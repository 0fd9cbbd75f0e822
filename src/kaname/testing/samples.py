"""Samples: one of every fact and delta, to test that a sink or a journal accepts them all."""

from __future__ import annotations

from ..core import events as facts
from ..core.events import Body, Event
from ..core.messages import Media, Message, ModelReply, Text, Thinking, ToolCall, ToolResult, Usage, user
from ..core.steps import CallModel, Stop


def bodies() -> list[Body]:
    call = ToolCall("c1_0", "weather", {"city": "京都"})
    said = Message("assistant", (Thinking("hm", "sig"), Text("let me look"), call))
    photo = Media("image/png", "aGk=")
    result = ToolResult({"sky": "晴れ"}, None, "c1_0", "weather", media=(photo,), usage=Usage(1, 2, 0, None))
    return [
        facts.Opened("s1", "u1", ("other", 4), {"instructions": "be kind", "tools": {"weather": "abc"}}, ("above", "c9_0")),
        facts.Received(user("hello")),
        facts.Interjected(user("in yen"), "mika", 1.5, True, "5a1d"),
        facts.ModelReplied(ModelReply(said, "tool_use", Usage(10, 5, 2, 0.01), "m"), CallModel(note="go"), "f00d"),
        facts.ToolStarted(call, "pure", "run:c1_0"),
        facts.ToolFinished(result),
        facts.Asked("approve:c1_0", "Run it?", ("yes", "no"), "c1_0"),
        facts.Answered("approve:c1_0", {"args": {"city": "Nara"}}),
        facts.HandedOff("expert"),
        facts.Warned("sink", "printer on fire"),
        facts.Custom("plan", {"tasks": ["look", "say"]}),
        facts.Compacted(2, "They said hello."),
        facts.Noted(user("go on")),
        facts.Noted(user("say it now"), Stop("max_steps", "3 steps, the limit is 3")),
        facts.Resumed(2, True),
        facts.Stopped(Stop("completed"), {"n": 1}),
        facts.Stopped(Stop("failed", "no key", "ModelError")),
        facts.Unknown("Dreamed", {"of": ["electric", "sheep"]}),
        facts.Delta("text"),
        facts.Delta("hm", "thinking"),
        facts.Delta("50 %", "progress", "c1_0"),
    ]


def events(run_id: str = "sample") -> list[Event]:
    return [Event(run_id, number, 1_700_000_000.0 + number, "agent", body) for number, body in enumerate(bodies(), 1)]
