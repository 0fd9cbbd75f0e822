"""Limits on steps, repeats, time and money. Whatever is hit, the work so far is kept, with a typed reason."""

from kaname import Agent, ScriptedModel, Usage, call, cost, deadline, max_steps, tool


@tool(effect="pure")
def search(query: str) -> str:
    """Search."""
    return f"nothing about {query}"


def never_content(request):
    return call("search", query=f"attempt {len(request.messages)}")


model = ScriptedModel(never_content, usage=Usage(1000, 100, cost=0.02))
stops = max_steps(20) | cost("$0.05") | deadline("1m")  # no_repeats(2) is on by default
result = Agent(model, [search], stops=stops, journal="memory").run_sync("Find it.")
print(result.stop.kind, "|", result.stop.detail, "|", len(result.steps), "steps kept")

# prints:
#   budget | the limit of $0.05 was reached ($0.0600 spent) | 3 steps kept
