"""The files of the page: read once, compressed once, and sent with a policy that loads nothing from elsewhere."""

from __future__ import annotations

import gzip
import json
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ..language import CATALOGUE
from ..problems import HttpRefused

STATIC = Path(__file__).parent / "static"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' blob:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)


class _File(NamedTuple):
    kind: str
    content: bytes
    small: bytes
    mark: str


class Files:
    """The addresses `/` and `/page/…`. They need no token, because they hold no data of any run."""

    @cached_property
    def _files(self) -> dict[str, _File]:
        found = {path.relative_to(STATIC).as_posix(): path.read_bytes() for path in STATIC.rglob("*") if path.is_file()}
        found["notices.json"] = json.dumps(json.loads(CATALOGUE.read_text("utf-8")), ensure_ascii=False).encode()
        return {name: _make_file(name, content) for name, content in found.items()}

    async def first(self, request: Request) -> Response:
        return self._answer(request, "index.html")

    async def file(self, request: Request) -> Response:
        return self._answer(request, request.path_params["name"])

    def _answer(self, request: Request, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HttpRefused.of("serve.no_file", "the page has no file {name!r}", http=404, name=name[:100])
        headers = {
            "content-security-policy": _POLICY,
            "etag": file.mark,
            "cache-control": "no-cache",
            "vary": "accept-encoding",
        }
        if file.mark in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        accepted = request.headers.get("accept-encoding", "").replace(" ", "")
        packed = "gzip" in accepted and "gzip;q=0" not in accepted.replace("gzip;q=0.", "")
        headers |= {"content-encoding": "gzip"} if packed else {}
        return Response(file.small if packed else file.content, media_type=file.kind, headers=headers)


def _make_file(name: str, content: bytes) -> _File:
    kind = _KINDS.get(Path(name).suffix, "application/octet-stream")
    return _File(kind, content, gzip.compress(content, 9, mtime=0), f'"{sha256(content).hexdigest()[:20]}"')
