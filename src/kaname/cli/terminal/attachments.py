"""Files that a user attaches to a message: paths, web addresses, and the picture of the clipboard."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Sequence

from ...core.messages import Media

_TOOLS = (  # the programs that read a picture from the clipboard, as PNG
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
    ("pngpaste", "-"),
)


async def attach_files(places: Sequence[str]) -> list[Media]:
    """Return the media of files and addresses. Raises `ConfigError` or `OSError` for one that cannot be used."""
    from ...senses.sources import open_source

    return [await open_source(place) for place in places]


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
