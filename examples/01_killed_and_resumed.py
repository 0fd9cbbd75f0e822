"""An agent is killed in the middle of its work, and another process goes on where it was. No set-up, no key.

The model here follows a script, so that this runs anywhere; everything else is real: the journal, the processes, SIGKILL.
"""

import asyncio
import subprocess
import sys

from kaname import Agent, ScriptedModel, call, tool


@tool(effect="pure")
async def price(item: str) -> int:
    """The price of an item, in yen."""
    await asyncio.sleep(0.2 if item == "tea" else 1.5)  # killed when the tea is known and the cake is not
    return {"tea": 300, "cake": 450}[item]


@tool  # nothing said about its effect: irreversible, never repeated blindly
async def order(item: str) -> str:
    """Order an item."""
    await asyncio.sleep(0.2)
    return f"{item} is on its way"


script = [[call("price", item="tea"), call("price", item="cake")], call("order", item="tea"), "Tea is ordered, for 300 yen."]
agent = Agent(ScriptedModel(script, pace=0.02), [price, order], instructions="Order the cheaper one.")


async def work(run_id: str) -> None:
    async for chunk in agent.run("Tea or cake?", run_id=run_id):
        show("first life ", chunk)


async def go_on(run_id: str) -> None:
    async for chunk in agent.resume(run_id):
        show("second life", chunk)
    result = await agent.resume(run_id)
    print(f"answer: {result.output}   ({result.stop.kind}, {result.usage.total} tokens, life {result.attempt})")


def show(life: str, chunk: dict) -> None:
    match chunk["type"], chunk.get("status"):
        case "tool_call", _:
            print(f"{life}: calls {chunk['name']}({chunk['arguments']})", flush=True)
        case "tool_response", _:
            print(f"{life}: {chunk['name']} gave {chunk['result']}", flush=True)
        case "status", ("restarted" | "stopped") as status:
            print(f"{life}: {status}", flush=True)


def main() -> None:
    run_id = agent.run("").run_id  # a new id
    child = subprocess.Popen([sys.executable, __file__, run_id], stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        print(line, end="")
        if " gave " in line:
            child.kill()  # SIGKILL: no clean-up, no goodbye
            print("          -- killed --")
            break
    child.wait()
    child.stdout.close()
    asyncio.run(go_on(run_id))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1])) if len(sys.argv) > 1 else main()

# prints:
#   -- killed --
#   second life: restarted
#   second life: order gave tea is on its way
#   answer: Tea is ordered, for 300 yen.
