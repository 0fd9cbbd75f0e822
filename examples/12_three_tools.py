"""Search, database and calculator in one run, by a model that only writes text.

Here the model follows a script. With a real one: `python 12_three_tools.py local` (or openai/NAME, …). What the local one made
of it on 15 November 2026 stands at the end of this file. It needs the extra `search` (`pip install '/path/to/kaname[search]'`).
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
from pathlib import Path

from kaname import (
    Agent,
    AgentRuntime,
    CalculatorTool,
    DatabaseTool,
    FallbackStrategy,
    Guardrails,
    RAGPipeline,
    ReActPlanner,
    ScriptedModel,
    SearchTool,
    ToolRegistry,
)

QUESTION = (
    "What does a member pay for the sencha? Look up the discount for members and the price in the database, then calculate."
)
SCRIPT = ScriptedModel(
    [
        "Thought: First the discount.\nAction: search\nAction Input: discount for members",
        "Thought: Now the price.\nAction: database\nAction Input: SELECT price FROM items WHERE name = 'sencha'",
        "Thought: Now calculate.\nAction: calculator[2400 * (1 - 20%)]",
        "Thought: That is it.\nFinal Answer: A member pays 1,920 yen for the sencha [rules.md#1].",
    ]
)


async def main(folder: Path, model: str = "") -> None:
    shop = sqlite3.connect(folder / "shop.db")
    shop.executescript("CREATE TABLE items (name TEXT, price INTEGER); INSERT INTO items VALUES ('sencha', 2400), ('cup', 800)")
    shop.close()
    (folder / "rules.md").write_text("# Prices\n\nMembers get a discount of 20 percent on tea.\n")
    library = RAGPipeline(folder / "docs.db")
    library.add(folder / "rules.md")
    tools = ToolRegistry([CalculatorTool(), DatabaseTool(folder / "shop.db"), SearchTool(library, top_k=1)])
    runtime = AgentRuntime(ReActPlanner(SCRIPT), tools, Guardrails(), FallbackStrategy(), journal="memory")
    agent = Agent(model, tools.values(), journal="memory") if model else runtime.agent
    result = await agent.run(QUESTION)
    for step in result.steps:
        if step.action:
            seen = step.observation or ""
            passages = json.loads(seen)["passages"] if step.action == "search" else []
            print(step.action, " ->", passages[0]["text"] if passages else seen)
    print(result.output)
    await agent.close()
    library.close()


with tempfile.TemporaryDirectory() as name:
    asyncio.run(main(Path(name), *sys.argv[1:]))

# The local model (1.5 billion parameters, 113 s on two busy cores) used all three tools, and guessed the discount before it had
# looked it up: a model of that size is not to be trusted with three steps.
#   database  -> {"rows": [{"price": 2400}]}
#   calculator  -> 2160          (2400 * 0.9)
#   search  -> Members get a discount of 20 percent on tea.
#   A member pays 2160 for the sencha after a 20 percent discount.

# prints:
#   search  -> Members get a discount of 20 percent on tea.
#   database  -> {"rows": [{"price": 2400}]}
#   calculator  -> 1920
#   A member pays 1,920 yen for the sencha [rules.md#1].
