"""The run as a sequence that you pull: nothing runs ahead of you."""

import asyncio

from kaname import Agent, ScriptedModel, call, tool


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


agent = Agent(ScriptedModel([call("add", a=1, b=2), "The sum is 3."]), [add], journal="memory")


async def main() -> None:
    async for step in agent.steps("1 + 2?"):
        match step.kind:
            case "tool_call":
                print("call", step.call.name, step.call.args)
            case "tool_result":
                print("result", step.result.output)
            case "final_response":
                print("answer", step.output)


asyncio.run(main())

# prints:
#   call add {'a': 1, 'b': 2}
#   result 3
#   answer The sum is 3.
