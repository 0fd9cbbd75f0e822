"""Limits on steps, repeats, time and money. Whatever is hit, the work so far is kept, with a typed reason."""

from kaname import Agent, Price, ScriptedModel, Usage, call, cost, deadline, max_steps, tool


@tool(effect="pure")
def search(query: str) -> str:
    """Search."""
    return f"nothing about {query}"


def never_content(request):
    return call("search", query=f"attempt {len(request.messages)}")


model = ScriptedModel(never_content, usage=Usage(2000, 1000), price=Price(1, 10))  # dollars per million tokens
stops = max_steps(20) | cost("$0.05") | deadline("1m")  # no_repeats(2) is on by default
result = Agent(model, [search], stops=stops, journal="memory").run_sync("Find it.")
print(result.stop.kind, "|", result.stop.detail, "|", len(result.steps), "steps kept")

# prints:
#   budget | $0.0020 is left of the limit, which buys no further reply | 4 steps kept
