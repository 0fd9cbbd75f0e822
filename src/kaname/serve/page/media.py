"""Pictures, sounds and files of a run: the facts that the page reads name them, and it loads each by its hash."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...core.codec import encode_body
from ...core.errors import RunNotFound
from ...core.reading.files import files_of
from ...run.result import Result
from ..forms import caller_of
from ..problems import HttpRefused
from ..questions import attached_files
from ..service import Service

MARK = '"type":"media"'
_DATA = re.compile(r'("type":"media","mime":"((?:[^"\\]|\\.)*)",)"data":"([A-Za-z0-9+/=]+)"')
_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp", "audio/", "video/")  # an SVG or a page could hold scripts
_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
    "cache-control": "private, max-age=31536000, immutable",
}


def without_media(text: str) -> str:
    """Return the JSON of a fact with the hashes of its media instead of their content."""
    return _DATA.sub(lambda found: f'{found[1]}"hash":"{_hash(found[3])}"', text)


def _hash(data: str) -> str:
    try:
        return sha256(b64decode(data)).hexdigest()
    except (NotBase64, ValueError):
        return ""


class MediaRoutes:
    """The address `/api/runs/{run_id}/media/{hash}`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def media(self, request: Request) -> Response:
        """Return a medium of a run. Types that a browser could execute are offered as a download."""
        run_id, caller, wanted = request.path_params["run_id"], caller_of(request), request.path_params["hash"]
        try:
            card = await self._service.card(run_id, caller)
        except RunNotFound:  # a person who can answer its questions sees the files that they are about
            if not caller.answers_for_others:
                raise
            card = await self._service.card_to_answer(run_id, caller)
            shown = self._service.shown_by(card.agent) != "nothing"
            found = _find(_asked_about(await self._service.agent_result(card.run_id)), wanted) if shown else None
        else:
            found = await self._find_recorded(card.run_id, wanted)
        if found is None:
            raise HttpRefused.of("serve.no_medium", "run {run_id} has no such medium", http=404, run_id=card.run_id)
        mime, content = found
        plain = mime.startswith(_SHOWN)
        how = {} if plain else {"content-disposition": "attachment"}
        return Response(content, media_type=mime if plain else "application/octet-stream", headers=_HEADERS | how)

    async def _find_recorded(self, run_id: str, wanted: str) -> tuple[str, bytes] | None:
        """Find a medium in the facts of a run, or in the conversation that it continues."""
        async for fact in self._service.journal.read(run_id):
            kind, text = encode_body(fact.body)  # type: ignore[arg-type]
            if MARK in text and (found := _find(_media_in(text), wanted)) is not None:
                return found
            del fact, kind, text
        state = (await self._service.agent_result(run_id)).state
        return _find([(one.mime, one.content) for one in files_of(state)], wanted)


def _find(media: Iterable[tuple[str, bytes]], wanted: str) -> tuple[str, bytes] | None:
    return next((one for one in media if sha256(one[1]).hexdigest() == wanted), None)


def _asked_about(result: Result[Any]) -> list[tuple[str, bytes]]:
    """Return the files that the calls in open questions name."""
    files = [
        file for asked in result.questions.values() for every in attached_files(result.state, asked).values() for file in every
    ]
    return [(one.mime, one.content) for one in files]


def _media_in(text: str) -> Iterator[tuple[str, bytes]]:
    for found in _DATA.finditer(text):
        try:
            yield found[2], b64decode(found[3])
        except (NotBase64, ValueError):
            continue
