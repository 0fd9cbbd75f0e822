"""`kaname tools`: what an agent can do, its tool servers included."""

from __future__ import annotations

import argparse
import asyncio

from ..core.language import say
from ..models.scripted import ScriptedModel
from .main import DONE, FAILED
from .screen import Screen, columns, cut
from .setting_up import agent_from


def main(given: argparse.Namespace) -> int:
    return asyncio.run(_main(given, Screen()))


async def _main(given: argparse.Namespace, screen: Screen) -> int:
    async with agent_from(given, screen, ScriptedModel([])) as agent:  # nobody needs to think
        for tool in agent.available_tools:
            named = ", ".join(tool["parameters"].get("properties", {}))
            screen.say(cut(f"{tool['name']}({named}): {tool['description']}", columns() - 1))
        if not agent.available_tools:
            screen.note(say("no tools", "ツールはありません"))
        for one in await agent.servers.library() if agent.servers is not None else []:
            named = f"{one.name}({', '.join(one.arguments)})" if one.kind == "prompt" else one.uri
            screen.say(cut(f"{one.kind} {named}: {one.description or one.name}", columns() - 1))
        problems = agent.servers.problems if agent.servers is not None else {}
        for problem in problems.values():
            screen.note(problem, "red")
    return FAILED if problems else DONE
