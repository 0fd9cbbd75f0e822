"""Three agents: a writer, who has a researcher look things up and an analyst do the sums.

The replies are those that the local model (1.5 billion parameters) gave: the runs are in `team/`, one file an agent, and are
replayed; the tools run. With the model itself: `python 16_team.py local`.
"""

import asyncio
import sys
from pathlib import Path

from kaname import Agent, CalculatorTool, Team, tool
from kaname.testing import save_run

RECORDED = Path(__file__).parent / "team"
TASK = "Write one sentence for our newsletter: how many kilometres the ferry from Kobe to Oita sails in a week of 7 trips."
ROUTES = {"kobe oita": 391, "osaka beppu": 422, "nagoya sendai": 774}


@tool(effect="pure")
def ferry_distance(start: str, end: str) -> str:
    """How far a ferry sails, in kilometres.

    Args:
        start: the port it leaves
        end: the port it goes to
    """
    route = " ".join(sorted([start.lower().strip(), end.lower().strip()]))
    return f"{ROUTES[route]} km" if route in ROUTES else "not known"


def team(model: str = "") -> Agent:
    def thinks(name: str) -> str:
        return model or f"replay/{RECORDED / name}.jsonl"

    researcher = Agent(
        thinks("researcher"),
        [ferry_distance],
        name="researcher",
        instructions="You look up how far ferries sail. Answer with the distance.",
        journal="memory",
    )
    analyst = Agent(
        thinks("analyst"),
        [CalculatorTool()],
        name="analyst",
        instructions="You calculate, and answer with the number.",
        journal="memory",
    )
    return Agent(
        thinks("writer"),
        name="writer",
        instructions="You write. You know no facts and cannot calculate: others do that for you. First delegate to the "
        "researcher: how far is it? Then delegate to the analyst: multiply. Only then write the sentence, with their numbers.",
        team=Team((researcher, analyst), transfer=False),
        journal="memory",
    )


async def main(model: str = "") -> None:
    writer = team(model)
    run = writer.run(TASK)
    async for chunk in run:
        if chunk.type == "tool_call":
            print(f"{chunk.agent}: {chunk.data['function']['name']} {chunk.data['function']['arguments']}")
        elif chunk.type == "tool_response":
            print(f"  gave {chunk.agent}: {chunk.data['content']}")
    result = await run
    print(result.output)
    if model:
        RECORDED.mkdir(exist_ok=True)
        for card in await writer.journal.runs():
            await save_run(writer.journal, card.run_id, RECORDED / f"{card.agent}.jsonl")
    await writer.close()


asyncio.run(main(*sys.argv[1:]))
