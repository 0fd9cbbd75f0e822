"""`kaname config check` and `kaname config schema`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..api.config import SCHEMA, load_config
from ..core.language import say
from .main import DONE, USAGE
from .screen import Screen
from .setting_up import FILES


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    if given.action == "schema":
        screen.say(json.dumps(SCHEMA, indent=2))
        return DONE
    files = given.files or [name for name in FILES if Path(name).is_file()][:1]
    if not files:
        screen.note(
            say("there is no kaname.yaml here: `kaname init` writes one", "kaname.yaml がありません。`kaname init` で作れます"),
            "red",
        )
        return USAGE
    config = load_config(*files)
    agents = ", ".join(config.agents)
    screen.note(
        say(
            f"{', '.join(config.files)}: in order; agents: {agents}",
            f"{', '.join(config.files)}: 問題ありません。エージェント: {agents}",
        ),
        "green",
    )
    return DONE
