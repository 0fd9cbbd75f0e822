# pyright: standard
"""A program as a user writes it, for type checkers: every line with a comment says what they must find. It is not run."""

from typing import reveal_type

from pydantic import BaseModel

from kaname import Agent, Result, Run, ScriptedModel, ToolContext, tool


class Report(BaseModel):
    title: str


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def fetch(url: str) -> str:
    """Fetch."""
    return url


@tool
def lent(context: ToolContext[Report], bare: ToolContext) -> str:
    """What the program lends."""
    reveal_type(context.deps.title)  # str
    return f"{context.deps.title} {bare.deps}"


async def main() -> None:
    typed = Agent(ScriptedModel(["{}"]), [add, fetch], output=Report, instructions="Be brief.")
    reveal_type(typed)  # Agent[Report]
    run: Run[Report] = typed.run("go")
    result: Result[Report] = await run
    reveal_type(result.output)  # Report | None
    reveal_type(result.unwrap().title)  # str
    plain = Agent(ScriptedModel(["hi"]))
    reveal_type((await plain.run("go")).unwrap())  # str
    reveal_type(Agent("local", output=list[int]).run_sync("go").unwrap())  # list[int]
    reveal_type(add(1, 2))  # int
    reveal_type(await fetch("x"))  # str


def anything(agent: Agent) -> None:
    """A bare `Agent` is one of any output."""
    agent.run_sync("go")
