"""Approvals that hold for later calls: for the run, or always, until they end or are revoked."""

import asyncio
import json
import time

import pytest
from pydantic import BaseModel, SecretStr

from kaname import Agent, Approve, InvalidState, MemoryJournal, Permit, ScriptedModel, SqliteJournal, call, tool
from kaname.cli.main import main
from kaname.kernel.stores import Grant

KEY = "approve:c1_0"


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path):
    return MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "journal.db")


async def after(stamp):
    """Wait until that time of day has passed."""
    while time.time() < stamp:
        await asyncio.sleep(stamp - time.time())


def payer(journal, *amounts, policies=()):
    paid = []

    @tool
    def pay(yen: int, to: str = "Mika") -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    script = [call("pay", yen=yen) for yen in amounts]
    agent = Agent(ScriptedModel([*script, "done"]), [pay], policies=[Approve("pay"), *policies], journal=journal)
    return agent, paid


async def first_approval(journal, answer, *amounts, **options):
    agent, paid = payer(journal, *amounts, **options)
    asked = await agent.run("Pay.", user_id="ken")
    return agent, paid, await agent.resume(asked.run_id, {KEY: answer}, by="mika")


async def test_an_approval_for_the_run_allows_equal_calls_of_the_run_only(journal):
    agent, paid, result = await first_approval(journal, {"approved": True, "for": "run"}, 5, 5, 6)
    assert paid == [5, 5]
    assert result.stop.kind == "waiting", "6 yen are another call"
    assert (await agent.replay(result.run_id)).same
    again, _ = payer(journal, 5)
    assert (await again.run("Pay.", user_id="ken")).stop.kind == "waiting"


async def test_an_approval_for_always_allows_calls_of_later_runs_of_the_same_user(journal):
    answer = {"approved": True, "for": "always", "where": {"yen": {"at_most": 100}}}
    agent, paid, result = await first_approval(journal, answer, 5)
    assert result.completed
    again, paid = payer(journal, 100, 101)
    second = await again.run("Pay.", user_id="ken")
    assert (paid, second.stop.kind) == ([100], "waiting")
    assert (await again.replay(second.run_id)).same
    other, paid = payer(journal, 5)
    assert (await other.run("Pay.", user_id="yui")).stop.kind == "waiting"
    (grant,) = await journal.stores.grants.all()
    assert (grant.tool, grant.user, grant.by, dict(grant.where)) == ("pay", "ken", "mika", {"yen": {"at_most": 100}})
    assert await journal.stores.grants.revoke(grant.id)
    assert not await journal.stores.grants.revoke(grant.id)
    after, paid = payer(journal, 5)
    assert ((await after.run("Pay.", user_id="ken")).stop.kind, paid) == ("waiting", [])
    assert (await agent.resume(result.run_id, {KEY: answer})).completed, "the same answer again changes nothing"


async def test_an_approval_ends_at_its_time(journal):
    ends = time.time() + 0.05
    await first_approval(journal, {"approved": True, "for": "always", "until": ends}, 5)
    await after(ends)
    again, paid = payer(journal, 5)
    assert ((await again.run("Pay.", user_id="ken")).stop.kind, paid) == ("waiting", [])
    _, _, result = await first_approval(journal, {"approved": True, "for": "always", "until": "1h"}, 6)
    assert result.completed
    later, paid = payer(journal, 6)
    assert (await later.run("Pay.", user_id="ken")).completed


async def test_an_approval_never_stands_over_a_refusal(journal):
    everything = {"approved": True, "for": "always", "where": {}}
    await first_approval(journal, everything, 5)
    denying = Permit([{"tool": "*"}, {"tool": "pay", "effect": "deny", "where": {"yen": {"at_least": 100}}}])
    forbidden, paid = payer(journal, 100, 5, policies=[denying])
    await forbidden.run("Pay.", user_id="ken")
    assert paid == [5]
    refusing, paid = payer(MemoryJournal(), 5, 5)
    asked = await refusing.run("Pay.")
    await refusing.journal.stores.grants.put(Grant("1", "agent", "", "pay", {}))
    refused = await refusing.resume(asked.run_id, {KEY: "no"})
    assert (refused.stop.kind, paid) == ("waiting", []), "who refused it is asked about the same call once more"


@pytest.mark.parametrize(
    "wrong",
    [
        {"where": {"yen": {"at_most": 4}}},
        {"where": {"yen": {"most": 4}}},
        {"where": {"*": 5}},
        {"where": {"*": ["item"]}},
        {"where": "all"},
        {"until": "soon"},
        {"for": "ever"},
        {"approved": False},
        {"args": {"yen": 1}},
    ],
)
async def test_an_approval_that_cannot_be_read_or_does_not_fit_the_call_is_refused(journal, wrong):
    agent, paid = payer(journal, 5)
    asked = await agent.run("Pay.")
    with pytest.raises(InvalidState):
        await agent.resume(asked.run_id, {KEY: {"approved": True, "for": "always", **wrong}})
    assert paid == []
    assert await journal.stores.grants.all() == []


async def test_a_star_in_an_argument_that_was_shown_is_no_pattern(journal):
    @tool
    def remove(name: str) -> str:
        """Remove."""
        return "removed"

    def remover(name):
        return Agent(ScriptedModel([call("remove", name=name), "done"]), [remove], policies=[Approve()], journal=journal)

    asked = await remover("*.log").run("Clean.")
    assert (await remover("*.log").resume(asked.run_id, {KEY: {"approved": True, "for": "always"}})).completed
    assert (await remover("*.log").run("Clean.")).completed
    assert (await remover("all.log").run("Clean.")).stop.kind == "waiting"


def test_approvals_are_listed_and_revoked_in_the_terminal(tmp_path, capsys):
    path = tmp_path / "journal.db"

    async def approve():
        journal = SqliteJournal(path)
        await first_approval(journal, {"approved": True, "for": "always"}, 5)
        await journal.close()

    asyncio.run(approve())
    assert main(["approvals", "--journal", str(path)]) == 0
    assert 'pay {"yen": {"equals": 5}' in capsys.readouterr().out
    main(["approvals", "--json", "--journal", str(path)])
    (grant,) = json.loads(capsys.readouterr().out)
    assert main(["approvals", "revoke", grant["id"], "--journal", str(path)]) == 0
    assert main(["approvals", "revoke", grant["id"], "--journal", str(path)]) == 1
    capsys.readouterr()
    main(["approvals", "--journal", str(path)])
    assert "pay" not in capsys.readouterr().out


async def test_question_that_expires_is_refused_and_a_late_answer_is_told(tmp_path):
    agent = paying(tmp_path, Approve("pay", expires=0.01))
    result = await agent.run("pay")
    (key,) = result.questions
    await after(result.questions[key].until)
    with pytest.raises(InvalidState, match="has expired"):
        await agent.resume(result.run_id, {key: "yes"})
    result = await agent.resume(result.run_id)
    assert "the question was not answered in time" in result.output
    assert (await agent.replay(result.run_id)).same


async def test_question_that_expires_can_be_approved_by_time(tmp_path):
    agent = paying(tmp_path, Approve("pay", expires=0.01, then="approve"))
    result = await agent.run("pay")
    await after(next(iter(result.questions.values())).until)
    assert (await agent.resume(result.run_id)).output == "paid 10"


async def test_user_of_a_run_cannot_answer_where_another_person_must(tmp_path):
    agent = paying(tmp_path, Approve("pay", by="other"))
    result = await agent.run("pay", user_id="ken")
    (key,) = result.questions
    for by in ("", "ken"):
        with pytest.raises(InvalidState, match="another person than 'ken'"):
            await agent.resume(result.run_id, {key: "yes"}, by=by)
    assert (await agent.resume(result.run_id, {key: "yes"}, by="mia")).output == "paid 10"
    await agent.journal.stores.grants.put(Grant("g", agent.name, "ken", "pay", {}, by="ken"))
    assert (await agent.run("pay", user_id="ken")).stop.kind == "waiting", "nor allow it always"


async def test_question_says_what_will_happen_in_the_words_of_the_tool(tmp_path):
    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    @pay.describes
    def describe(yen: int) -> str:
        return f"Transfers {yen} yen to the shop."

    agent = Agent(ScriptedModel([call("pay", yen=10)]), [pay], policies=[Approve("pay")], journal=tmp_path / "j.db")
    (asked,) = (await agent.run("pay")).questions.values()
    assert asked.prompt == 'Transfers 10 yen to the shop.\nRun pay({"yen": 10})?'


def paying(tmp_path, policy):
    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    def reply(request):
        last = request.messages[-1]
        return call("pay", yen=10) if last.role == "user" else last.parts[0].output or last.parts[0].error

    return Agent(ScriptedModel(reply), [pay], policies=[policy], journal=tmp_path / "journal.db")


async def test_approval_for_the_run_ends_with_it_in_a_session(journal):
    paid = []

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    model = ScriptedModel(lambda request: call("pay", yen=5) if request.messages[-1].role == "user" else "done")
    agent = Agent(model, [pay], policies=[Approve("pay")], journal=journal)
    asked = await agent.run("Pay.", user_id="ken", session_id="s")
    everything = {"approved": True, "for": "run", "where": {}}
    assert (await agent.resume(asked.run_id, dict.fromkeys(asked.questions, everything), by="mika")).completed
    assert (await agent.run("Pay.", user_id="ken", session_id="s")).stop.kind == "waiting"
    assert paid == [5]


async def test_refusal_comes_before_an_approval_of_the_same_step(journal):
    paid = []

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    script = [[call("pay", yen=5), call("pay", yen=6)], call("pay", yen=6), "done"]
    agent = Agent(ScriptedModel(script), [pay], policies=[Approve("pay")], journal=journal)
    asked = await agent.run("Pay.", user_id="ken")
    everything = {"approved": True, "for": "run", "where": {}}
    result = await agent.resume(asked.run_id, {KEY: everything, "approve:c1_1": "no"}, by="mika")
    assert (result.stop.kind, paid) == ("waiting", [5])


async def test_own_approval_does_not_stand_for_that_of_another_person(journal):
    paid = []

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    small = Approve(when=lambda one: one.args["yen"] <= 10)
    large = Approve(when=lambda one: one.args["yen"] > 10, by="other")
    script = [call("pay", yen=5), call("pay", yen=999), "done"]
    agent = Agent(ScriptedModel(script), [pay], policies=[small, large], journal=journal)
    asked = await agent.run("Pay.", user_id="ken")
    everything = {"approved": True, "for": "run", "where": {}, "by": "mika"}
    result = await agent.resume(asked.run_id, {KEY: everything}, by="ken")
    assert (result.stop.kind, paid) == ("waiting", [5])


async def test_equal_call_has_no_other_arguments_and_no_hidden_ones(journal):
    wiped = []

    @tool
    def wipe(path: str, force: bool = False) -> str:
        """Wipe."""
        wiped.append((path, force))
        return "wiped"

    @tool
    def login(password: SecretStr) -> str:
        """Log in."""
        return "in"

    script = [call("wipe", path="a"), call("wipe", path="a", force=True), "done"]
    agent = Agent(ScriptedModel(script), [wipe], policies=[Approve("wipe")], journal=journal)
    asked = await agent.run("Wipe.", user_id="ken")
    result = await agent.resume(asked.run_id, {KEY: {"approved": True, "for": "always"}}, by="ken")
    assert (result.stop.kind, wiped) == ("waiting", [("a", False)])
    agent = Agent(ScriptedModel([call("login", password="one"), "in"]), [login], policies=[Approve("login")], journal=journal)
    asked = await agent.run("Log in.", user_id="ken")
    with pytest.raises(InvalidState, match="an argument of this call is hidden"):
        await agent.resume(asked.run_id, {KEY: {"approved": True, "for": "always"}}, by="ken")


@pytest.mark.parametrize("where", [{}, {"where": {"cards": {"equals": [{"number": "**********"}]}}}])
async def test_value_that_is_hidden_inside_of_others_cannot_be_compared(journal, where):
    class Card(BaseModel):
        number: SecretStr

    @tool
    def pay(cards: list[Card]) -> str:
        """Pay."""
        return "paid"

    script = [call("pay", cards=[{"number": "1111"}]), "done"]
    agent = Agent(ScriptedModel(script), [pay], policies=[Approve("pay")], journal=journal)
    asked = await agent.run("Pay.", user_id="ken")
    with pytest.raises(InvalidState, match="an argument of this call is hidden"):
        await agent.resume(asked.run_id, {KEY: {"approved": True, "for": "always", **where}}, by="ken")
