"""Pictures, sounds and files of a run: the facts that the page reads name them, and it loads each by its hash."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from ...core.codec import encode_body
from ...core.notices import notice
from ..forms import caller_of
from ..problems import HttpRefused
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
        card = await self._service.card(request.path_params["run_id"], caller_of(request))
        wanted = request.path_params["hash"]
        async for fact in self._service.journal.read(card.run_id):
            kind, text = encode_body(fact.body)  # type: ignore[arg-type]
            for mime, content in _media_in(text) if MARK in text else ():
                if sha256(content).hexdigest() == wanted:
                    plain = mime.startswith(_SHOWN)
                    how = {} if plain else {"content-disposition": "attachment"}
                    return Response(content, media_type=mime if plain else "application/octet-stream", headers=_HEADERS | how)
            del fact, kind, text
        raise HttpRefused(404, notice("serve.no_medium", "run {run_id} has no such medium", run_id=card.run_id))


def _media_in(text: str) -> Iterator[tuple[str, bytes]]:
    for found in _DATA.finditer(text):
        try:
            yield found[2], b64decode(found[3])
        except (NotBase64, ValueError):
            continue
