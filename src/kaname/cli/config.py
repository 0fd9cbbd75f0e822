"""`kaname config check`, `kaname config show` and `kaname config schema`."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from ..api.agent import Agent
from ..api.config.build import load_config
from ..api.config.schema import SCHEMA
from ..api.workflow.configured import configured_workflows
from ..core.install import this_command
from ..models.http.keys import keys_at_first_call
from .agent import FILES
from .main import DONE, USAGE
from .messages import say
from .terminal.screen import Screen

_SECRET = re.compile(r"key|token|secret|password|authorization|credential", re.IGNORECASE)


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    if given.action == "schema":
        screen.say(json.dumps(SCHEMA, indent=2, ensure_ascii=False))
        return DONE
    files = given.files or given.config or [name for name in FILES if Path(name).is_file()][:1]
    if not files:
        screen.note(
            say(
                f"there is no kaname.yaml here: `{this_command()} init` writes one",
                f"kaname.yaml がありません。`{this_command()} init` で作れます",
            ),
            "red",
        )
        return USAGE
    config = load_config(*files)
    if given.action == "show":
        import yaml

        screen.say(yaml.safe_dump(_masked(config.value), allow_unicode=True, sort_keys=False).rstrip())
        return DONE
    config.check()
    with keys_at_first_call():  # a check calls no model
        made = {name: Agent.from_config(config, agent=name) for name in config.agents} if config.workflow_files else {}
    files, agents = ", ".join(config.files), ", ".join(config.agents)
    flows = ", ".join([flow.name for flow in configured_workflows(config, made)])
    screen.note(
        say(
            f"{files}: in order; agents: {agents}" + (f"; workflows: {flows}" if flows else ""),
            f"{files}: 問題ありません。エージェント: {agents}" + (f"、ワークフロー: {flows}" if flows else ""),
        ),
        "green",
    )
    return DONE


def _masked(value: Any, name: str = "") -> Any:
    """What came of the files and the environment, without its secrets."""
    if isinstance(value, dict):
        hidden = name in ("headers", "env")
        return {key: "***" if hidden and not isinstance(held, dict) else _masked(held, key) for key, held in value.items()}
    if isinstance(value, list):
        return [_masked(held, name) for held in value]
    return "***" if isinstance(value, str) and value and _SECRET.search(name) else value
