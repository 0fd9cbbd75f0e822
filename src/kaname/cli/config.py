"""`kaname config check`, `show`, `schema` and `keys`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..agent.agent import Agent
from ..config.build import load_config
from ..config.keys import MORE, all_keys, schema
from ..core.errors import did_you_mean, nearest
from ..core.install import this_command
from ..models.http.keys import keys_at_first_call
from ..workflows.configured import configured_workflows
from .main import DONE, USAGE
from .messages import japanese, say, translate
from .place import FILES
from .terminal.screen import Screen

_SECRET = re.compile(r"key|token|secret|password|authorization|credential", re.IGNORECASE)


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    if args.action == "schema":
        screen.say(json.dumps(schema(japanese()), indent=2, ensure_ascii=False))
        return DONE
    if args.action == "keys":
        return _print_keys(args.files, screen)
    files = args.files or args.config or [name for name in FILES if Path(name).is_file()][:1]
    if not files:
        screen.tell(
            f"no kaname.yaml was found here. Create one with: {this_command()} init",
            f"kaname.yaml が見つかりません。次のコマンドで作成できます: {this_command()} init",
            colour="red",
        )
        return USAGE
    config = load_config(*files)
    if args.action == "show":
        import yaml

        screen.say(yaml.safe_dump(_mask_secrets(config.value), allow_unicode=True, sort_keys=False).rstrip())
        return DONE
    config.check()
    with keys_at_first_call():  # checking calls no model
        made = {name: Agent.from_config(config, agent=name) for name in config.agents} if config.workflow_files else {}
    files, agents = ", ".join(config.files), ", ".join(config.agents)
    flows = ", ".join([flow.name for flow in configured_workflows(config, made)])
    screen.tell(
        f"{files}: no errors; agents: {agents}" + (f"; workflows: {flows}" if flows else ""),
        f"{files}: 問題ありません。エージェント: {agents}" + (f"、ワークフロー: {flows}" if flows else ""),
        colour="green",
    )
    return DONE


def _print_keys(beginnings: list[str], screen: Screen) -> int:
    """Print the keys of the file with their types and descriptions, or those that begin with one of these paths."""
    printed = 0
    for path, row in all_keys():
        if beginnings and not path.startswith(tuple(beginnings)):
            continue
        screen.say(_describe_key(path, row))
        printed += 1
    if not printed:
        wanted, paths = " ".join(beginnings), [path for path, _ in all_keys()]
        ending = [path for path in paths if any(path.endswith(f".{one}") for one in beginnings)][:1]
        hint = did_you_mean(ending[0]) if ending else nearest(wanted, paths)
        message = say(f"no key of kaname.yaml begins with {wanted!r}", f"{wanted!r} で始まるキーは kaname.yaml にありません")
        screen.note(message + translate(hint), "red")
    return DONE if printed else USAGE


def _describe_key(path: str, row: Mapping[str, Any]) -> str:
    """Return the line of a key: its path, its values or types, and its description."""
    english = row.get("description", "")
    message = say(english, row[MORE].japanese or english) if MORE in row else english
    forms = [one.get("type", "") for one in row.get("anyOf", (row,))]
    types = dict.fromkeys([name for form in forms for name in ([form] if isinstance(form, str) else form) if name])
    choices = ", ".join([str(one) for one in row.get("enum", ())])
    return f"- `{path}` ({choices or ', '.join(types)}): {message}".removesuffix(": ")


def _mask_secrets(value: Any, name: str = "") -> Any:
    """Return the configuration, from files and environment, with its secrets replaced by `***`."""
    if isinstance(value, dict):
        hidden = name in ("headers", "env")
        return {
            key: "***" if hidden and not isinstance(held, dict) else _mask_secrets(held, key) for key, held in value.items()
        }
    if isinstance(value, list):
        return [_mask_secrets(held, name) for held in value]
    return "***" if isinstance(value, str) and value and _SECRET.search(name) else value
