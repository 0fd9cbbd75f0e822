"""Calls of OpenAI's own tools that the client carries out: the run waits, and the answer goes back in its wire form."""

import json

import pytest

from kaname import Agent, Media, ModelRequest, tool
from kaname.models.providers.openai import OpenAI
from kaname.models.providers.responses import OpenAIResponses
from kaname.policies.failure.portable import without_seals
from kaname.testing.wire import WireServer, responses_reply

SHOT = "data:image/png;base64,iVBORw0KGgo="
CHECK = {"id": "sc_1", "code": "malicious", "message": "Look twice."}
CLICK = {"type": "click", "x": 1, "y": 2, "button": "left"}
EXEC = {"type": "exec", "command": ["ls"], "env": {}}
ITEMS = {
    "custom": {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_7", "name": "sql", "input": "SELECT 1"},
    "computer": {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "call_7",
        "action": CLICK,
        "status": "completed",
        "pending_safety_checks": [CHECK],
    },
    "local_shell": {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_7", "action": EXEC, "status": "completed"},
    "shell": {"type": "shell_call", "id": "sh_1", "call_id": "call_7", "action": {"commands": ["ls"], "max_output_length": 99}},
    "patch": {
        "type": "apply_patch_call",
        "id": "apc_1",
        "call_id": "call_7",
        "status": "completed",
        "operation": {"type": "delete_file", "path": "a.txt"},
    },
}
SAID = {
    "custom": ("3 rows", {"type": "custom_tool_call_output", "call_id": "call_7", "output": "3 rows"}),
    "computer": (
        {"output": {"image_url": SHOT, "acknowledged_safety_checks": [CHECK]}},
        {
            "type": "computer_call_output",
            "call_id": "call_7",
            "output": {"type": "computer_screenshot", "image_url": SHOT},
            "acknowledged_safety_checks": [CHECK],
        },
    ),
    "local_shell": ("a.txt", {"type": "local_shell_call_output", "id": "call_7", "output": "a.txt"}),
    "shell": (
        {"error": "no such file"},
        {
            "type": "shell_call_output",
            "call_id": "call_7",
            "max_output_length": 99,
            "output": [{"stdout": "", "stderr": "no such file", "outcome": {"type": "exit", "exit_code": 1}}],
        },
    ),
    "patch": ("deleted", {"type": "apply_patch_call_output", "call_id": "call_7", "status": "completed", "output": "deleted"}),
}
APPROVAL = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "pay",
    "server_label": "bank",
    "arguments": '{"yen": 5}',
}


def agent(server, *tools, **options):
    return Agent(OpenAIResponses("any", base_url=server.url, api_key="k"), tools, journal="memory", **options)


@pytest.mark.parametrize("kind", ITEMS)
async def test_a_call_for_the_client_is_a_question_and_its_answer_goes_back_in_its_form(kind):
    async with WireServer([responses_reply(items=[ITEMS[kind]]), "done", "and on"]) as server:
        made = agent(server)
        asked = await made.run("Go", session_id="s")
        ((key, question),) = asked.questions.items()
        assert asked.stop.kind == "waiting"
        assert ITEMS[kind]["type"] in question.prompt
        answer, sent = SAID[kind]
        result = await made.resume(asked.run_id, {key: answer})
        await made.run("Further", session_id="s")
        await made.close()
    assert result.output == "done"
    _, item, output = server.requests[1]["input"]
    assert item == ITEMS[kind], "as it came"
    assert output == sent
    assert server.requests[2]["input"][:2] == server.requests[1]["input"][:2], "also in the next turn"


@pytest.mark.parametrize(("answer", "approve"), [("yes", True), ("no", False), ("too much", False), ({"args": {}}, False)])
async def test_an_approval_that_a_server_of_the_provider_needs_is_a_yes_or_no_question(answer, approve):
    async with WireServer([responses_reply(items=[APPROVAL]), "done"]) as server:
        made = agent(server)
        asked = await made.run("Pay")
        ((key, question),) = asked.questions.items()
        assert (question.options, question.about.name, question.about.args) == (("yes", "no"), "bank.pay", {"yen": 5})
        result = await made.resume(asked.run_id, {key: answer})
        await made.close()
    assert result.output == "done"
    why = {"reason": "too much"} if answer == "too much" else {}
    told = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve, **why}
    assert server.requests[1]["input"][1:] == [APPROVAL, told]


async def test_a_tool_of_that_name_carries_the_call_out_and_the_model_is_not_told_of_it():
    @tool
    def computer_call(action: dict, pending_safety_checks: list) -> Media:
        """Do it, and return a picture of the screen."""
        return Media("image/png", "iVBORw0KGgo=")

    async with WireServer([responses_reply(items=[ITEMS["computer"]]), "done"]) as server:
        made = agent(server, computer_call, settings={"tools": [{"type": "computer_use_preview"}]})
        result = await made.run("Click")
        await made.close()
    assert result.output == "done"
    assert [one["type"] for one in server.requests[0]["tools"]] == ["computer_use_preview"]
    output = server.requests[1]["input"][-1]
    assert output == {
        "type": "computer_call_output",
        "call_id": "call_7",
        "output": {"type": "computer_screenshot", "image_url": SHOT},
    }, "the safety check is not acknowledged for the user"


async def test_a_call_that_the_provider_has_run_itself_is_no_question():
    ran = {"type": "shell_call_output", "id": "sho_1", "call_id": "call_7", "output": []}
    async with WireServer([responses_reply("There is a.txt.", items=[ITEMS["shell"], ran])]) as server:
        made = agent(server)
        result = await made.run("List")
        await made.close()
    assert (result.output, result.questions) == ("There is a.txt.", {})


async def test_a_call_for_the_client_is_an_ordinary_call_where_what_only_its_model_understands_is_left_out():
    async with WireServer([responses_reply(items=[ITEMS["custom"]]), "done"]) as server:
        made = agent(server)
        asked = await made.run("Go")
        result = await made.resume(asked.run_id, dict.fromkeys(asked.questions, "3 rows"))
        sent = made.recipe.model.body(ModelRequest(without_seals(tuple(result.history), None)))
        await made.close()
    _, called, said, _ = json.loads(sent)["input"]
    assert (called["type"], called["name"]) == ("function_call", "custom_tool_call")
    assert said == {"type": "function_call_output", "call_id": called["call_id"], "output": "3 rows"}


async def test_a_call_for_the_client_is_an_ordinary_call_for_another_model():
    async with WireServer([responses_reply(items=[ITEMS["custom"]]), "done"]) as server:
        made = agent(server)
        asked = await made.run("Go", session_id="s")
        (key,) = asked.questions
        other = Agent(OpenAI("any", base_url=server.url, api_key="k"), journal=made.journal)
        assert (await other.resume(asked.run_id, {key: "3 rows"})).output == "done"
        await made.close()
        await other.close()
    _, called, said = server.requests[1]["messages"]
    assert called["tool_calls"][0]["function"]["name"] == "custom_tool_call"
    assert said["content"] == "3 rows"
