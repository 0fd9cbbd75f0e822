"""Plans that a small model wrote, carried out by the calculator, the database and the search.

The replies are those that the local model (1.5 billion parameters) gave on 16 November 2026: the runs are in `plans/`, and are
replayed; the tools run. With the model itself: `python 15_plans.py local`. It needs the extra `search`. These three it did at
once; of nine that were tried it did five, and it repeats a plan that failed: a model of that size is not to be trusted alone.
"""

import asyncio
import sqlite3
import sys
import tempfile
from pathlib import Path

from kaname import AgentOrchestrator, CalculatorTool, DatabaseTool, RAGPipeline, SearchTool, TaskPlanner
from kaname.testing import save_run

RECORDED = Path(__file__).parent / "plans"
TASKS = {
    "half": "What is the total stock value of all products (price times stock), and half of that?",
    "difference": "How many more cups than teapots are in stock? Use the database, then calculate.",
    "ten_percent": "在庫の総額(価格×在庫数の合計)をデータベースで求め、その10%を計算してください。",
}


def tools(folder: Path, library: RAGPipeline) -> list:
    shop = sqlite3.connect(folder / "shop.db")
    shop.executescript(
        "CREATE TABLE products (name TEXT, price INTEGER, stock INTEGER);"
        "INSERT INTO products VALUES ('teapot', 4200, 7), ('cup', 800, 120), ('sencha', 2400, 40), ('tray', 5600, 3)"
    )
    shop.close()
    (folder / "rules.md").write_text("# Prices\n\nMembers get a discount of 20 percent on tea.\n", encoding="utf-8")
    library.add(folder / "rules.md")
    return [CalculatorTool(), DatabaseTool(folder / "shop.db"), SearchTool(library, top_k=1)]


async def main(folder: Path, model: str = "") -> None:
    library = RAGPipeline(folder / "docs.db")
    held = tools(folder, library)
    for name, task in TASKS.items():
        planner = TaskPlanner(model or f"replay/{RECORDED / name}.jsonl", held, form="simple", max_revisions=1)
        orchestrator = AgentOrchestrator(planner, None, "memory")
        result = await orchestrator.execute_task(task)
        print(task)
        for step in result.plan.steps if result.plan else ():
            print(f"  {step.tool_name} {dict(step.arguments)}")
        print(f"  {result.output if result.is_successful else result.reason}")
        if model:
            await save_run(orchestrator.agent.journal, result.context.run_id, RECORDED / f"{name}.jsonl")
        await orchestrator.agent.close()
    library.close()


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder), *sys.argv[1:]))

# prints:
#   What is the total stock value of all products (price times stock), and half of that?
#     database {'sql': 'SELECT SUM(price * stock) AS total_stock_value FROM products'}
#     calculator {'expression': '0.5 * ${step1}'}
#     119100
#   How many more cups than teapots are in stock? Use the database, then calculate.
#     calculator {'expression': '(${step1} - ${step2})'}
#     113
#   在庫の総額(価格×在庫数の合計)をデータベースで求め、その10%を計算してください。
#     23820
