"""An irreversible tool that fails, and a pure one that stands in for it."""

from kaname import Agent, FallbackStrategy, ScriptedModel, call, tool


@tool
def pay(yen: int) -> str:
    """Pay."""
    raise TimeoutError("no reply from the bank")


@tool(effect="pure")
def advise(yen: int) -> str:
    """How to pay by hand."""
    return "pay at the counter"


def make() -> Agent:
    model = ScriptedModel(lambda request: call("pay", yen=5) if request.messages[-1].role == "user" else "done")
    return Agent(model, [pay, advise], policies=[FallbackStrategy(fallback={"pay": "advise"}, backoff=0.001)], journal="memory")
