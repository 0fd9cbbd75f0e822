"""What a repeat would do: tell kaname, and it knows what to do with a call that a crash interrupted."""

from kaname import Agent, ScriptedModel, ToolContext, call, tool

paid: dict[str, int] = {}  # stands for the bank's own records


@tool(effect="irreversible")
async def pay(yen: int, context: ToolContext) -> str:
    """Pay. The key is the same if the call is ever made again; most payment services take such a key."""
    paid[context.idempotency_key] = yen
    return f"paid {yen}"


@pay.reconciles
async def look_it_up(yen: int, context: ToolContext) -> str | None:
    """After a crash: did it happen? Its result, or None if it did not. Without this, a person is asked."""
    return f"paid {paid[context.idempotency_key]}" if context.idempotency_key in paid else None


@tool(effect="compensable")
def book(room: str) -> str:
    """Book a room."""
    return f"{room} is booked"


@book.undoes
def cancel(room: str) -> None:
    """After a crash: take it back first, then book again. It may be called when nothing was booked."""


agent = Agent(ScriptedModel([[call("pay", yen=100), call("book", room="7")], "Paid and booked."]), [pay, book])
print(agent.run_sync("Go.").output)

# prints:
#   Paid and booked.
