"""What if the tool had said something else? Fork from an earlier fact. Does the agent still decide as recorded? Replay."""

import asyncio

from kaname import Agent, ScriptedModel, call, tool


@tool(effect="pure")
def weather(city: str) -> str:
    """Weather of a city today."""
    return "sunny"


def answer(request):
    last = request.messages[-1]
    return call("weather", city="Kyoto") if last.role == "user" else f"Take {umbrella(last.results[0].output)}."


def umbrella(sky: str) -> str:
    return "an umbrella" if sky == "rain" else "sunglasses"


agent = Agent(ScriptedModel(answer), [weather], instructions="Give advice.", journal="memory")


async def main() -> None:
    result = await agent.run("What shall I take to Kyoto?")
    print(result.output)
    (call_id,) = result.state.results
    fork = await agent.fork(result.run_id, at=3, results={call_id: "rain"})  # fact 3: the model asked for the weather
    print(fork.output)
    print(await agent.replay(result.run_id))
    changed = Agent(ScriptedModel(answer), [weather], instructions="Give bad advice.", journal=agent.journal)
    print(await changed.replay(result.run_id))


asyncio.run(main())

# prints:
#   Take sunglasses.
#   Take an umbrella.
#   the same decisions
#   sends the model a different prompt at fact 3
#   -Give advice.
#   +Give bad advice.
