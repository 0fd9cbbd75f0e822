"""What a model brings back that is not text: pictures, sound and sources reach the user; a forced call is forced once."""

import json
from base64 import b64decode, b64encode

import pytest

from kaname import Agent, tool
from kaname.models.providers.anthropic import Anthropic
from kaname.models.providers.openai import OpenAI
from kaname.models.providers.responses import OpenAIResponses
from kaname.testing.wire import Answer, WireServer, anthropic_reply, reply, responses_reply

PICTURE = b64encode(b"\x89PNG picture").decode()
WIRES = {"chat": (OpenAI, reply), "responses": (OpenAIResponses, responses_reply), "anthropic": (Anthropic, anthropic_reply)}


def deltas(*given):
    """Return an answer of chat completions with these deltas."""
    events = [{"choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in given]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return Answer((*[json.dumps(one).encode() for one in events], b"[DONE]"))


def agent(wire, server, *tools, **options):
    return Agent(WIRES[wire][0]("any", base_url=server.url, api_key="k"), tools, journal="memory", **options)


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_a_picture_that_the_model_makes_reaches_the_user_and_the_conversation_goes_on(wire):
    if wire == "chat":
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
        first = deltas({"content": "Here it is."}, {"images": [image]})
    else:
        item = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PICTURE, "output_format": "png"}
        first = responses_reply("Here it is.", items=[item])
    async with WireServer([first, "Thank you."]) as server:
        made = agent(wire, server)
        result = await made.run("Draw a cup.", session_id="s")
        later = await made.run("Nice.", session_id="s")
        await made.close()
    (picture,) = result.media
    assert (picture.mime, b64decode(picture.data)) == ("image/png", b"\x89PNG picture")
    assert result.output == "Here it is."
    assert later.output == "Thank you."
    assert later.media == ()
    if wire == "chat":
        assert server.requests[1]["messages"][1] == {"role": "assistant", "content": "Here it is."}, "no picture goes back"


async def test_a_sound_reaches_the_user_whole_and_its_words_are_the_text():
    pieces = [b"RIFFa", b"bc", b"defg"]
    data = [{"audio": {"data": b64encode(one).decode()}} for one in pieces]
    async with WireServer(
        [deltas({"audio": {"id": "a1", "transcript": "Hel"}}, *data, {"audio": {"transcript": "lo"}})]
    ) as server:
        made = agent("chat", server, settings={"modalities": ["text", "audio"]})
        result = await made.run("Say hello.")
        await made.close()
    assert result.output == "Hello"
    assert [(one.mime, b64decode(one.data)) for one in result.media] == [("audio/wav", b"".join(pieces))]


async def test_the_sources_of_an_answer_in_chat_completions_are_citations():
    cited = {"type": "url_citation", "url_citation": {"url": "https://example.org/tea", "title": "Tea"}}
    async with WireServer([deltas({"content": "Tea is hot."}, {"annotations": [cited]}), "ok"]) as server:
        made = agent("chat", server)
        result = await made.run("What is tea?", session_id="s")
        await made.run("And?", session_id="s")
        await made.close()
    assert result.citations == (cited,)
    assert server.requests[1]["messages"][1] == {"role": "assistant", "content": "Tea is hot."}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look"}}])
async def test_a_forced_tool_call_is_forced_only_once(wire, choice):
    @tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    def answer(body):
        forced = body.get("tool_choice") not in ("auto", {"type": "auto"}, None)
        return WIRES[wire][1](calls=[("look", {})]) if forced else WIRES[wire][1]("done")

    async with WireServer(answer) as server:
        made = agent(wire, server, look, settings={"tool_choice": choice})
        result = await made.run("Go", session_id="s")
        again = await made.run("Again", session_id="s")
        await made.close()
    assert result.output == again.output == "done"
    assert len(server.requests) == 4, "and again in the next turn"
