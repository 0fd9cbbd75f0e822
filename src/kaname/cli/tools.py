"""`kaname tools`: list the tools of an agent, including those of its tool servers."""

from __future__ import annotations

import argparse
from logging import NullHandler, getLogger

from ..models.providers.scripted import ScriptedModel
from .agent import agent_from
from .main import DONE, FAILED
from .terminal.screen import Screen, columns, truncate
from .terminal.signals import run_to_the_end


def main(args: argparse.Namespace) -> int:
    getLogger("kaname").addHandler(NullHandler())  # problems are printed below
    return run_to_the_end(lambda ending: _main(args, Screen()))


async def _main(args: argparse.Namespace, screen: Screen) -> int:
    async with agent_from(args, screen, ScriptedModel([])) as agent:  # no model is called
        tools = [*agent.tools.values()]
        for tool in tools:
            named = ", ".join(tool.parameters.get("properties") or {})
            screen.say(truncate(f"{tool.name}({named}): {tool.description}", columns() - 1))
        if not tools:
            screen.tell("no tools", "ツールはありません")
        servers = agent.servers
        for one in await servers.library() if servers is not None else []:
            named = f"{one.name}({', '.join(one.arguments)})" if one.kind == "prompt" else one.uri
            screen.say(truncate(f"{one.kind} {named} ({one.server}): {one.description or one.name}", columns() - 1))
        problems = servers.problems if servers is not None else {}
        for problem in problems.values():
            screen.note(problem, "red")
    return FAILED if problems else DONE
