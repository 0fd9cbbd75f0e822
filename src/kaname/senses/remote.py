"""Providers with the API of OpenAI: pictures from words, edited pictures, transcription and speech."""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Any

from ..core.errors import AgentError, ConfigError
from ..core.messages import Media, Usage
from ..core.notices import notice
from ..core.reading.media_types import WrongMediaType
from ..core.record import record, replace
from ..models.compatible import SERVERS
from ..models.http.client import PATIENT, Http, Timeouts
from ..models.http.errors import Who, from_status, garbled_reply
from ..policies.money.purchase import buy, is_limited
from .results import MadeMedia, Sentence, SpeechText
from .sources import fetch

_OPENAI = "https://api.openai.com/v1"
_MOST, _LONGEST = 100_000_000, 86_400.0  # bytes of an answer, seconds of a sound
Field = str | tuple[str, str, bytes]


@record
class TaskPrice:
    """Price in US dollars: of a picture, of a minute of sound, and of a thousand characters to speak."""

    picture: float | None = None
    minute: float | None = None
    characters: float | None = None


class RemoteSenses:
    """A model behind OpenAI's endpoints for pictures and sound, at OpenAI or at a compatible server.

    Args:
        name: "openai/MODEL", or another provider with such an API.
        base_url: The address (default: `OPENAI_BASE_URL`, or that of the provider).
        api_key: The key (default: the provider's variable, such as `OPENAI_API_KEY`).
        price: What the tasks cost. Without it, the cost is unknown.
        timeouts: Timeouts of the connection.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        price: TaskPrice | None = None,
        timeouts: Timeouts = PATIENT,
    ) -> None:
        provider, slash, self.model = name.partition("/")
        known = SERVERS.get(provider)
        if not slash or not self.model or (provider != "openai" and known is None):
            raise ConfigError.of(
                "senses.provider", "{name!r} is not a provider of senses: write local or openai/MODEL", name=name
            )
        variable = "OPENAI_API_KEY" if known is None else known.variable
        address = base_url or (os.environ.get("OPENAI_BASE_URL") or _OPENAI if known is None else known.address)
        key = api_key if api_key is not None else os.environ.get(variable, "")
        if not key and address == _OPENAI:
            raise ConfigError.of("senses.key_missing", "{name} needs a key: set {variable}", name=name, variable=variable)
        self.name, self._url, self._http = name, address.rstrip("/"), Http(timeouts)
        self._who = Who(provider, self.model, (key,) if key else ())
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._price = price or TaskPrice()

    async def generate(self, prompt: str, size: str = "") -> MadeMedia:
        """Make a picture from words."""
        wanted = {"model": self.model, "prompt": prompt, "n": 1, **({"size": size} if size else {})}

        async def work() -> MadeMedia:
            return await self._picture(await self._json("/images/generations", wanted))

        return await buy(self.name, self._price.picture, work, lambda made: made.usage)

    async def edit(self, picture: Media, prompt: str) -> MadeMedia:
        """Change a picture as the words say."""
        form: list[tuple[str, Field]] = [("model", self.model), ("prompt", prompt), ("image", _file(picture))]

        async def work() -> MadeMedia:
            return await self._picture(_parse(await self._form("/images/edits", form), self._who))

        return await buy(self.name, self._price.picture, work, lambda made: made.usage)

    async def _picture(self, answer: Mapping[str, Any]) -> MadeMedia:
        try:
            one = answer["data"][0]
            if one.get("b64_json"):
                made = Media.of(b64decode(one["b64_json"], validate=True), "", "picture")
            else:
                content, mime = await asyncio.to_thread(fetch, one["url"])
                made = Media.of(content, mime, "picture")
        except (KeyError, IndexError, TypeError, AttributeError, NotBase64, WrongMediaType):
            raise garbled_reply(notice("senses.no_picture", "the answer has no picture"), self._who) from None
        if not made.mime.startswith("image/"):
            raise garbled_reply(notice("senses.no_picture", "the answer has no picture"), self._who)
        made = replace(made, name="picture." + made.mime.partition("/")[2])
        usage = answer.get("usage") if isinstance(answer.get("usage"), Mapping) else {}
        read, written = [int(usage.get(name) or 0) for name in ("input_tokens", "output_tokens")]  # type: ignore[union-attr]
        return MadeMedia(made, self.name, Usage(read, written, cost=self._price.picture))

    async def transcribe(self, sound: Media, language: str = "", seconds: float | None = None) -> SpeechText:
        """Write down what is said. `seconds`: how long the sound is, if it is known."""
        if seconds is None and self._price.minute is not None and is_limited():
            seconds = await _length(sound)
        most = None if self._price.minute is None or seconds is None else self._price.minute * seconds / 60
        return await buy(self.name, most, lambda: self._transcribe(sound, language, seconds), lambda made: made.usage)

    async def _transcribe(self, sound: Media, language: str, seconds: float | None) -> SpeechText:
        form: list[tuple[str, Field]] = [("model", self.model), ("response_format", "verbose_json"), ("file", _file(sound))]
        form += [("language", language)] if language else []
        answer = _parse(await self._form("/audio/transcriptions", form), self._who)
        try:
            found = [
                Sentence(float(one["start"]), float(one["end"]), str(one["text"]).strip())
                for one in answer.get("segments") or ()
            ]
            lasts = float(answer.get("duration") or seconds or (found[-1].end if found else 0.0))
            said = found or ([Sentence(0.0, lasts, str(answer["text"]).strip())] if answer["text"].strip() else [])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise garbled_reply(notice("senses.no_transcript", "the answer has no transcript"), self._who) from None
        cost = None if self._price.minute is None else self._price.minute * lasts / 60
        return SpeechText(tuple(said), str(answer.get("language") or language), lasts, self.name, Usage(cost=cost))

    async def speak(self, text: str, voice: str = "", speed: float = 1.0) -> MadeMedia:
        """Speak a text."""
        cost = None if self._price.characters is None else self._price.characters * len(text) / 1000
        return await buy(self.name, cost, lambda: self._speak(text, voice, speed, cost), lambda made: made.usage)

    async def _speak(self, text: str, voice: str, speed: float, cost: float | None) -> MadeMedia:
        wanted = {"model": self.model, "input": text, "voice": voice or "alloy", "response_format": "wav", "speed": speed}
        content = await self._send("/audio/speech", "application/json", json.dumps(wanted).encode())
        try:
            made = Media.of(content, "audio/wav", "speech.wav")
        except WrongMediaType:
            raise garbled_reply(notice("senses.no_sound", "the answer is not a sound"), self._who) from None
        return MadeMedia(made, self.name, Usage(cost=cost))

    async def _json(self, path: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return _parse(await self._send(path, "application/json", json.dumps(data).encode()), self._who)

    async def _form(self, path: str, fields: list[tuple[str, Field]]) -> bytes:
        mark = f"kaname-{os.urandom(12).hex()}"
        pieces: list[bytes] = []
        for name, value in fields:
            head = f'--{mark}\r\ncontent-disposition: form-data; name="{name}"'
            if isinstance(value, str):
                pieces.append(f"{head}\r\n\r\n{value}\r\n".encode())
            else:
                file, mime, content = value
                pieces += [f'{head}; filename="{file}"\r\ncontent-type: {mime}\r\n\r\n'.encode(), content, b"\r\n"]
        return await self._send(path, f"multipart/form-data; boundary={mark}", b"".join([*pieces, f"--{mark}--\r\n".encode()]))

    async def _send(self, path: str, kind: str, body: bytes) -> bytes:
        headers = {"content-type": kind, **self._headers}
        async with self._http.request("POST", self._url + path, headers, body, self._who) as answer:
            content = await answer.read_body(self._http.timeouts.between, _MOST)
            if answer.status != 200:
                raise from_status(answer.status, answer.headers, content[:20_000], self._who)
        return content

    async def close(self) -> None:
        await self._http.close()


async def _length(sound: Media) -> float | None:
    """Return the length of a sound in seconds; None if this machine cannot find it out."""
    from .local import samples

    try:
        return (await samples(sound, _LONGEST))[1]
    except AgentError:
        return None


def _file(media: Media) -> tuple[str, str, bytes]:
    name = "".join([one if one.isalnum() or one in "._-" else "_" for one in media.name or "file"])[:100]
    return name, media.mime, media.content


def _parse(content: bytes, who: Who) -> Mapping[str, Any]:
    try:
        data = json.loads(content)
    except ValueError:
        data = None
    if not isinstance(data, Mapping):
        raise garbled_reply(notice("senses.not_json", "the answer is not a JSON object"), who)
    return data
