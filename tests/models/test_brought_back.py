"""What a model brings back that is not text: pictures, sound and sources reach the user; a forced call is forced once."""

import json
from base64 import b64decode, b64encode

import pytest

from kaname import Agent, ModelError, Retry, tool
from kaname.core.events import ModelReplied
from kaname.core.record import replace
from kaname.models.providers.anthropic import Anthropic
from kaname.models.providers.openai import OpenAI
from kaname.models.providers.responses import OpenAIResponses
from kaname.sinks.log import JsonLines
from kaname.sinks.spans import Spans
from kaname.testing.wire import Answer, WireServer, anthropic_reply, reply, responses_reply, status

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
        run = made.run("Draw a cup.", session_id="s")
        chunks = [chunk async for chunk in run]
        result = await run
        later = await made.run("Nice.", session_id="s")
        await made.close()
    (picture,) = result.media
    assert (picture.mime, b64decode(picture.data)) == ("image/png", b"\x89PNG picture")
    assert result.output == "Here it is."
    (shown,) = [chunk for chunk in chunks if chunk.type == "media"]
    assert (shown["mime"], shown["content"], shown["base64"]) == ("image/png", "image/png", PICTURE)
    assert later.output == "Thank you."
    assert later.media == ()
    if wire == "chat":
        assert server.requests[1]["messages"][1] == {"role": "assistant", "content": "Here it is."}, "no picture goes back"
    else:
        assert server.requests[1]["input"][1] == item, "the provider's own picture does"


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


def served_by(wire, name, **headers):
    """Return an answer of the wire from a model of that name, with these headers."""
    sent = WIRES[wire][1]("done")
    told = {"chat": b'"model": "scripted"', "responses": b'"status": "completed", "output"', "anthropic": b'"usage": {"input'}
    named = {"chat": b'"model": "NAME"', "responses": b'"model": "NAME", ' + told["responses"]}
    named["anthropic"] = b'"model": "NAME", ' + told["anthropic"]
    events = [one.replace(told[wire], named[wire].replace(b"NAME", name.encode())) for one in sent.events]
    return replace(sent, events=tuple(events), headers=(*sent.headers, *headers.items()))


@pytest.mark.parametrize("wire", WIRES)
async def test_the_name_of_the_served_model_and_the_id_of_the_request_are_kept_in_facts_and_traces(wire, tmp_path):
    header = "request-id" if wire == "anthropic" else "x-request-id"
    log = tmp_path / "log.jsonl"
    async with WireServer([served_by(wire, "any-2026-11-01", **{header: "req_1"})]) as server:
        made = agent(wire, server, sinks=[JsonLines(log, level="debug")])
        result = await made.run("Go")
        facts = [fact async for fact in made.journal.read(result.run_id)]
        await made.close()
    (said,) = [fact.body.reply for fact in facts if isinstance(fact.body, ModelReplied)]
    assert (said.model, said.served, said.request_id) == ("any", "any-2026-11-01", "req_1")
    spans, ended = Spans(), []
    for fact in facts:
        ended += spans.take(fact)
    told = next(span for span in ended if span.name.startswith("chat")).attributes
    assert (told["gen_ai.response.model"], told["kaname.request.id"]) == ("any-2026-11-01", "req_1")
    (line,) = [json.loads(line) for line in log.read_text().splitlines() if "ModelReplied" in line]
    assert (line["model"], line["request"]) == ("any-2026-11-01", "req_1")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("broken", [False, True], ids=["refused", "cut off"])
async def test_the_id_of_a_failed_request_is_in_the_error_and_in_the_record(wire, broken):
    answer = status(400, "no", **{"x-request-id": "req_7"})
    if broken:
        half = served_by(wire, "any", **{"x-request-id": "req_7"})
        answer = replace(half, events=half.events[:2])
    async with WireServer([answer]) as server:
        made = agent(wire, server, policies=[Retry(tries=1)])
        with pytest.raises(ModelError, match="req_7") as caught:
            await made.run("Go")
        await made.close()
    assert caught.value.request_id == "req_7"
    assert "req_7" in caught.value.public
