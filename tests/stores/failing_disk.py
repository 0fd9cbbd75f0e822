"""A program whose disk fails in the middle of its work, and works again later. Its arguments: folder, fault, moment.

It prints one line of JSON: what it was told, how it ended, and how often each payment was made.
"""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

from kaname import Agent, AgentError, ScriptedModel, SqliteJournal, ToolContext, call, tool

folder, fault, moment = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
control, log = folder / "fault", folder / "paid.log"
broke = folder / "broke"


def break_disk(now: str) -> None:
    if now == moment and not broke.exists():
        broke.write_text("")
        control.write_text(fault)


@tool
async def pay(yen: int, context: ToolContext) -> str:
    """Pay."""
    with log.open("a") as out:
        out.write(f"{context.idempotency_key}\n")
    break_disk(f"pay {yen}")
    await asyncio.sleep(0.01 * yen)
    return f"paid {yen}"


def script(request):
    replies = sum(message.role == "assistant" for message in request.messages)
    break_disk(f"reply {replies + 1}")
    return [[call("pay", yen=1), call("pay", yen=2), call("pay", yen=3)], call("pay", yen=4), "done"][replies]


async def main() -> None:
    journal = SqliteJournal(folder / "journal.db")
    agent = Agent(ScriptedModel(script), [pay], journal=journal)
    break_disk("start")
    told, run = [], "r"
    try:
        result = await agent.run("go", run_id=run)
    except AgentError as problem:
        told.append(type(problem).__name__)
        try:  # nothing has been mended yet: the same trouble, and not another
            await agent.resume(run)
        except AgentError as again:
            told.append(type(again).__name__)
        control.write_text("")
        result = await (agent.resume(run) if await journal.runs(run_id=run) else agent.run("go", run_id=run))
    while result.questions:
        result = await agent.resume(run, dict.fromkeys(result.questions, "skip"))
    facts = [event.seq async for event in journal.read(run)]
    damage = await journal.verify()
    await journal.close()
    paid = Counter(log.read_text().split()) if log.exists() else {}
    print(json.dumps([told, result.stop.kind, result.output, dict(paid), facts == list(range(1, len(facts) + 1)), damage]))


asyncio.run(main())
