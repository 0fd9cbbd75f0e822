"""A recorded run as a regression test: replayed offline, it must take the same decisions.

    test_refund = freeze("tests/runs/refund.jsonl", make_agent)

`save_run` writes such a file from any journal; a result can be frozen as it is, with the agent whose journal holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

from ..api.agent import Agent
from ..api.config.build import load_config
from ..api.designs.orchestrator import agent_behind
from ..api.replay import replay
from ..api.result import Result
from ..api.workflow.configured import configured_workflows
from ..core.codec import decode
from ..core.errors import ConfigError, RunNotFound
from ..core.events import Event
from ..core.notices import notice
from ..journals.memory import MemoryJournal
from ..kernel.load import read_whole
from ..kernel.ports import Journal
from ..models.http.keys import keys_at_first_call
from ..models.providers.replay import read_recording, record_line
from ..tools.loading import object_from


async def save_run(journal: Journal, run_id: str, path: str | Path) -> Path:
    """Write the run to a file, one fact a line. It holds what was said: keep secrets out of it, or out of the repository."""
    return _write(Path(path), [record_line(event) for event in await read_whole(journal, run_id)])


def _write(target: Path, lines: list[str]) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def recorded(text: str) -> list[Event]:
    """The facts of a record that stands in a program, one a line: what the page makes of a run."""
    return [decode(line) for line in text.splitlines() if line.strip()]


def agent_of(place: str, name: str, folder: str | Path = ".", *, near: str | Path = "") -> Agent[Any]:
    """Return the agent of that name that a program or a configuration has. Keys of models are needed only to run it.

    Args:
        place: `desk.py:agents`, `package.module:agent`, `kaname.yaml`; of several files of a configuration `a.yaml,b.yaml`.
        folder: Where the place is looked for first.
        near: A file of the project, such as the test's `__file__`: the folders above it are looked at as well.
    """
    first = place.partition(":")[0].partition(",")[0]
    wanted = first if first.endswith((".py", ".yaml", ".yml")) else first.partition(".")[0]
    folders = [Path(folder).resolve(), *(Path(near).resolve().parents if near else ())]
    home = next((one for one in folders if (one / wanted).exists() or (one / f"{wanted}.py").exists()), folders[0])
    with keys_at_first_call():
        made = _found(place, name, home)
    if made is not None:
        return made
    raise ConfigError(notice("testing.no_agent", "{place} has no agent {name!r}", place=place, name=name))


def _found(place: str, name: str, home: Path) -> Agent[Any] | None:
    if place.partition(":")[0].partition(",")[0].endswith((".yaml", ".yml")):
        config = load_config(*[home / file for file in place.split(",")])
        agents = {one: Agent.from_config(config, agent=one) for one in config.agents}
        listed: Any = [*agents.values(), *(() if name in agents else configured_workflows(config, agents))]
    else:
        found = object_from(place, home)
        listed = found if isinstance(found, list | tuple) else [found]
    for one in listed:
        made = agent_behind(one) or (agent_behind(one()) if callable(one) else None)
        if made is not None and (made.name == name or len(listed) == 1):
            return made
    return None


def freeze(
    run_id: str | Path | Result | list[Event],
    agent: Agent | Callable[[], Agent],
    *,
    rerun_pure_tools: bool = False,
) -> Callable[[], None]:
    """Return a test: it raises `ReplayDiverged`, with the place and the difference, if the agent no longer decides as recorded.

    Tool servers are not started: what their tools took and gave is known from the record, and what the servers add to the
    prompt is not compared. A function that makes the agent needs no key of a provider: no model is called.

    Args:
        rerun_pure_tools: Run the pure tools for real and compare what they return, to catch a change in their code as well.
            The agent's tool servers are started for that.
    """

    def test() -> None:
        with keys_at_first_call():
            made = agent() if callable(agent) and not isinstance(agent, Agent) else agent
        assert isinstance(made, Agent)
        with ThreadPoolExecutor(1) as thread:  # a loop of its own, also where one is running already
            thread.submit(lambda: asyncio.run(_replay(run_id, made, rerun_pure_tools))).result()

    return test


async def _replay(run_id: str | Path | Result | list[Event], agent: Agent, rerun_pure_tools: bool) -> None:
    if isinstance(run_id, Result):
        try:
            events = await read_whole(agent.journal, run_id.run_id)
        except RunNotFound as problem:
            told = notice(
                "testing.not_held",
                "the agent's journal does not hold this run; pass the agent that ran it, "
                "or save it with save_run(journal, run, path) and freeze the file",
            )
            raise ConfigError(told) from problem
    elif isinstance(run_id, list):
        events = run_id
    else:
        events = read_recording(run_id)
    journal = MemoryJournal()
    name = ""
    for name, group in groupby(events, key=lambda event: event.run_id):
        lease = await journal.claim(name)
        await journal.append(list(group), lease.epoch)
        await journal.release(name, lease.epoch)
    try:
        outcome: Any = await replay(agent.recipe, journal, name, rerun_pure_tools, servers=agent.servers)
    finally:
        if agent.servers is not None:
            await agent.servers.close()
    outcome.raise_for_difference()
