"""Guardrails and a fallback: what is forbidden is never seen, and a tool that fails does not end the work."""

import asyncio

from kaname import Agent, FallbackStrategy, Guardrails, ScriptedModel, call, tool


@tool(effect="pure")
def rates(currency: str) -> float:
    """Today's exchange rate."""
    raise ConnectionError("no line to the bank")


@tool(effect="pure")
def old_rates(currency: str) -> float:
    """Yesterday's exchange rate."""
    return 148.2


async def main() -> None:
    guarded = Agent(
        ScriptedModel(["The code is 1234-5678."]), policies=[Guardrails(blocked_patterns=[r"\d{4}-\d{4}"])], journal="memory"
    )
    run = guarded.run("What is the code?")
    shown = [chunk["content"] async for chunk in run if chunk.type == "delta"]
    print("shown:", "".join(shown))
    print((await run).stop.kind)

    fallback = FallbackStrategy(fallback={"rates": "old_rates"}, backoff=0.01)
    model = ScriptedModel([call("rates", currency="USD"), "148 yen for a dollar, as of yesterday."])
    careful = Agent(model, [rates, old_rates], policies=[fallback], journal="memory")
    run = careful.run("How much is a dollar?")
    warnings = [chunk["content"] async for chunk in run if chunk.type == "status" and chunk["status"] == "warning"]
    print((await run).output)
    print(warnings[0])


asyncio.run(main())

# prints:
#   shown: The code is
#   blocked
#   148 yen for a dollar, as of yesterday.
#   rates failed after 3 tries
