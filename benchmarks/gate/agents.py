"""The agents that are measured: kaname's, the hand-written one and those of the peers, with the same tools and instructions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from . import peers
from .peers import PEERS, Run
from .server import answer_text, scenario

INSTRUCTIONS, PROMPT = "You are a calculator.", "Please add the numbers."
CALLS = {"add": 0, "wait": 0}
WAITING, OPEN = asyncio.Semaphore(0), asyncio.Event()  # the calls of the tool `wait`, and what ends them


async def add(a: int, b: int) -> int:
    """Add two integers."""
    CALLS["add"] += 1
    return a + b


async def wait(a: int, b: int) -> int:
    """Wait for the end."""
    CALLS["wait"] += 1
    WAITING.release()
    await OPEN.wait()
    return a + b


def load(who: str) -> None:
    """Import what a user imports to build an agent."""
    if who == "aiohttp":
        from . import loop  # noqa: F401
    elif who in PEERS:
        peers.load(who)
    else:
        from kaname import Agent, max_steps, no_repeats, per_tool  # noqa: F401
        from kaname.models import OpenAI  # noqa: F401


def build(who: str, model: str, url: str, journal: Any = "memory") -> Run:
    """Return a function that runs the agent once and returns its answer."""
    if who == "aiohttp":
        from .loop import Loop

        return Loop(model, url, [add, wait], INSTRUCTIONS).run
    if who in PEERS:
        return peers.build(who, model, url, [add, wait], INSTRUCTIONS)
    from kaname import Agent, max_steps, no_repeats, per_tool
    from kaname.models import OpenAI

    agent = Agent(
        OpenAI(model, base_url=url, api_key="sk-gate"),
        [add, wait],
        instructions=INSTRUCTIONS,
        stops=max_steps(1000) | no_repeats(None) | per_tool(None),
        journal=journal,
    )

    async def run(prompt: str, on_text: Callable[[str], Any]) -> str:
        handle = agent.run(prompt)
        async for chunk in handle:
            if chunk.type == "delta":
                on_text(chunk.data["content"])
        return (await handle).output or ""

    return run


class Checked:
    """An agent for one scenario. Every answer is checked."""

    def __init__(self, who: str, url: str, turns: int, chunks: int = 10, journal: Any = "memory", tool: str = "add") -> None:
        self.turns, self.chunks, self.tool = turns, chunks, tool
        self.answer = answer_text(chunks)
        self.run = build(who, scenario(turns, chunks, tool=tool), url, journal)

    async def once(self) -> None:
        """Run alone, and read the text."""
        before, texts = CALLS[self.tool], list[str]()
        self._check(await self.run(PROMPT, texts.append))
        self._check("".join(texts))
        if CALLS[self.tool] - before != self.turns:
            raise SystemExit(f"{CALLS[self.tool] - before} tool calls instead of {self.turns}")

    async def together(self, runs: int) -> None:
        """Run several times at once."""
        for answer in await asyncio.gather(*[self.run(PROMPT, len) for _ in range(runs)]):
            self._check(answer)

    def _check(self, answer: str) -> None:
        if answer.strip() != self.answer.strip():
            raise SystemExit(f"a wrong answer: {answer[:200]!r}")
