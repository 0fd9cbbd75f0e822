"""AG-UI over HTTP: every event is one of the protocol's own types, and they come in its order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ag_ui.core import Event, RunAgentInput
from pydantic import BaseModel, TypeAdapter

from tests.serve.serving import events

EVENT = TypeAdapter(Event)
TEXT = ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "messageId")
THOUGHT = ("REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "messageId")
THINKING = ("REASONING_START", "REASONING_MESSAGE_CONTENT", "REASONING_END", "messageId")
CALL = ("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "toolCallId")


def _said(text: str) -> dict[str, Any]:
    return {"id": "1", "role": "user", "content": text}


def _told(http: Any, agent: str, *messages: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """The events of one request, each checked against the protocol, and their order."""
    asked = {
        "threadId": "t",
        "runId": "r",
        "messages": list(messages),
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
    }
    body = {**asked, **more}
    RunAgentInput.model_validate(body)
    with http.stream("POST", f"/ag-ui/{agent}", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        told = [one["data"] for one in events(answer.iter_lines())]
    for one in told:
        fits(one)
    in_order(told)
    return told


def fits(one: dict[str, Any]) -> None:
    """It is of a type of the protocol, and has no field that the protocol does not know."""
    event = EVENT.validate_python(one, by_alias=True, by_name=False)
    assert list(strangers(event)) == [], one


def strangers(held: Any) -> Iterator[str]:
    """Fields that the protocol's types do not have; they keep them."""
    if isinstance(held, BaseModel):
        yield from held.model_extra or ()
        held = [getattr(held, name) for name in type(held).model_fields]
    if isinstance(held, list):
        for inner in held:
            yield from strangers(inner)


def in_order(told: list[dict[str, Any]]) -> None:
    kinds = [one["type"] for one in told]
    assert kinds[0] == "RUN_STARTED"
    assert kinds[-1] in ("RUN_FINISHED", "RUN_ERROR")
    assert sum(kind.startswith("RUN_") for kind in kinds) == 2
    for start, content, end, key in (TEXT, THOUGHT, THINKING, CALL):
        for name in {one[key] for one in told if one["type"] in (start, content, end)}:
            own = [one["type"] for one in told if one.get(key) == name and one["type"] in (start, content, end)]
            assert own == [start, *[content] * (len(own) - 2), end], (name, own)
    for number, one in enumerate(told):
        if one["type"] == "TOOL_CALL_RESULT":
            ended = [before["toolCallId"] for before in told[:number] if before["type"] == "TOOL_CALL_END"]
            assert not ended or one["toolCallId"] in ended


def _joined(told: list[dict[str, Any]], kind: str) -> str:
    return "".join(one["delta"] for one in told if one["type"] == kind)


def test_ag_ui_tells_a_tool_call_between_two_messages(http):
    told = _told(http, "desk", _said("please add"))
    shown = list(dict.fromkeys((one["type"], one.get("messageId") or one.get("toolCallId")) for one in told))
    assert [kind for kind, _ in shown] == [
        "RUN_STARTED",
        *TEXT[:3],
        *CALL[:3],
        "TOOL_CALL_RESULT",
        *TEXT[:3],
        "RUN_FINISHED",
    ]
    assert _joined(told, "TEXT_MESSAGE_CONTENT") == "Let me see.the sum is 7"
    assert _joined(told, "TOOL_CALL_ARGS") == '{"a": 3, "b": 4}'
    assert [one["content"] for one in told if one["type"] == "TOOL_CALL_RESULT"] == ["7"]
    assert (told[0]["threadId"], told[0]["runId"]) == ("t", "r")
    assert told[-1]["result"] == "the sum is 7"
    assert told[-1]["outcome"] == {"type": "success"}
    assert told[-1]["usage"][0]["totalTokens"] > 0


def test_ag_ui_tells_thinking_before_the_text(http):
    told = _told(http, "desk", _said("think"))
    kinds = [one["type"] for one in told]
    assert _joined(told, "REASONING_MESSAGE_CONTENT") == "hm, well"
    assert kinds.index("REASONING_END") < kinds.index("TEXT_MESSAGE_START")
    assert _joined(told, "TEXT_MESSAGE_CONTENT") == "thought about it"


def test_ag_ui_tells_a_tool_that_failed_as_its_result(http):
    told = _told(http, "desk", _said("broken"))
    (result,) = [one for one in told if one["type"] == "TOOL_CALL_RESULT"]
    assert "it is broken" in result["content"]
    assert told[-1]["result"] == "it did not work"


def test_ag_ui_ends_a_run_that_failed_with_an_error(http):
    told = _told(http, "desk", _said("fail"))
    assert told[-1]["type"] == "RUN_ERROR"
    assert told[-1]["message"]
    assert told[-1]["code"].startswith("Model")


@pytest.mark.parametrize(
    ("answer", "paid"),
    [
        ({"status": "resolved", "payload": "yes"}, ["5"]),
        ({"status": "resolved", "payload": {"approved": True}}, ["5"]),
        ({"status": "resolved", "payload": {"editedArgs": {"amount": 3}}}, ["3"]),
        ({"status": "resolved", "payload": {"approved": False}}, []),
        ({"status": "cancelled"}, []),
    ],
)
def test_ag_ui_interrupt_is_resumed(http, served, answer, paid):
    asked = _told(http, "cashier", _said("go"))
    assert asked[-1]["outcome"]["type"] == "interrupt"
    (interrupt,) = asked[-1]["outcome"]["interrupts"]
    (call,) = [one for one in asked if one["type"] == "TOOL_CALL_START"]
    assert (interrupt["toolCallId"], call["toolCallName"]) == (call["toolCallId"], "pay")
    assert "pay" in interrupt["message"]
    file = served.folder / "paid.txt"
    before = file.read_text().split() if file.exists() else []
    told = _told(http, "cashier", _said("go"), resume=[{"interruptId": interrupt["id"], **answer}])
    assert told[-1]["outcome"] == {"type": "success"}
    assert told[-1]["result"] == "it is done"
    (result,) = [one for one in told if one["type"] == "TOOL_CALL_RESULT"]
    assert result["toolCallId"] == call["toolCallId"]
    assert (file.read_text().split() if file.exists() else [])[len(before) :] == paid
    again = http.post(
        "/ag-ui/cashier",
        json={"threadId": "t", "runId": "r", "messages": [], "resume": [{"interruptId": interrupt["id"], **answer}]},
    )
    assert again.status_code == 400
    assert "no longer open" in again.json()["detail"]


def test_ag_ui_interrupts_can_be_answered_one_by_one(http):
    first, second = _told(http, "cashier", _said("twice"))[-1]["outcome"]["interrupts"]
    answers = [{"interruptId": one["id"], "status": "resolved", "payload": True} for one in (first, second)]
    half = _told(http, "cashier", resume=answers[:1])
    assert half[-1]["outcome"] == {"type": "interrupt", "interrupts": [second]}
    assert _told(http, "cashier", resume=answers[1:])[-1]["result"] == "it is done"


def test_ag_ui_messages_of_the_page_are_what_the_agent_sees(http):
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 3, "b": 4}'}}
    told = _told(
        http,
        "desk",
        {"id": "1", "role": "user", "content": "please add"},
        {"id": "2", "role": "assistant", "content": "Let me see.", "toolCalls": [call]},
        {"id": "3", "role": "tool", "content": "7", "toolCallId": "c1"},
        {"id": "4", "role": "reasoning", "content": "hm"},
        {"id": "5", "role": "assistant", "content": "the sum is 7"},
        {"id": "6", "role": "user", "content": [{"type": "text", "text": "history"}]},
    )
    for words in ("user: please add", "assistant: Let me see.", "assistant: the sum is 7", "user: history"):
        assert words in told[-1]["result"]


def test_ag_ui_refuses_tools_of_the_page(http):
    tool = {"name": "x", "description": "", "parameters": {}}
    answer = http.post("/ag-ui/desk", json={"threadId": "t", "runId": "r", "messages": [_said("hi")], "tools": [tool]})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("tools is not supported")


def test_run_that_works_takes_a_message(http):
    run = http.post("/api/runs", json={"input": "long", "mode": "detach", "agent": "desk"}).json()["run_id"]
    *_, last = _told(http, "desk", _said("please add"), forwardedProps={"sayTo": run, "urgent": True})
    assert last["result"] == {"runId": run, "underWay": True}
    with http.stream("GET", f"/api/runs/{run}/events") as answer:
        assert any("the sum is 7" in line for line in answer.iter_lines())
