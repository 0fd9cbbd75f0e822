"""A run as a file of its own for pytest: its facts, and the agent that must decide as it did."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ...core.codec import encode
from ...core.events import Event, Opened
from ...core.runs import RunInfo

_FILE = '''"""{title}

Run {run} of agent {agent}, {day}: replayed offline, it must take the same decisions. No model is called.
It holds what was said: keep secrets out of it, or out of the repository.
"""

{imports}from kaname.testing import agent_of, freeze, recorded


def make_agent():
{make}


# fmt: off
RECORD = r"""
{record}
"""
# fmt: on

test_{name} = freeze(recorded(RECORD), make_agent)
'''


def as_test(card: RunInfo, events: list[Event]) -> tuple[str, str]:
    """The file's name, and its text."""
    first = next(one.body for one in reversed(events) if isinstance(one.body, Opened) and one.run_id == card.run_id)
    imports, make = _agent(first.recipe.get("origin"), card.agent)
    words = "_".join(re.findall(r"[a-z0-9]+", card.title.casefold()))[:40].strip("_")
    name = f"{words or 'run'}_{card.run_id[-8:]}"
    lines = [json.dumps(json.loads(encode(one)), separators=(",", ":")) for one in events]  # in ASCII; no three quotes in a row
    text = _FILE.format(
        title=_plain(card.title) or "A recorded run.",
        run=_plain(card.run_id),
        agent=_plain(card.agent),
        day=datetime.fromtimestamp(card.created).astimezone().strftime("%Y-%m-%d"),
        imports=imports,
        make=make,
        name=re.sub(r"\W", "_", name),
        record="\n".join(lines),
    )
    return f"test_{re.sub(r'[^A-Za-z0-9_]', '_', name)}.py", text


def _plain(text: str) -> str:
    """As it can stand between three quotation marks."""
    return " ".join(
        "".join([char if char.isprintable() else " " for char in text]).replace("\\", "/").replace('"', "'").split()
    )


def _agent(origin: Any, name: str) -> tuple[str, str]:
    """How to make it: from its file, or from the program that has it; where nobody knows, a place to say it."""
    if isinstance(origin, Mapping) and origin.get("config"):
        files = ", ".join([repr(str(file)) for file in origin["config"]])
        return "from kaname import Agent, load_config\n", f"    return Agent.from_config(load_config({files}), agent={name!r})"
    if isinstance(origin, Mapping) and origin.get("program"):
        return "", f"    return agent_of({str(origin['program'])!r}, {name!r}, folder={str(origin.get('folder', '.'))!r})"
    told = "this run was made by a program: return its agent here"
    return "", f"    raise NotImplementedError({told!r})"
