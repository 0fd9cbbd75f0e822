"""`kaname doctor`: looks at everything that can be wrong, and says how to mend it."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from .. import __version__
from ..core.errors import AgentError
from ..core.language import say
from ..journals.choose import choose, default_path
from ..models import weights
from .main import DONE, FAILED
from .models import rows
from .screen import Screen, padded

Finding = tuple[str, bool, str]


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    good = True
    for look in (_python, lambda: _journal(given), _model, _space):
        for what, fine, told in look():
            good = good and fine
            mark = screen.coloured("✓" if fine else "✗", "green" if fine else "red", screen.out)
            screen.say(f"{mark} {padded(what, 12)} {told}")
    return DONE if good else FAILED


def _python() -> list[Finding]:
    return [("kaname", sys.version_info >= (3, 11), f"{__version__}, Python {sys.version.split()[0]}, {sys.executable}")]


def _journal(given: argparse.Namespace) -> list[Finding]:
    place = given.journal or os.environ.get("KANAME_JOURNAL") or default_path()

    async def look() -> str:
        journal = choose(place)
        try:
            runs = await journal.runs(limit=1000)
            return f"{place}: {len(runs)} {say('runs', '件')}"
        finally:
            await journal.close()

    return [_tried("journal", lambda: asyncio.run(look()))]


def _tried(what: str, look: Callable[[], str]) -> Finding:
    try:
        return what, True, look()
    except AgentError as problem:
        return what, False, str(problem)


def _model() -> list[Finding]:
    there = rows()
    usable = weights.present() is not None or any(os.environ.get(key) for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"))
    found: list[Finding] = [(name, True, told) for name, told in there]
    if not usable and not os.environ.get("KANAME_MODEL") and not os.environ.get("OPENAI_BASE_URL"):
        none = say("none yet: `kaname models pull`, or set a key", "まだありません。`kaname models pull` か、キーの設定を")
        found.append((say("model", "モデル"), False, none))
    return found


def _space() -> list[Finding]:
    place = weights.folder()
    while not place.exists() and place != Path(place.anchor):
        place = place.parent
    free = shutil.disk_usage(place).free
    enough = free > 500_000_000 or weights.present() is not None
    return [(say("disk", "ディスク"), enough, f"{free / 1e9:.1f} GB {say('free in', '空き:')} {place}")]
