"""A person decides. The run is parked in the journal, not held in memory: any process can take it up with the answer."""

import asyncio

from kaname import Agent, Approve, ScriptedModel, call, tool


@tool
def pay(yen: int, to: str) -> str:
    """Pay somebody."""
    return f"paid {yen} yen to {to}"


agent = Agent(ScriptedModel([call("pay", yen=5000, to="the landlord"), "Done."]), [pay], policies=[Approve("pay")])


async def main() -> None:
    result = await agent.run("Pay the rent.")
    print(result.stop.kind)
    for key, question in result.questions.items():
        print(question.prompt, question.options)
        result = await agent.resume(result.run_id, {key: "yes"})
    print(result.output, "|", result.steps[0].observation)


asyncio.run(main())

# prints:
#   waiting
#   Run pay({"yen": 5000, "to": "the landlord"})? ('yes', 'no')
#   Done. | paid 5000 yen to the landlord
