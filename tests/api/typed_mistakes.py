# pyright: standard
"""Mistakes that a type checker must find: one in every line with a comment. It is not run."""

from kaname import Agent, ScriptedModel, ToolContext, tool
from kaname.core.messages import ToolCall
from kaname.kernel.arguments import ShownArguments


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def lent(context: ToolContext[int]) -> int:
    """What the program lends."""
    return context.deps.title  # mistake


add("one", 2)  # mistake
Agent(ScriptedModel([]), instruction="Be brief.")  # mistake
Agent(ScriptedModel([]), output=int).run_sync("go").unwrap().upper()  # mistake
ToolCall("c1_0", "add", ShownArguments({"a": 1, "b": 2}))  # mistake
