"""Downloads that resume where they stopped: from a package registry, or from any address."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import time
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from ...core.durations import backoff
from ...core.errors import ConfigError
from ...core.notices import notice
from ...core.web import BadStatus, open_url
from ..http.address import is_here

BLOCK = 1 << 20
_TRIES = 5
_NOT_THERE = 416  # the range begins behind the end: what is here is all there is, or too much


class Source(NamedTuple):
    url: str
    sha256: str


class NoSource(ConfigError):
    """A source that does not have the file, or cannot be reached. Another may have it."""


def index_url() -> str:
    """Return the registry that pip or uv would use."""
    chosen = (os.environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"))
    return next((url for url in chosen if url), "https://pypi.org/simple").rstrip("/") + "/"


def wheel_of(name: str, version: str) -> Source:
    """Return the wheel's address and hash, from the registry's page in either of its forms."""
    page = f"{index_url()}{name}/"
    try:
        with _open_url(page, {"accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"}) as answer:
            kind, text = answer.headers.get("content-type", ""), answer.read().decode()
        found = _find_wheel(name, version, kind, text)
    except (OSError, HTTPException) as problem:
        place = urlsplit(page).hostname
        raise NoSource.of(
            "local.registry_unreachable",
            "the package registry {place} cannot be reached: {problem}",
            place=place,
            problem=problem,
        ) from problem
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise NoSource.of(
            "local.no_registry_page", "{url} is not a page of a package registry", url=_without_password(page)
        ) from problem
    if found is None:
        where = _without_password(page)
        raise NoSource.of(
            "local.no_release", "{name} {version} was not found at {where}", where=where, name=name, version=version
        )
    return Source(urljoin(page, found.url), found.sha256)


def _find_wheel(name: str, version: str, kind: str, text: str) -> Source | None:
    wheel = f"{name.replace('-', '_')}-{version}-"
    if "json" in kind:
        for file in json.loads(text)["files"]:
            if file["filename"].startswith(wheel) and file["filename"].endswith(".whl"):
                return Source(file["url"], file.get("hashes", {}).get("sha256", ""))
        return None
    for link in re.findall(r'href="([^"]+)"', text):
        url, _, fragment = html.unescape(link).partition("#")
        if url.rsplit("/", 1)[-1].startswith(wheel) and url.endswith(".whl"):
            return Source(url, fragment.removeprefix("sha256=") if "sha256=" in fragment else "")
    return None


def _without_password(url: str) -> str:
    """Return the address without a user name and password."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])


def _open_url(url: str, headers: dict[str, str]) -> Any:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii() and (parts.port or 1) > 0
    except ValueError:  # no port, or no IPv6 address
        sound = False
    if not sound:
        shown = _without_password(url)
        raise ConfigError.of("local.bad_url", "{shown!r} is not a valid http:// or https:// URL", shown=shown)
    if parts.username:  # a registry with a name and a word in its address
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = {**headers, "authorization": "Basic " + b64encode(pair.encode()).decode()}
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    try:
        return open_url(url, headers=headers, timeout=60, proxies=not is_here(parts.hostname or ""), redirects=True)
    except BadStatus as problem:
        if problem.status >= 500 or problem.status in (408, 429, _NOT_THERE):
            raise OSError(problem.status, f"{parts.hostname} answers {problem.status}") from problem
        raise NoSource.of(
            "local.download_status", "{where} returned HTTP {code_}", where=_without_password(url), code_=problem.status
        ) from problem


def download(source: Source, target: Path, progress: Callable[[int], None]) -> None:
    """Download the file, resuming what is there.

    Damaged data is fetched again. After some tries it raises, and keeps the data.
    """
    partial = target.with_name(target.name + ".part")
    for left in reversed(range(_TRIES)):
        try:
            _continue(source, partial, progress)
            if source.sha256 and digest(partial) != source.sha256:
                partial.unlink()
                raise OSError(
                    notice("local.came_damaged", "the download of {name} is damaged (SHA-256 does not match)", name=target.name)
                )
            break
        except (OSError, HTTPException) as problem:
            if not left:
                host = urlsplit(source.url).hostname
                raise NoSource.of(
                    "local.download_interrupted",
                    "the download from {host} was interrupted: {problem}. Run the command again to resume it",
                    host=host,
                    problem=problem,
                ) from problem
            time.sleep(backoff(_TRIES - left, 0.5))
    os.replace(partial, target)


def _open_rest(source: Source, partial: Path, there: int) -> Any:
    """Request what is not there yet. Return None if everything is."""
    try:
        return _open_url(source.url, {"range": f"bytes={there}-"} if there else {})
    except OSError as problem:
        if problem.errno != _NOT_THERE or not there:
            raise
        if source.sha256 and digest(partial) == source.sha256:  # killed between the last byte and the new name
            return None
        partial.unlink()  # longer than the whole, or not of it
        raise


def _continue(source: Source, partial: Path, progress: Callable[[int], None]) -> None:
    there = partial.stat().st_size if partial.is_file() else 0
    if (answer := _open_rest(source, partial, there)) is None:
        return
    with answer:
        begins = re.match(r"bytes (\d+)-", answer.headers.get("content-range") or f"bytes {there}-")
        if answer.status != 206 or begins is None or int(begins[1]) != there:
            there = 0 if answer.status != 206 else _wrong_place(partial)
        length = answer.headers.get("content-length") or ""
        wanted = there + int(length) if length.isdecimal() else 0
        with partial.open("ab" if there else "wb") as out:
            _copy(answer, out, there, progress)
    if partial.stat().st_size < wanted:
        raise OSError(notice("local.ended_early", "the connection closed before the download was complete"))


def _wrong_place(partial: Path) -> int:
    partial.unlink(missing_ok=True)
    raise OSError(notice("local.other_piece", "the server sent a different part of the file than requested"))


def _copy(answer: Any, out: IO[bytes], there: int, progress: Callable[[int], None]) -> None:
    while block := answer.read(BLOCK):
        out.write(block)
        there += len(block)
        progress(there)


def digest(path: Path, progress: Callable[[int], None] = lambda done: None) -> str:
    """Return the file's SHA-256. `progress` is called with the bytes that have been read."""
    found, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
            done += len(block)
            progress(done)
    return found.hexdigest()
