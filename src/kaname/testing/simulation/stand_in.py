"""The agent of a user in a simulation: a copy with a scripted model and with tools whose deeds are counted."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from ...agent.agent import Agent
from ...core.messages import ToolCall, ToolResult
from ...core.record import replace
from ...kernel.bases import options_of
from ...kernel.ports import Action, ToolContext
from ...models.providers.scripted import ScriptedModel, call
from ..combine.declared import OWN_TOOLS, rules_of
from ..combine.trial import copy_agent, make_value
from .outside import DONE, Outside, Script, SlowModel
from .store import SimulatedJournal


class CountedTool:
    """A tool in a simulation. Its deeds are counted, and its code runs only if the user wants it.

    After a crash, a stand-in is undone, or looked up, in the ledger.
    """

    def __init__(self, inner: Action, there: Outside, *, runs: bool) -> None:
        self.inner, self._there, self._runs = inner, there, runs
        options = options_of(inner)
        self.options = options
        if options.undo is not None:
            self._really_undo = options.undo
            self.options = replace(self.options, undo=self._undo)
        if options.reconcile is not None and not runs:
            self.options = replace(self.options, reconcile=self._look_up)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def act(self, prepared: Any, context: ToolContext) -> ToolResult:
        args = dict(prepared) if isinstance(prepared, Mapping) else {}
        if self.inner.effect == "pure" and not self._runs:
            await self._there.pause()
            return ToolResult(f"{self.inner.name}{DONE}")
        if self._runs:
            result = await self.inner.act(prepared, context)
            self._there.write(self.inner.name, context, args)
            return result
        return ToolResult(await self._there.act(self.inner.name, context, args))

    async def _undo(self, prepared: Any, context: ToolContext) -> ToolResult | None:
        await self._there.pause()
        if self._runs:
            await self._really_undo(prepared, context)
        self._there.undo(self.inner.name, context)
        return None

    async def _look_up(self, prepared: Any, context: ToolContext) -> ToolResult | None:
        await self._there.pause()
        done = self._there.was_done(self.inner.name, context.idempotency_key)
        return ToolResult(f"{self.inner.name}{DONE}") if done else None


class StandIn:
    """Makes copies of an agent for the processes of a schedule. All copies reply and act alike.

    Args:
        agent: The agent.
        there: What is outside of kaname.
        chance: It decides what the model calls, and with which arguments.
        runs_tools: The code of its tools runs.
    """

    def __init__(self, agent: Agent[Any], there: Outside, chance: random.Random, *, runs_tools: bool = False) -> None:
        self._agent, self._there, self._runs_tools = agent, there, runs_tools
        self._scripts: dict[str, Any] = {}
        members = [] if agent.team is None else list(agent.team.members)
        for one in (agent, *members):
            self._scripts[one.name] = self._script(one, chance)
        self.effects = {name: tool.effect for name, tool in rules_of(agent).tools.items()}

    def copy(self, journal: SimulatedJournal) -> Agent[Any]:
        """Return the agent of one process."""
        return copy_agent(
            self._agent,
            journal,
            lambda one: SlowModel(self._scripts[one.name], name=f"model of {one.name}"),
            lambda tool: CountedTool(tool, self._there, runs=self._runs_tools),
        )

    def _script(self, agent: Agent[Any], chance: random.Random) -> Any:
        """Return the script of an agent's model: its own, or calls of its tools with arguments that fit them."""
        own = agent.recipe.model
        if isinstance(own, ScriptedModel):
            return own
        names = sorted(name for name in agent.tools if name not in OWN_TOOLS)
        turns: list[list[ToolCall]] = []
        for _ in range(chance.randint(1, 3) if names else 0):
            chosen = chance.sample(names, min(len(names), chance.randint(1, 3)))
            turns.append([self._call(agent.tools[name], chance) for name in chosen])
        return Script(turns)

    def _call(self, tool: Any, chance: random.Random) -> ToolCall:
        schema = tool.parameters
        wanted = schema.get("required", [])
        given = {key: one for key, one in schema.get("properties", {}).items() if key in wanted or chance.random() < 0.3}
        return call(tool.name, **{key: make_value(chance, one, schema) for key, one in given.items()})
