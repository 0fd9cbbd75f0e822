"""The protocols' own JavaScript clients (npm, on Node 20) against a server: what a page or a script gets to see.

Each script of `node/` tries some cases, and prints for each what its client made of the answers.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .npm import SCRIPTS, packages

__all__ = ["packages"]
pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.network]

Told = Callable[[str, str], list[Any]]


@pytest.fixture(scope="module")
def told(packages: Path, served: Any) -> Told:
    """What a script printed for one of its cases. As `paid`: what was paid while it ran."""

    @cache
    def run(script: str) -> dict[str, list[Any]]:
        before = _paid(served)
        with (SCRIPTS / f"{script}.mjs").open() as code:  # in this way it finds the packages of the folder it is run in
            command = ["node", "--input-type=module", "-", served.url]
            done = subprocess.run(command, cwd=packages, stdin=code, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        cases: dict[str, list[Any]] = {"paid": _paid(served)[len(before) :]}
        for name, one in map(json.loads, done.stdout.splitlines()):
            cases.setdefault(name, []).append(one)
        return cases

    return lambda script, case: run(script)[case]


def _paid(served: Any) -> list[str]:
    file = served.folder / "paid.txt"
    return file.read_text().split() if file.exists() else []


# OpenAI: chat completions


def test_openai_chat_lists_the_agents(told):
    assert told("chat", "models") == ["desk", "cashier", "worker", "lead"]


def test_openai_chat_answers(told):
    (done,) = told("chat", "whole")
    (choice,) = done["choices"]
    assert choice["message"] == {"role": "assistant", "content": "the sum is 7", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert done["usage"]["total_tokens"] > 0


def test_openai_chat_streams_words_and_usage_but_not_the_agents_own_tools(told):
    pieces = told("chat", "stream")
    choices = [choice for piece in pieces for choice in piece["choices"]]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "Let me see.\n\nthe sum is 7"
    assert not any("tool_calls" in choice["delta"] for choice in choices)
    assert choices[-1]["finish_reason"] == "stop"
    assert (pieces[-1]["choices"], pieces[-1]["usage"]["total_tokens"] > 0) == ([], True)
    (final,) = told("chat", "helper")
    assert final["choices"][0]["message"]["content"] == "Let me see.\n\nthe sum is 7"


def test_openai_chat_shows_the_agent_all_messages(told):
    (answer,) = told("chat", "history")
    assert answer.endswith("user: one | assistant: two | user: history")


def test_openai_chat_tells_errors(told):
    (unknown,) = told("chat", "unknown")
    assert (unknown["error"], unknown["code"]) == ("NotFoundError", "model_not_found")
    assert "there is no agent 'desc'; did you mean 'desk'?" in unknown["message"]
    assert told("chat", "fail")[-1]["message"].endswith("Details: the key is wrong")


# OpenAI: responses


def test_openai_response_holds_messages_and_calls(told):
    (done,) = told("responses", "whole")
    assert (done["status"], done["output_text"]) == ("completed", "Let me see.the sum is 7")
    assert [item["type"] for item in done["output"]] == ["message", "mcp_call", "message"]
    call = done["output"][1]
    assert (call["name"], call["arguments"], call["output"]) == ("add", '{"a": 3, "b": 4}', "7")


def test_openai_response_events_come_in_order(told):
    events = told("responses", "stream")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    item = ["response.output_item.added", "response.content_part.added", "response.output_text.delta"]
    item += ["response.output_text.done", "response.content_part.done", "response.output_item.done"]
    call = ["in_progress", "arguments.delta", "arguments.done", "completed"]
    call = [f"response.mcp_call{'_' if '.' in name else '.'}{name}" for name in call]
    assert list(_once(event["type"] for event in events)) == [
        "response.created",
        "response.in_progress",
        *item,
        item[0],
        *call,
        item[-1],
        *item,
        "response.completed",
    ]


def _once(names: Any) -> Any:
    """Names that follow each other are told once."""
    last = None
    for name in names:
        if name != last:
            yield name
        last = name


def test_openai_response_is_gathered_by_the_clients_stream(told):
    (done,) = told("responses", "helper")
    assert done["words"] == done["text"] == "Let me see.the sum is 7"
    assert [item["type"] for item in done["output"]] == ["message", "mcp_call", "message"]


def test_openai_response_carries_the_conversation_on(told):
    (answer,) = told("responses", "previous")
    assert answer.endswith("user: one | assistant: you said: one | user: history")


def test_openai_response_is_kept_until_it_is_deleted(told):
    fetched, cancelled, gone = told("responses", "kept")
    assert fetched["output_text"] == "you said: hi"
    assert cancelled["status"] == "completed", "it was over"
    assert (gone["error"], gone["status"]) == ("NotFoundError", 404)


@pytest.mark.parametrize(("case", "output"), [("approve", "paid 5"), ("deny", None)])
def test_openai_response_asks_for_approval(told, case, output):
    asked, done = told("responses", case)
    (request,) = asked["output"]
    assert (request["type"], request["name"], request["arguments"]) == ("mcp_approval_request", "pay", '{"amount": 5}')
    assert [item["type"] for item in done["output"]] == ["mcp_call", "message"]
    assert (done["output"][0]["approval_request_id"], done["output"][0]["output"]) == (request["id"], output)
    assert done["output_text"] == "it is done"


def test_openai_response_tells_errors(told):
    (refused,) = told("responses", "tools")
    assert refused["error"] == "BadRequestError"
    assert "tools is not supported" in refused["message"]
    (failed,) = told("responses", "fail")
    assert failed["status"] == "failed"
    assert failed["error"]["message"].endswith("Details: the key is wrong")


# AG-UI


def test_ag_ui_page_has_the_messages_of_a_run(told):
    first, second = told("ag_ui", "add")
    _, said, result, answer = first["messages"]
    (call,) = said["toolCalls"]
    assert (said["content"], call["function"]) == ("Let me see.", {"name": "add", "arguments": '{"a": 3, "b": 4}'})
    assert (result["role"], result["content"], result["toolCallId"]) == ("tool", "7", call["id"])
    assert answer["content"] == first["result"] == "the sum is 7"
    assert first["interrupts"] == []
    assert second["result"].endswith(
        "user: please add | assistant: Let me see. | tool:  | assistant: the sum is 7 | user: history"
    )


def test_ag_ui_page_tells_the_calls_of_two_runs_apart(told):
    (page,) = told("ag_ui", "twice")
    assert [one["role"] for one in page["messages"]] == ["user", "assistant", "tool", "assistant"] * 2
    calls = [call for one in page["messages"] for call in one.get("toolCalls", ())]
    assert [call["function"]["arguments"] for call in calls] == ['{"a": 3, "b": 4}'] * 2


def test_ag_ui_page_has_the_thinking(told):
    (page,) = told("ag_ui", "think")
    assert [(one["role"], one["content"]) for one in page["messages"][1:]] == [
        ("reasoning", "hm, well"),
        ("assistant", "thought about it"),
    ]


def test_ag_ui_page_is_told_that_a_run_failed(told):
    error, page = told("ag_ui", "fail")
    assert error["type"] == "RUN_ERROR"
    assert error["message"].endswith("Details: the key is wrong")
    assert len(page["messages"]) == 1


@pytest.mark.parametrize(("case", "result"), [("approve", "paid 5"), ("deny", "the user did not allow this call")])
def test_ag_ui_page_is_interrupted_and_resumes(told, case, result):
    asked, done = told("ag_ui", case)
    (interrupt,) = asked["interrupts"]
    (call,) = asked["messages"][-1]["toolCalls"]
    assert (interrupt["toolCallId"], call["function"]["name"]) == (call["id"], "pay")
    assert done["interrupts"] == []
    assert [(one["role"], one["content"]) for one in done["messages"][2:]] == [("tool", result), ("assistant", "it is done")]


# Vercel AI SDK


def _parts(page: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the last message, without the borders of its steps."""
    return [part for part in page["messages"][-1]["parts"] if part["type"] != "step-start"]


def test_vercel_chat_has_text_and_tools_in_one_message(told):
    first, second = told("vercel", "add")
    assert (first["status"], len(first["messages"])) == ("ready", 2)
    said, call, answer = _parts(first)
    assert (said["type"], said["text"], said["state"]) == ("text", "Let me see.", "done")
    assert (call["type"], call["toolName"], call["state"]) == ("dynamic-tool", "add", "output-available")
    assert (call["input"], call["output"]) == ({"a": 3, "b": 4}, 7)
    assert answer["text"] == "the sum is 7"
    (history,) = _parts(second)
    assert history["text"].endswith(
        "user: please add | assistant: Let me see. | tool:  | assistant: the sum is 7 | user: history"
    )


def test_vercel_chat_has_the_thinking(told):
    (page,) = told("vercel", "think")
    assert [(part["type"], part["text"]) for part in _parts(page)] == [("reasoning", "hm, well"), ("text", "thought about it")]


def test_vercel_chat_shows_a_tool_that_failed(told):
    (page,) = told("vercel", "broken")
    call, answer = _parts(page)
    assert (call["state"], answer["text"]) == ("output-error", "it did not work")
    assert "it is broken" in call["errorText"]


def test_vercel_chat_tells_errors(told):
    (page,) = told("vercel", "fail")
    assert page["status"] == "error"
    assert page["error"].endswith("Details: the key is wrong")
    (page,) = told("vercel", "unknown")
    assert page["status"] == "error"
    assert "there is no agent 'desc'" in page["error"]


def test_vercel_chat_asks_for_approval_and_goes_on_in_the_same_message(told):
    asked, done, again, last = told("vercel", "approve")
    (call,) = _parts(asked)
    assert (call["toolName"], call["state"], call["input"]) == ("pay", "approval-requested", {"amount": 5})
    assert [message["id"] for message in done["messages"]] == [message["id"] for message in asked["messages"]]
    call, answer = _parts(done)
    assert (call["state"], call["output"], answer["text"]) == ("output-available", "paid 5", "it is done")
    assert _parts(again)[0]["state"] == "approval-requested"
    assert _parts(last)[-1]["text"] == "it is done"


def test_vercel_chat_shows_a_call_that_was_not_allowed(told):
    _, done = told("vercel", "deny")
    call, answer = _parts(done)
    assert (done["status"], call["state"], answer["text"]) == ("ready", "output-denied", "it is done")


# All of them


@pytest.mark.parametrize(("script", "paid"), [("chat", []), ("responses", ["5"]), ("ag_ui", ["5"]), ("vercel", ["5", "5"])])
def test_node_clients_pay_only_what_was_allowed(told, script, paid):
    assert told(script, "paid") == paid
