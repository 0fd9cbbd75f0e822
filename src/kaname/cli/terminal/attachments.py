"""Files that a user attaches to a message: paths, web addresses, and the picture of the clipboard."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ...core.errors import ConfigError
from ...core.messages import Media
from ..messages import config_error

_TOOLS = (  # the programs that read a picture from the clipboard, as PNG
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
    ("pngpaste", "-"),
)


def check_files(places: Sequence[str]) -> None:
    """Raise `ConfigError` for a file that does not exist."""
    for place in places:
        if "://" not in place and not Path(place).expanduser().exists():
            raise _unreadable(place, FileNotFoundError())


async def attach_files(places: Sequence[str]) -> list[Media]:
    """Return the media of files and addresses. Raises `ConfigError` for one that cannot be used."""
    if not places:
        return []
    from ...senses.sources import open_source

    found = []
    for place in places:
        try:
            found.append(await open_source(place))
        except OSError as problem:
            raise _unreadable(place, problem) from None
    return found


def _unreadable(place: str, problem: OSError) -> ConfigError:
    path = Path(place).expanduser().absolute()
    if isinstance(problem, FileNotFoundError):
        return config_error(f"the file {path} does not exist", f"ファイル {path} がありません")
    why = problem.strerror
    return config_error(f"the file {path} cannot be read: {why}", f"ファイル {path} を読み込めません: {why}")


async def from_clipboard() -> list[Media]:
    """Return the picture of the clipboard, if there is one and a program to read it."""
    for command in _TOOLS:
        if shutil.which(command[0]) is None or (command[0] == "pngpaste" and sys.platform != "darwin"):
            continue
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        content, _ = await process.communicate()
        if content.startswith(b"\x89PNG"):
            return [Media.of(content, "image/png", "clipboard.png")]
    return []
