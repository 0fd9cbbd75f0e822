"""A budget for each user, a second model for when the first one fails, and a partial result that says what was done."""

from kaname import Agent, Budget, Price, ScriptedModel, Usage, call, tool
from kaname.core.errors import ModelUnavailable


@tool(effect="pure")
def read_page(number: int) -> str:
    """Read a page."""
    return f"text of page {number}"


def next_page(request):
    return call("read_page", number=1 + sum(message.role == "assistant" for message in request.messages))


busy = ScriptedModel([ModelUnavailable("maintenance", status=503)], name="first")
spare = ScriptedModel(next_page, name="second", usage=Usage(2000, 1000), price=Price(1, 10))  # dollars per million tokens
agent = Agent([busy, spare], [read_page], policies=[Budget(user="$0.025/day")], journal="memory")  # 2 replies of $0.012 each

result = agent.run_sync("Read the book.", user_id="ann")
print(result.stop.kind, result.models, f"${result.usage.cost:.3f}")
print(result.partial)
print("ann again:", agent.run_sync("Go on.", user_id="ann").models)
print("ben:", agent.run_sync("Read the book.", user_id="ben").models)

# prints:
#   budget ('second', 'second') $0.024
#   $0.0010 is left of the budget of $0.025/day (user ann)
#   Done:
#   - read_page({"number": 1}): text of page 1
#   - read_page({"number": 2}): text of page 2
#   Raise the limit, or wait until it is renewed
#   ann again: ()
#   ben: ('second', 'second')
