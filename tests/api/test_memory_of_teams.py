"""Memories of agents in a team: what a member recalls and learns, by a transfer and by delegated work."""

import pytest

from kaname import Agent, Memory, MemoryJournal, ScriptedModel, call


def texts(memory, user="ann"):
    return [one.text for one in memory.of(user).all()]


class Family:
    """A lead that gives each message to a member with a memory."""

    def __init__(self, folder, hand, *, shared=False):
        self.memory, self.seen = Memory(folder=folder), []

        def answer(request):
            self.seen.append("\n".join([message.text for message in request.messages]))
            return "Noted."

        def hands(request):
            return hand if request.messages[-1].role == "user" else "Done."

        journal = MemoryJournal()
        self.member = Agent(ScriptedModel(answer), name="member", context=[self.memory], journal=journal)
        own = [self.memory] if shared else []
        self.lead = Agent(ScriptedModel(hands), name="lead", team=[self.member], context=own, journal=journal)

    async def say(self, text):
        result = await self.lead.run(text, user_id="ann")
        await self.lead.close()
        return result


TRANSFER = call("transfer_to_agent", agent="member", reason="it knows")
DELEGATE = call("delegate_to_agent", agent="member", task="I live in Paris. Where does the user live?")


@pytest.mark.parametrize("shared", [False, True])
async def test_member_remembers_what_the_user_says_before_a_transfer(tmp_path, shared):
    family = Family(tmp_path, TRANSFER, shared=shared)
    await family.say("I live in Kyoto.")
    assert texts(family.memory) == ["I live in Kyoto."]
    result = await family.say("Where do I live?")
    assert "I live in Kyoto." in family.seen[-1]
    assert (await family.lead.replay(result.run_id)).same
    assert texts(family.memory) == ["I live in Kyoto."]


async def test_words_of_the_lead_are_not_learnt_as_the_users(tmp_path):
    family = Family(tmp_path, DELEGATE)
    await family.say("Please find out.")
    await family.member.run("Hello.", user_id="ann")
    await family.member.close()
    assert not [text for text in texts(family.memory) if "Paris" in text]


async def test_delegate_recalls_what_it_knows_of_the_user(tmp_path):
    family = Family(tmp_path, DELEGATE)
    await family.member.run("I live in Kyoto.", user_id="ann")
    await family.member.close()
    result = await family.say("Please find out.")
    assert "I live in Kyoto." in family.seen[-1]
    assert (await family.lead.replay(result.run_id)).same
    assert (await family.member.replay(f"{result.run_id}/c1_0/member")).same
