"""Requests over HTTP with the standard library, for everything but models: registries, sign-in, notifications, embeddings.

Model providers have a faster client in `models/http`. Media that a model names are fetched by `senses/sources.py`, which checks
the address first.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message
from http.client import HTTPException
from time import monotonic
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

_BLOCK = 65_536
_REASON = 10_000  # bytes of the answer to a refused request


class BadStatus(OSError):
    """The server answered with a status other than 200 to 299.

    Attributes:
        status: The HTTP status.
        headers: The headers of the answer. Names are in lower case.
        content: The beginning of the answer.
    """

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.headers, self.content = status, headers, content


class Answer(NamedTuple):
    headers: Mapping[str, str]
    content: bytes


def request(
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    timeout: float = 10.0,
    longest: float = 120.0,
    most: int = 1_000_000,
    proxies: bool = True,
    redirects: bool = False,
) -> Answer:
    """Send a request, and return the whole answer.

    Args:
        url: An http:// or https:// address.
        body: The body of a POST request. Without it, the request is a GET.
        headers: The headers.
        timeout: The maximum number of seconds without a byte.
        longest: The maximum number of seconds for the whole answer.
        most: The maximum size of the answer, in bytes.
        proxies: Whether the proxies of the environment are used.
        redirects: Whether redirects are followed. An `authorization` header is never sent to another address.

    Raises:
        BadStatus: The status is not between 200 and 299.
        OSError: The server cannot be reached, or the answer is too long or takes too long.
    """
    end, blocks, size = monotonic() + longest, [], 0
    with open_url(url, body, headers, timeout=timeout, proxies=proxies, redirects=redirects) as answer:
        try:
            while block := answer.read1(_BLOCK):
                blocks.append(block)
                size += len(block)
                if size > most:
                    raise OSError(f"the answer is larger than {most:,} bytes")
                if monotonic() > end:
                    raise TimeoutError(f"the answer takes longer than {longest:g} s")
        except HTTPException as problem:
            raise OSError(str(problem) or type(problem).__name__) from problem
        return Answer(_lower(answer.headers), b"".join(blocks))


def open_url(
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    timeout: float = 10.0,
    proxies: bool = True,
    redirects: bool = False,
) -> Any:
    """Send a request as `request` does, and return the open answer (`http.client.HTTPResponse`). Use it in a `with` block."""
    prepared = _prepare(url, body, headers or {})
    opener = build_opener(ProxyHandler(None if proxies else {}), *(() if redirects else (_NoRedirects,)))
    try:
        return opener.open(prepared, timeout=timeout)
    except HTTPError as problem:
        with problem:
            try:
                content = problem.read(_REASON)
            except (OSError, HTTPException):
                content = b""
        raise BadStatus(problem.code, _lower(problem.headers), content) from None
    except (HTTPException, ValueError) as problem:
        raise OSError(str(problem) or type(problem).__name__) from problem


def _prepare(url: str, body: bytes | None, headers: Mapping[str, str]) -> Request:
    if urlsplit(url).scheme not in ("http", "https"):  # urllib would read files, too
        raise OSError(f"{url[:200]!r} is not an http address")
    prepared = Request(url, body)
    for name, value in headers.items():
        prepared.add_unredirected_header(name, value) if name.lower() == "authorization" else prepared.add_header(name, value)
    return prepared


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None
