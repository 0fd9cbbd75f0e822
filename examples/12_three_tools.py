"""Search, database and calculator in one run, by a model that only writes text.

Here the model follows a script. With a real one it is the same: `python 12_three_tools.py local`
(or openai/NAME, …); what that looks like stands at the end of this file.
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
from pathlib import Path

from kaname import (
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

SCRIPT = ScriptedModel(
    [
        "Thought: First the discount.\nAction: search\nAction Input: discount for members",
        "Thought: Now the price.\nAction: database\nAction Input: SELECT price FROM items WHERE name = 'sencha'",
        "Thought: Now calculate.\nAction: calculator[2400 * (1 - 20%)]",
        "Thought: That is it.\nFinal Answer: A member pays 1,920 yen for the sencha [1].",
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
    runtime = AgentRuntime(ReActPlanner(model or SCRIPT), tools, Guardrails(), FallbackStrategy(), journal="memory")
    result = await runtime.run("What does a member pay for the sencha?")
    for step in result.steps:
        if step.action:
            seen = step.observation or ""
            passages = json.loads(seen)["passages"] if step.action == "search" else []
            print(step.action, " ->", passages[0]["text"] if passages else seen)
    print(result.answer)
    await runtime.agent.close()
    library.close()


with tempfile.TemporaryDirectory() as name:
    asyncio.run(main(Path(name), *sys.argv[1:]))

# prints:
#   search  -> Members get a discount of 20 percent on tea.
#   database  -> {"rows": [{"price": 2400}]}
#   calculator  -> 1920
#   A member pays 1,920 yen for the sencha [1].
