"""`simulate` tries the agent of a user, and names what is wrong with it."""

import pytest

from kaname import Agent, Approve, ScriptedModel, ToolContext, call, tool
from kaname.testing import simulate

ran: list[str] = []
known: set[str] = set()


@tool
async def pay(yen: int, to: str) -> str:
    """Pay."""
    ran.append(to)
    return "paid"


@tool(effect="irreversible")
async def order(what: str, context: ToolContext) -> str:
    """Order something."""
    known.add(context.idempotency_key)
    return "ordered"


@order.reconciles
async def find_order(what: str, context: ToolContext) -> str | None:
    """Look for it in the wrong place."""
    return "ordered" if what in known else None


def paying(**more):
    script = [call("pay", yen=5, to="ann"), "Paid."]
    return Agent(ScriptedModel(script), [pay], policies=[Approve("pay")], journal="memory", **more)


def test_agent_that_keeps_its_promises_is_simulated_with_stand_ins():
    ran.clear()
    told = simulate(paying, "Pay ann 5 yen.", seeds=40)
    assert told, told
    assert told.schedules == 40
    assert told.kills > 10
    assert not ran


def test_agent_is_taken_as_it_is_and_its_tools_run_if_wanted():
    ran.clear()
    told = simulate(paying(), "Pay ann 5 yen.", seeds=[1, 2, 3], answers={"approve:": "yes"}, run_tools=True)
    assert told, told
    assert set(ran) == {"ann"}


def test_agent_with_a_team_and_a_model_of_its_own_is_simulated():
    class Other:
        name = "other"

        async def reply(self, request, emit):
            raise AssertionError("the model of the user must not be asked")

    helper = Agent(Other(), [order], name="helper", journal="memory")
    told = simulate(lambda: Agent(Other(), [pay], name="head", team=[helper], journal="memory"), seeds=30)
    assert told, told


def test_wrong_look_up_after_a_crash_is_found_and_its_seed_repeats_it():
    def make():
        return Agent(ScriptedModel([call("order", what="tea"), "Ordered."]), [order], journal="memory")

    told = simulate(make, "Order tea.", seeds=range(300), run_tools=True)
    assert not told
    found = told.broken[0]
    assert found.broken[0].promise == "once"
    assert f"seed {found.seed}" in str(told)
    assert "once (an irreversible call is made once" in str(told)
    assert f"simulate(…, seeds=[{found.seed}], trace=True)" in str(told)
    again = simulate(make, "Order tea.", seeds=[found.seed], run_tools=True, trace=True)
    assert again.broken[0].broken == found.broken
    assert sum("DOES order" in line for line in again.broken[0].trace) == 2


@pytest.mark.parametrize("seeds", [0, []])
def test_no_seeds_are_no_schedules(seeds):
    assert simulate(paying, seeds=seeds).schedules == 0
