"""Three agents, each with its own tools: a researcher looks things up, an analyst does the sum, a writer writes the sentence.

The replies are those that the local model (1.5 billion parameters) gave: the runs are in `team/`, one file an agent, and are
replayed; the tools run. With the model itself: `python 16_team.py local`. Who works when is in the program: told to delegate by
itself (`team=[…]`, docs/teams.md), a model of that size answers from nowhere.
"""

import asyncio
import sys
from pathlib import Path

from kaname import Agent, CalculatorTool, Workflow, tool
from kaname.testing import save_run

RECORDED = Path(__file__).parent / "team"
ROUTES = {"kobe oita": 391, "beppu osaka": 422, "nagoya sendai": 774}


@tool(effect="pure")
def ferry_distance(start: str, end: str) -> str:
    """How far a ferry sails, in kilometres.

    Args:
        start: the port it leaves
        end: the port it goes to
    """
    route = " ".join(sorted([start.lower().strip(), end.lower().strip()]))
    return f"{ROUTES[route]} km" if route in ROUTES else "not known"


@tool(effect="pure")
def brief(text: str, found: str, total: str = "") -> str:
    """What an agent is given of the others' work."""
    return text.format(found=found, total=total)


def team(model: str = "") -> tuple[Workflow, dict[str, Agent]]:
    def member(name: str, instructions: str, *tools: object) -> Agent:
        return Agent(model or f"replay/{RECORDED / name}.jsonl", tools, name=name, instructions=instructions, journal="memory")

    agents = {
        "researcher": member("researcher", "You look things up. Answer with what you found, in a few words.", ferry_distance),
        "analyst": member("analyst", "You calculate, and answer with the number alone.", CalculatorTool()),
        "writer": member("writer", "You write one plain sentence for a newsletter, with the facts that you are given."),
    }
    flow = Workflow("newsletter", journal="memory")
    found = flow.options(name="find").task(agents["researcher"], input="How far does the ferry from Kobe to Oita sail?")
    sum_up = flow.options(name="sum_up").task(brief, "A trip: {found}\nHow many kilometres are 7 trips?", found)
    total = flow.options(name="sum").task(agents["analyst"], input=sum_up)
    facts = "The ferry sails from Kobe to Oita seven times a week. One trip: {found}\nAll trips of a week: {total} km"
    told = flow.options(name="told").task(brief, facts, found, total)
    flow.promise({"found": found, "total": total, "sentence": flow.options(name="write").task(agents["writer"], input=told)})
    return flow, agents


async def main(model: str = "") -> None:
    flow, agents = team(model)
    result = await flow.run()
    for name, said in (result.output or {"stopped": result.stop}).items():
        print(f"{name}: {said}")
    if model:
        RECORDED.mkdir(exist_ok=True)
        for card in await flow.agent.journal.runs():
            if card.agent in agents:
                await save_run(flow.agent.journal, card.run_id, RECORDED / f"{card.agent}.jsonl")
    await flow.agent.close()


asyncio.run(main(*sys.argv[1:]))

# prints:
#   found: The ferry from Kobe to Oita sails 391 km.
#   total: 2737
#   sentence: The ferry from Kobe to Oita makes seven trips per week, each covering 391 km, resulting in a total of 2737 km
