"""`kaname init`: write a configuration file to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..core.install import this_command
from .main import DONE, FAILED
from .messages import say
from .terminal.screen import Screen

_TEMPLATES = Path(__file__).parent / "messages"
TEMPLATE, _NIHONGO = [(_TEMPLATES / f"kaname.{language}.yaml").read_text(encoding="utf-8") for language in ("en", "ja")]


def main(args: argparse.Namespace) -> int:
    screen, path = Screen(), Path("kaname.yaml")
    if path.exists() and not args.force:
        screen.tell(
            "kaname.yaml already exists. Use --force to overwrite it",
            "kaname.yaml はすでにあります。上書きするには --force を指定してください",
            colour="red",
        )
        return FAILED
    path.write_text(say(TEMPLATE, _NIHONGO), encoding="utf-8")
    screen.tell(
        f'kaname.yaml was created. Edit it, then start with `{this_command()} run "…"`',
        f'kaname.yaml を作成しました。編集してから `{this_command()} run "…"` を実行してください',
        colour="green",
    )
    return DONE
