"""How a typed answer is asked for: the chosen mode on each wire, Anthropic's own format, and the next mode after a refusal."""

import json
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from kaname import Agent, ConfigError, ModelError, Output, tool
from kaname.models.local.model import _Served
from kaname.models.providers.anthropic import Anthropic
from kaname.models.providers.openai import OpenAI
from kaname.models.providers.responses import OpenAIResponses
from kaname.testing.wire import WireServer, anthropic_reply, reply, responses_reply, status


class Order(BaseModel):
    customer: Annotated[str, Field(min_length=2)]
    pieces: Annotated[int, Field(ge=1, description="how many")] = 1


class Notes(BaseModel):
    notes: dict[str, str]


VALUE = {"customer": "Acme", "pieces": 2}
WIRES = {
    "chat": (OpenAI, reply),
    "responses": (OpenAIResponses, responses_reply),
    "anthropic": (Anthropic, anthropic_reply),
    "local": (_Served, reply),
}
NEW = "claude-sonnet-4-5"


def agent(wire, server, kind, name="any", tools=(), **more):
    model = WIRES[wire][0](name, base_url=server.url, api_key="k", **more)
    return Agent(model, tools, output=kind, journal="memory")


def by_tool(wire, value=VALUE):
    return WIRES[wire][1](calls=[("answer", value)], pieces=20)


def as_text(wire, value=VALUE):
    return WIRES[wire][1](json.dumps(value), pieces=20)


def mode_of(wire, body):
    """Return the mode in which a request asks for its answer."""
    if any("JSON Schema" in json.dumps(body.get(name, "")) for name in ("messages", "instructions", "system")):
        return "prompted"
    if [one.get("name") or one["function"]["name"] for one in body.get("tools", ())] == ["answer"]:
        assert body["tool_choice"] not in ("auto", None), "it must be called"
        return "tool"
    form = {"chat": "response_format", "responses": "text", "anthropic": "output_config", "local": "grammar"}[wire]
    return "native" if body.get(form) else ""


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("mode", ["native", "tool", "prompted"])
async def test_an_output_mode_can_be_chosen_on_every_wire(wire, mode):
    constrained = wire == "local"  # its model calls tools by constrained JSON, as its native form is
    async with WireServer([by_tool(wire) if mode == "tool" and not constrained else as_text(wire)]) as server:
        more = {"tool_mode": "constrained"} if constrained else {}
        made = agent(wire, server, Output(Order, mode=mode), **more)
        run = made.run("Read the order.")
        seen = [chunk.partial async for chunk in run if chunk.type == "delta"]
        result = await run
        await made.close()
    assert result.output == Order(**VALUE)
    assert mode_of(wire, server.requests[0]) == ("native" if mode == "tool" and constrained else mode)
    assert seen[-1].model_dump() == VALUE
    if mode != "tool" or wire in ("anthropic", "local"):
        assert len([one for one in seen if one is not None]) > 5, "while it is written"


async def test_an_unknown_output_mode_is_a_mistake():
    with pytest.raises(ConfigError, match="native, tool, prompted"):
        Output(Order, mode="json")


async def test_anthropics_own_format_keeps_tools_and_thinking_and_names_bounds_in_words():
    @tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    script = [anthropic_reply(calls=[("look", {})], thinking="Hm."), anthropic_reply("It is Acme's."), as_text("anthropic")]
    async with WireServer(script) as server:
        made = agent("anthropic", server, Order, NEW, [look], settings={"thinking": {"type": "enabled", "budget_tokens": 1024}})
        result = await made.run("Read the order.")
        await made.close()
    assert result.output == Order(**VALUE)
    first, _, last = server.requests
    assert "output_config" not in first
    assert last["tools"] == first["tools"], "the prompt cache holds"
    assert last["tool_choice"] == {"type": "none"}
    assert last["thinking"]["type"] == "enabled"
    form = last["output_config"]["format"]
    assert form["type"] == "json_schema"
    assert form["schema"]["additionalProperties"] is False
    assert form["schema"]["required"] == ["customer", "pieces"]
    assert form["schema"]["properties"]["customer"] == {
        "title": "Customer",
        "type": "string",
        "description": "(minLength: 2)",
    }
    assert "minimum" not in json.dumps(form["schema"]).replace("(minimum: 1)", "")


@pytest.mark.parametrize("name", ["claude-opus-4-20250514", "claude-3-7-sonnet-latest", "any"])
async def test_an_older_model_of_anthropic_is_asked_by_a_tool(name):
    async with WireServer([by_tool("anthropic")]) as server:
        made = agent("anthropic", server, Order, name)
        assert (await made.run("Read the order.")).output == Order(**VALUE)
        await made.close()
    assert mode_of("anthropic", server.requests[0]) == "tool"


async def test_a_schema_that_no_strict_format_can_express_is_sent_to_anthropic_by_a_tool():
    async with WireServer([by_tool("anthropic", {"notes": {"a": "b"}})]) as server:
        made = agent("anthropic", server, Notes, NEW)
        assert (await made.run("Read the notes.")).output.notes == {"a": "b"}
        await made.close()
    assert mode_of("anthropic", server.requests[0]) == "tool"


@pytest.mark.parametrize(
    ("wire", "words", "tried"),
    [
        ("responses", "Invalid schema for response_format 'answer'", ["native", "tool"]),
        ("anthropic", "output_config.format.schema: Recursive schemas are not supported", ["native", "tool"]),
        ("chat", "Invalid schema for response_format 'answer'", ["native", "prompted"]),
    ],
)
async def test_a_schema_that_the_provider_refuses_is_sent_by_another_mode_from_then_on(wire, words, tried):
    def answer(body):
        mode = mode_of(wire, body)
        return status(400, words) if mode == "native" else by_tool(wire) if mode == "tool" else as_text(wire)

    async with WireServer(answer) as server:
        made = agent(wire, server, Order, NEW)
        for _ in range(2):
            assert (await made.run("Read the order.")).output == Order(**VALUE)
        await made.close()
    assert [mode_of(wire, body) for body in server.requests] == [*tried, tried[-1]]


async def test_a_refusal_that_is_not_about_the_schema_is_not_tried_in_another_mode():
    async with WireServer(lambda _: status(400, "the image is too small")) as server:
        made = agent("responses", server, Order)
        with pytest.raises(ModelError, match="did not accept the request"):
            await made.run("Read the order.")
        await made.close()
    assert len(server.requests) == 1
