"""Typed answers: their value while they are written, strict schemas on the wire, and what counts as the answer."""

import asyncio
import json
from datetime import date
from typing import Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from kaname import Agent, ScriptedModel, call, tool
from kaname.models.local.model import _Served
from kaname.models.providers.anthropic import Anthropic
from kaname.models.providers.openai import OpenAI
from kaname.models.providers.responses import OpenAIResponses
from kaname.models.strict_schema import make_strict
from kaname.strategies.output import Output
from kaname.testing.wire import Answer, WireServer, anthropic_reply, reply, responses_reply


class Line(BaseModel):
    item: str
    pieces: int = 1


class Order(BaseModel):
    customer: str = Field(min_length=2)
    state: Literal["open", "paid"]
    lines: list[Line]
    note: str = ""

    @field_validator("lines")
    @classmethod
    def has_lines(cls, given):
        assert given, "no lines"
        return given


class Node(BaseModel):
    name: str
    children: list["Node"] = []


ANSWER = {
    "customer": "Acme",
    "state": "open",
    "lines": [{"item": "cup", "pieces": 2}, {"item": "pot", "pieces": 1}],
    "note": "soon",
}
WIRES = {
    "chat": (OpenAI, reply),
    "responses": (OpenAIResponses, responses_reply),
    "anthropic": (Anthropic, anthropic_reply),
    "local": (_Served, reply),  # what `Local` asks, in place of the server that it starts
}


def whole(wire, value, pieces=40):
    """Return an answer in the form in which each API gives a typed one, in small pieces."""
    if wire == "anthropic":
        return anthropic_reply(calls=[("answer", value)], pieces=pieces)
    return WIRES[wire][1](json.dumps(value), pieces=pieces)


async def partials(run):
    return [chunk.partial async for chunk in run if chunk.type == "delta"]


def check_partials(seen):
    """What every stream of that answer must show, however it is cut."""
    seen = [one for one in seen if one is not None]
    assert len(seen) > 10
    assert seen[0].lines is None
    names = [one.customer for one in seen if one.customer]
    assert all("Acme".startswith(name) for name in names)
    assert {one.state for one in seen} == {None, "open"}, "half a word is not a state"
    counts = [len(one.lines or ()) for one in seen]
    assert counts == sorted(counts)
    assert seen[-1].model_dump() == ANSWER


@pytest.mark.parametrize("wire", WIRES)
async def test_a_typed_answer_can_be_read_while_it_is_written(wire):
    async with WireServer([whole(wire, ANSWER)]) as server:
        agent = Agent(WIRES[wire][0]("any", base_url=server.url, api_key="k"), output=Order, journal="memory")
        run = agent.run("Read the order.")
        seen = await partials(run)
        result = await run
        await agent.close()
    check_partials(seen)
    assert result.output == Order(**ANSWER)


async def test_a_typed_answer_of_a_model_of_the_program_can_be_read_while_it_is_written():
    text = json.dumps(ANSWER)

    class Writing:
        name = "writing"

        async def reply(self, request, emit):
            for place in range(0, len(text), 3):
                await emit(text[place : place + 3])
                await asyncio.sleep(0)
            return await ScriptedModel([text]).reply(request, silent)

    async def silent(*_):
        return None

    check_partials(await partials(Agent(Writing(), output=Order, journal="memory").run("Read the order.")))


async def test_prose_before_the_answer_and_text_agents_have_no_partial_value():
    @tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    script = iter([call("look"), "It is an order by Acme.", json.dumps(ANSWER)])
    seen = await partials(Agent(ScriptedModel(lambda _: next(script)), [look], output=Order, journal="memory").run("Go"))
    assert seen[0] is None
    assert seen[-1].customer == "Acme"
    assert await partials(Agent(ScriptedModel(['{"a": 1}']), journal="memory").run("Go")) == [None]


def test_partial_values_of_other_types():
    assert Output(list[int]).partial.read('{"result": [1, 2, 3') == [1, 2]
    assert Output(list[Line]).partial.read('{"result": [{"item": "cu')[0].item == "cu"
    assert Output(dict[str, Line]).partial.read('{"a": {"item": "cup", "pie')["a"].item == "cup"
    assert Output(date).partial.read('{"result": "2026-1') is None
    node = Output(Node).partial.read('{"name": "a", "children": [{"name": "b", "children": [{"name": "c')
    assert node.children[0].children[0].name == "c"
    assert Output(Order).partial.read('```json\n{"customer": "Acme", "state": "pa') .customer == "Acme"  # fmt: skip
    assert Output(Order).partial.read("") is None


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_an_ordinary_model_is_sent_strict_and_null_stands_for_its_default(wire):
    given = {"customer": "Acme", "state": "paid", "lines": [{"item": "cup", "pieces": None}], "note": None}
    async with WireServer([whole(wire, given)]) as server:
        agent = Agent(WIRES[wire][0]("any", base_url=server.url, api_key="k"), output=Order, journal="memory")
        result = await agent.run("Read the order.")
        await agent.close()
    body = server.requests[0]
    form = body["response_format"]["json_schema"] if wire == "chat" else body["text"]["format"]
    schema = form["schema"]
    assert form["strict"] is True
    assert schema["required"] == ["customer", "state", "lines", "note"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["note"]["anyOf"][-1] == {"type": "null"}
    assert schema["$defs"]["Line"]["additionalProperties"] is False
    assert "default" not in json.dumps(schema)
    assert result.output == Order(customer="Acme", state="paid", lines=[Line(item="cup")])
    assert len(server.requests) == 1


def test_schemas_that_providers_refuse_are_rewritten_or_not_sent_as_strict():
    recursive = Output(Node).schema
    assert recursive["type"] == "object"
    assert "$ref" not in recursive
    assert make_strict(recursive)[1]
    for kind in (tuple[int, str], set[str], list[Line], Line | Node):
        schema, strict = make_strict(Output(kind).schema)
        assert strict
        assert not any(word in json.dumps(schema) for word in ("prefixItems", "uniqueItems", "oneOf"))
    for kind in (dict[str, int], list[dict]):
        schema, strict = make_strict(Output(kind).schema)
        assert not strict
        assert schema == Output(kind).schema, "as it is"
    assert Output(Node).decode('{"name": "a", "children": null}') == {"name": "a"}
    with pytest.raises(ValueError, match="customer"):
        Output(Order).decode('{"customer": null, "state": "open", "lines": [{"item": "x"}]}')


async def test_optional_arguments_of_tools_do_not_become_null_where_a_schema_constrains_the_choice():
    @tool(effect="pure")
    def look(where: str, deep: bool = False) -> str:
        """Look somewhere."""
        return "seen"

    choice = json.dumps({"tool": "answer", "text": "Nothing is there."})
    async with WireServer([choice]) as server:
        model = OpenAI("any", base_url=server.url, api_key="k", tool_mode="constrained", plan_first=False)
        agent = Agent(model, [look], journal="memory")
        await agent.run("Look.")
        await agent.close()
    form = server.requests[0]["response_format"]["json_schema"]
    args = next(one for one in form["schema"]["anyOf"] if "args" in one["properties"])["properties"]["args"]
    assert args["required"] == ["where"]
    assert "null" not in json.dumps(args)
    assert form["strict"] is False


async def test_a_reply_that_is_the_answer_already_is_taken_and_other_replies_are_not():
    @tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    for first, calls in ((json.dumps(ANSWER), 2), ("Acme ordered.", 3), (json.dumps({**ANSWER, "state": "lost"}), 3)):
        asked = []
        script = iter([call("look"), first, json.dumps(ANSWER)])
        model = ScriptedModel(lambda request, asked=asked, script=script: asked.append(request) or next(script))
        result = await Agent(model, [look], output=Order, journal="memory").run("Go")
        assert result.output == Order(**ANSWER)
        assert len(asked) == calls, first


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_a_refusal_is_told_as_such_and_not_asked_for_again(wire):
    said = "I'm sorry, I can't help with that."
    if wire == "chat":
        delta = [{"choices": [{"index": 0, "delta": {"refusal": said}, "finish_reason": None}]},
                 {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]  # fmt: skip
        answer = Answer((*[json.dumps(one).encode() for one in delta], b"[DONE]"))
    else:
        message = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": said}]}
        answer = responses_reply(items=[message])
    async with WireServer([answer]) as server:
        agent = Agent(WIRES[wire][0]("any", base_url=server.url, api_key="k"), output=Order, journal="memory")
        result = await agent.run("Read the order.")
        await agent.close()
    assert len(server.requests) == 1
    assert result.stop.kind == "incomplete"
    assert result.stop.detail == f"the model refused to answer: {said}"
