"""One call, one loop: await it for the result, iterate it for the chunks."""

import asyncio

from kaname import Agent, ScriptedModel, call, tool


@tool(effect="pure")
def weather(city: str) -> str:
    """Weather of a city today."""
    return f"sunny in {city}"


agent = Agent(ScriptedModel([call("weather", city="Kyoto"), "It is sunny in Kyoto."]), [weather], journal="memory")


async def main() -> None:
    result = await agent.run("How is Kyoto?")
    print(result.output, result.stop.kind, result.usage.total, "tokens")
    for step in result.steps:
        print("step:", step.action, step.action_input, "->", step.observation)
    async for chunk in agent.run("How is Kyoto?"):
        if chunk["type"] == "delta":
            print(chunk["content"], end="", flush=True)
    print()


asyncio.run(main())

# prints:
#   It is sunny in Kyoto. completed 30 tokens
#   step: weather {'city': 'Kyoto'} -> sunny in Kyoto
#   It is sunny in Kyoto.
