"""A run as a test file for pytest: its facts, and the agent that must take the same decisions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ...core.events import Event, Opened
from ...core.runs import RunInfo
from ...models.providers.replay import record_line

_FILE = '''"""{title}

Run {run} of agent {agent}, {day}: replayed offline, it must take the same decisions. No model is called.
It holds what was said: keep secrets out of it, or out of the repository.
"""

from kaname.testing import agent_of, freeze, recorded


def make_agent():
{make}


# fmt: off
RECORD = r"""
{record}
"""
# fmt: on

test_{name} = freeze(recorded(RECORD), make_agent)
'''


_ROOT = ("pyproject.toml", "setup.py", ".git")  # what stands in the root of a project


def as_test(card: RunInfo, events: list[Event]) -> tuple[str, str]:
    """Return the name of the file and its text."""
    first = next(one.body for one in reversed(events) if isinstance(one.body, Opened) and one.run_id == card.run_id)
    make = _agent(first.recipe.get("origin"), card.agent)
    words = "_".join(re.findall(r"[a-z0-9]+", card.title.casefold()))[:40].strip("_")
    name = f"{words or 'run'}_{card.run_id[-8:]}"
    facts = [json.loads(record_line(one)) for one in events]
    lines = [json.dumps(fact, separators=(",", ":")) for fact in facts]  # in ASCII; no three quotes in a row
    text = _FILE.format(
        title=_quotable(card.title) or "A recorded run.",
        run=_quotable(card.run_id),
        agent=_quotable(card.agent),
        day=datetime.fromtimestamp(card.created).astimezone().strftime("%Y-%m-%d"),
        make=make,
        name=re.sub(r"\W", "_", name),
        record="\n".join(lines),
    )
    return f"test_{re.sub(r'[^A-Za-z0-9_]', '_', name)}.py", text


def _quotable(text: str) -> str:
    """Return the text so that it fits between three quotation marks."""
    return " ".join(
        "".join([char if char.isprintable() else " " for char in text]).replace("\\", "/").replace('"', "'").split()
    )


def _agent(origin: Any, name: str) -> str:
    """Return the code that makes the agent: from its file or its program, relative to the test.

    If neither is known, the code raises NotImplementedError, with a hint to fill it in.
    """
    known = origin if isinstance(origin, Mapping) else {}
    folder, program = str(known.get("folder", ".")), str(known.get("program") or known.get("agent") or "")
    place = ""
    if known.get("config"):
        place = ",".join([_relative(str(file), folder) for file in known["config"]])
    elif ":" in program:
        source, _, named = program.partition(":")
        place = f"{_relative(source, folder) if source.endswith('.py') else source}:{named}"
    if place:
        return f"    return agent_of({place!r}, {name!r}, near=__file__)"
    told = "this run was started by a program: return its agent here"
    return f"    raise NotImplementedError({told!r})"


def _relative(file: str, folder: str) -> str:
    """Return the path relative to the folder in which the agent was made, or to the root of the project of the file.

    So the test runs on every machine.
    """
    path = Path(file)
    if not path.is_absolute():
        return file
    roots = [one for one in path.parents if any((one / name).exists() for name in _ROOT)]
    home = next((one for one in (Path(folder), *roots) if path.is_relative_to(one)), path.parent)
    return path.relative_to(home).as_posix()
