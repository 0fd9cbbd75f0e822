"""A recorded run as a regression test: replayed offline, it must take the same decisions.

    test_refund = freeze("tests/runs/refund.jsonl", make_agent)

`save_run` writes such a file from any journal. You can also pass a `Result`, with the agent whose journal holds the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

from ..agent.agent import Agent
from ..config.build import load_config
from ..core.codec import decode
from ..core.errors import ConfigError, RunNotFound
from ..core.events import Event
from ..core.notices import notice
from ..designs.orchestrator.orchestrator import agent_behind
from ..kernel.load import read_whole
from ..kernel.ports import Journal
from ..models.http.keys import keys_at_first_call
from ..models.providers.replay import read_recording, record_line
from ..run.replay import replay
from ..run.result import Result
from ..stores.memory import MemoryJournal
from ..tools.loading import object_from
from ..workflows.configured import configured_workflows


async def save_run(journal: Journal, run_id: str, path: str | Path) -> Path:
    """Write the facts of a run to a file, one per line. The file holds all messages: remove secrets before you commit it.

    Args:
        journal: The journal that holds the run.
        run_id: The run.
        path: The file to write. Its folder is made if it is missing.

    Returns:
        The path of the file.

    Raises:
        RunNotFound: If the journal does not hold the run.
    """
    return _write(Path(path), [record_line(event) for event in await read_whole(journal, run_id)])


def _write(target: Path, lines: list[str]) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def recorded(text: str) -> list[Event]:
    """Return the facts of a recorded run that is part of a program, one fact per line. The page writes such tests.

    Args:
        text: The lines. Empty ones are skipped.
    """
    return [decode(line) for line in text.splitlines() if line.strip()]


def agent_of(place: str, name: str, folder: str | Path = ".", *, near: str | Path = "") -> Agent[Any]:
    """Return the agent of that name from a program or a configuration. Keys of providers are needed only to run it.

    Args:
        place: `desk.py:agents`, `package.module:agent`, or `kaname.yaml`; several files of a configuration as `a.yaml,b.yaml`.
        name: The name of the agent, workflow or orchestrator.
        folder: The folder that is searched first (default: the current one).
        near: A file of the project, such as `__file__` of the test. The folders above it are searched, too.

    Raises:
        ConfigError: If there is no agent of that name.
    """
    first = place.partition(":")[0].partition(",")[0]
    wanted = first if first.endswith((".py", ".yaml", ".yml")) else first.partition(".")[0]
    folders = [Path(folder).resolve(), *(Path(near).resolve().parents if near else ())]
    home = next((one for one in folders if (one / wanted).exists() or (one / f"{wanted}.py").exists()), folders[0])
    with keys_at_first_call():
        made = _find_agent(place, name, home)
    if made is not None:
        return made
    raise ConfigError.of("testing.no_agent", "{place} has no agent {name!r}", place=place, name=name)


def _find_agent(place: str, name: str, home: Path) -> Agent[Any] | None:
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
    """Return a test that replays a recorded run and fails if the agent no longer takes the same decisions.

    No model is called, so a function that makes the agent needs no key. Tool servers are not started: their tools and results
    are known from the record, and what servers add to the prompt is not compared.

    Args:
        run_id: The run: the path of a file that `save_run` wrote, a `Result`, or a list of facts.
        agent: The agent, or a function that makes it. For a `Result`, its journal must hold the run.
        rerun_pure_tools: Run the pure tools and compare their results, to find changes in their code, too (default: False).
            Tool servers are started for that.

    Returns:
        A function without arguments: assign it to a name that starts with `test_`. It raises `ReplayDiverged`, with the place
            and the difference.
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
            message = notice(
                "testing.not_held",
                "the agent's journal does not hold this run; pass the agent that ran it, "
                "or save it with save_run(journal, run, path) and freeze the file",
            )
            raise ConfigError(message) from problem
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
