"""Providers with the API of OpenAI, behind a real HTTP server: pictures, transcription and speech, with a way out."""

import asyncio
import json
from base64 import b64encode

import pytest

from kaname import ConfigError, Media
from kaname.core.errors import ModelError
from kaname.core.messages import ModelReply, Usage, assistant
from kaname.kernel.bases import ModelBase
from kaname.senses import local
from kaname.senses.remote import RemoteSenses, TaskPrice
from kaname.senses.results import Sentence, SpeechText
from kaname.senses.senses import Senses

PNG, WAV = b"\x89PNG\r\n\x1a\n" + bytes(40), b"RIFF\x24\0\0\0WAVEfmt " + bytes(40)


class Server:
    """An HTTP server that keeps requests and answers from a list."""

    def __init__(self, *answers):
        self.answers, self.requests = list(answers), []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *given):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(next(line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length")))
        self.requests.append((head, await reader.readexactly(length)))
        status, body = self.answers.pop(0)
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def remote(server, **more):
    return RemoteSenses("openai/some", base_url=server.url, api_key="sk-secret-0001", **more)


async def test_picture_is_made_and_changed_by_a_provider_and_its_cost_is_counted():
    answer = {"data": [{"b64_json": b64encode(PNG).decode()}], "usage": {"input_tokens": 5, "output_tokens": 7}}
    async with Server((200, answer), (200, answer)) as server:
        one = remote(server, price=TaskPrice(picture=0.04))
        senses = Senses(generate=one, edit=one)
        made = await senses.generate("a cat", "512x512")
        changed = await senses.edit(Media.of(PNG, name="cat.png"), "make it blue")
        await senses.close()
    assert (made.media.mime, made.by, made.usage) == ("image/png", "openai/some", Usage(5, 7, cost=0.04))
    assert changed.media.data == b64encode(PNG).decode()
    (first, body), (second, form) = server.requests
    assert first.startswith("POST /v1/images/generations")
    assert json.loads(body) == {"model": "some", "prompt": "a cat", "n": 1, "size": "512x512"}
    assert second.startswith("POST /v1/images/edits")
    assert PNG in form
    assert b'filename="cat.png"' in form


async def test_speech_is_written_down_and_spoken_by_a_provider():
    told = {"text": "hello there", "language": "en", "duration": 90.0, "segments": [{"start": 0, "end": 1.5, "text": " hello"}]}
    async with Server((200, told), (200, WAV)) as server:
        one = remote(server, price=TaskPrice(minute=0.006, characters=0.015))
        senses = Senses(transcribe=one, speak=one)
        heard = await senses.transcribe(WAV)
        spoken = await senses.speak("hello")
        await senses.close()
    assert heard.sentences == (Sentence(0.0, 1.5, "hello"),)
    assert heard.usage.cost == pytest.approx(0.009)
    assert spoken.media.mime == "audio/wav"
    assert spoken.usage.cost == pytest.approx(0.015 * 5 / 1000)


async def test_without_a_price_the_cost_is_unknown():
    async with Server((200, {"text": "hi"})) as server:
        senses = Senses(transcribe=remote(server))
        assert (await senses.transcribe(WAV)).usage.cost is None
        await senses.close()


async def test_when_the_provider_fails_this_machine_does_it(monkeypatch):
    async def here(sound, language, longest, progress):
        return SpeechText((Sentence(0.0, 1.0, "from here"),))

    monkeypatch.setattr(local, "transcribe", here)
    async with Server((500, {"error": {"message": "down"}})) as server:
        senses = Senses(transcribe=[remote(server), "local"])
        heard = await senses.transcribe(WAV)
        await senses.close()
    assert (heard.text, heard.by) == ("from here", "local")


@pytest.mark.parametrize("body", [b"<html>", [], {"data": []}, {"data": [{"b64_json": "!"}]}, {"data": [{"b64_json": "aGk="}]}])
async def test_answer_that_is_no_picture_is_an_error(body):
    async with Server((200, body)) as server:
        senses = Senses(generate=remote(server))
        with pytest.raises((ModelError, ConfigError)):
            await senses.generate("a cat")
        await senses.close()


async def test_error_of_the_provider_does_not_show_the_key():
    async with Server((401, {"error": {"message": "bad key sk-secret-0001"}})) as server:
        senses = Senses(generate=remote(server))
        with pytest.raises(ModelError) as problem:
            await senses.generate("a cat")
        await senses.close()
    assert "sk-secret-0001" not in str(problem.value)


async def test_task_without_a_provider_says_how_to_set_one():
    with pytest.raises(ConfigError, match="no provider is set for 'generate'"):
        await Senses().generate("a cat")
    with pytest.raises(ConfigError, match="cannot be made from words on this machine"):
        Senses(generate="local")
    with pytest.raises(ConfigError, match="write local or openai/MODEL"):
        Senses(speak="nowhere/x")


async def test_model_that_sees_describes_a_picture_and_its_cost_is_counted():
    class Sees(ModelBase):
        name = "sees"

        async def reply(self, request, emit):
            self.asked = request.messages[0].parts
            return ModelReply(assistant("a cat"), "end_turn", Usage(10, 2, cost=0.5))

    model = Sees()
    found = await Senses(model).describe(PNG, "which animal?")
    assert (found.text, found.sees, found.by, found.usage.cost) == ("a cat", True, "sees", 0.5)
    assert model.asked[0].text == "which animal?"
    assert model.asked[1].mime == "image/png"
