"""A user writes again while an approval waits: later turns hear what became of the call."""

from kaname import Agent, Approve, Guardrails, MemoryJournal, ScriptedModel, call, tool
from kaname.core.people.labels import ToolLabels


class Bank:
    """An agent that pays after an approval. It replies in order, whichever run asks, and remembers what it was shown."""

    def __init__(self, *replies, result="trusted", policies=()):
        self.paid, self.requests, left = [], [], list(replies)

        @tool(labels=ToolLabels(result=result))
        def pay(yen: int) -> str:
            """Pay."""
            self.paid.append(yen)
            return f"paid {yen} yen"

        def reply(request):
            self.requests.append(request)
            return left.pop(0)

        self.agent = Agent(ScriptedModel(reply), [pay], policies=[Approve("pay"), *policies], journal=MemoryJournal())

    async def say(self, text):
        return await self.agent.run(text, session_id="s")

    async def approve(self, result):
        return await self.agent.resume(result.run_id, dict.fromkeys(result.questions, "yes"))

    @property
    def seen(self):
        """What the model was shown with its last call."""
        shown = [message for message in self.requests[-1].messages if message.role in ("user", "tool")]
        return "\n".join([one.text or str([part.output or part.error for part in one.parts]) for one in shown])


async def test_call_that_was_approved_after_the_next_turn_began_is_known_to_later_turns():
    bank = Bank(call("pay", yen=10), "Please wait.", "Paid.", "It was paid.", "As I said.")
    first = await bank.say("Pay 10 yen")
    second = await bank.say("How long does it take?")
    assert "not run yet" in bank.seen
    assert (await bank.agent.replay(second.run_id)).same
    await bank.approve(first)
    assert bank.paid == [10]
    third = await bank.say("And now?")
    assert "was continued meanwhile" in bank.seen
    assert "pay: paid 10 yen" in bank.seen
    assert "Its answer: Paid." in bank.seen
    await bank.say("Really?")
    assert bank.seen.count("was continued meanwhile") == 1
    assert (await bank.agent.replay(third.run_id)).same


async def test_call_that_still_waits_is_not_reported():
    bank = Bank(call("pay", yen=10), "Please wait.", "Still.")
    for text in ("Pay 10 yen", "How long?", "And now?"):
        await bank.say(text)
    assert "meanwhile" not in bank.seen


async def test_run_that_was_stopped_says_so():
    bank = Bank(call("pay", yen=10), "Please wait.", "It was stopped.")
    first = await bank.say("Pay 10 yen")
    await bank.say("How long?")
    await bank.agent.stop(first.run_id, "not wanted")
    await bank.say("And now?")
    assert "not wanted" in bank.seen
    assert bank.paid == []


async def test_run_that_asks_again_is_reported_twice():
    bank = Bank(call("pay", yen=1), "Wait.", call("pay", yen=2), "One is paid.", "Both.", "Yes, both.")
    first = await bank.say("Pay 1 and 2")
    await bank.say("How long?")
    again = await bank.approve(first)
    await bank.say("And now?")
    assert "It waits for another answer now." in bank.seen
    await bank.approve(again)
    await bank.say("And now?")
    assert "paid 2 yen" in bank.seen
    assert bank.paid == [1, 2]


async def test_result_that_other_people_have_written_stays_theirs():
    bank = Bank(call("pay", yen=1), "Wait.", "Paid.", "Fine.", result="untrusted")
    first = await bank.say("Pay 1")
    await bank.say("How long?")
    await bank.approve(first)
    third = await bank.say("And now?")
    assert [message.quotes for message in third.history if "meanwhile" in message.text]
    assert all(message.quotes for message in third.history if "meanwhile" in message.text)


async def test_answer_that_was_blocked_stays_blocked():
    guard = Guardrails(blocked_patterns=["swordfish"])
    bank = Bank(call("pay", yen=1), "Wait.", "The password is swordfish.", "Fine.", policies=[guard])
    first = await bank.say("Pay 1")
    await bank.say("How long?")
    assert (await bank.approve(first)).stop.kind == "blocked"
    await bank.say("And now?")
    assert "pay: paid 1 yen" in bank.seen
    assert "swordfish" not in bank.seen
