"""A thousand crashes in seconds: simulate your agent, and find the tool that does its work twice."""

from kaname import Agent, Approve, ScriptedModel, ToolContext, call, tool
from kaname.testing import simulate

paid: set[str] = set()  # stands for the bank's own records


@tool(effect="irreversible")
async def pay(yen: int, context: ToolContext) -> str:
    """Pay. The bank remembers the key."""
    paid.add(context.idempotency_key)
    return f"paid {yen}"


@pay.reconciles
async def look_it_up(yen: int, context: ToolContext) -> str | None:
    """After a crash: did it happen? This one asks the bank for the amount instead of the key, and never finds it."""
    return f"paid {yen}" if str(yen) in paid else None


def make_agent() -> Agent:
    return Agent(ScriptedModel([call("pay", yen=100), "Paid."]), [pay], policies=[Approve("pay")], journal="memory")


answers = {"approve:": "yes"}

# 1. With stand-ins for your tools: does kaname keep its promises with your rules?
print(bool(simulate(make_agent, "Pay 100 yen.", seeds=50, answers=answers)))

# 2. With the code of your tools: is what you declare true?
report = simulate(make_agent, "Pay 100 yen.", seeds=range(500), answers=answers, run_tools=True)
print(report.broken[0].broken[0])

# 3. Repeat it as often as you like, and see what happened.
seed = report.broken[0].seed
again = simulate(make_agent, "Pay 100 yen.", seeds=[seed], answers=answers, run_tools=True, trace=True)
print("\n".join(line for line in again.broken[0].trace if "DOES" in line))

# prints:
#   True
#   once (an irreversible call is made once, and again only if a person says so): pay for run-1:c1_0 was done 2 times
#   DOES pay
#   DOES pay
