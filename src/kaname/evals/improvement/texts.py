"""The texts of an agent that can be improved: its instructions, the descriptions of its tools, and worked examples."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from inspect import getattr_static
from typing import Any

from ...agent.agent import Agent
from ...core.errors import ConfigError
from ...tools.registry import ToolRegistry
from ..adaptive import refuse_alternatives

PARTS = ("instructions", "tools", "examples")
INSTRUCTIONS, EXAMPLES, TOOL = "instructions", "examples", "tool:"  # the names of texts; that of a tool follows
_HEADING = "\n\nExamples:\n"  # examples stand at the end of the instructions


def read_texts(agent: Agent[Any], parts: Collection[str] = PARTS) -> dict[str, str]:
    """Return the texts of an agent by name. Tools of servers, tools that the model looks up, and tools that compute their
    description are left out.

    Raises `ConfigError` if `parts` names something else, or if the agent has none of them.
    """
    if unknown := [one for one in parts if one not in PARTS]:
        raise ConfigError.of(
            "improve.part", "{part!r} cannot be improved; choose from {parts}", part=unknown[0], parts=", ".join(PARTS)
        )
    own, _, examples = agent.recipe.instructions.partition(_HEADING)
    texts = {INSTRUCTIONS: own} if INSTRUCTIONS in parts else {}
    if "tools" in parts and agent.servers is None and not agent.tools.hidden:
        texts |= {TOOL + name: tool.description for name, tool in agent.tools.items() if _can_change(tool)}
    if EXAMPLES in parts:
        texts[EXAMPLES] = examples
    if not texts:
        raise ConfigError.of("improve.nothing", "the agent {name!r} has no text to improve", name=agent.name)
    return texts


def with_texts(agent: Agent[Any], texts: Mapping[str, str]) -> Agent[Any]:
    """Return a copy of the agent with other texts."""
    made = copy(agent)
    refuse_alternatives(agent)
    changes: dict[str, Any] = {"instructions": join_instructions(agent.recipe.instructions, texts)}
    if any(name.startswith(TOOL) for name in texts):
        parts = [_describe(tool, texts.get(TOOL + name, tool.description)) for name, tool in agent.tools.items()]
        changes["tools"] = made.tools = ToolRegistry(parts)
    made.recipe = agent.recipe.with_changes(**changes)
    return made


def join_instructions(before: str, texts: Mapping[str, str]) -> str:
    """Return the instructions as the model reads them: with the examples at their end."""
    own, _, examples = before.partition(_HEADING)
    own, examples = texts.get(INSTRUCTIONS, own), texts.get(EXAMPLES, examples)
    return f"{own}{_HEADING}{examples}" if examples.strip() else own


def _can_change(tool: Any) -> bool:
    return not isinstance(getattr_static(type(tool), "description", None), property)


def _describe(tool: Any, text: str) -> Any:
    if text == tool.description:
        return tool
    made = copy(tool)
    made.description = text
    return made
