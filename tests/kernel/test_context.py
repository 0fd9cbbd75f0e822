"""Context parts: combined in their order, and what they bring in from outside is recorded and replayed."""

import pytest

from kaname import Agent, MemoryJournal, ScriptedModel, call
from kaname.context.window import Window
from kaname.core.errors import ConfigError, UnexpectedError
from kaname.core.messages import system, user
from kaname.kernel.scope import custom
from tests.parts import Died, MortalJournal, add


def seeing():
    """A model that tells what it was shown."""
    return ScriptedModel(lambda request: " | ".join(message.text for message in request.messages if message.text))


async def last_two(messages, view):
    return Window(messages=2).cut(messages)


async def greet(messages, view):
    return [system("Hello."), *messages]


async def test_parts_combine_in_their_order():
    agent = Agent(seeing(), context=[last_two, greet], journal="memory")
    for text in ("one", "two", "three"):
        result = await agent.run(text, session_id="s")
    assert result.output == "Hello. | three"
    assert (await Agent(seeing(), context=greet, instructions="Be.", journal="memory").run("hi")).output == "Hello. | Be. | hi"


class Memory:
    """Something outside that changes."""

    def __init__(self):
        self.known, self.asked = "likes tea", 0

    async def look(self):
        self.asked += 1
        return self.known

    async def part(self, messages, view):
        return [*messages[:-1], user(f"({await view.recall('known', self.look)}) {messages[-1].text}")]


async def test_what_was_recalled_replays_identically_after_the_memory_has_changed():
    memory = Memory()
    agent = Agent(seeing(), context=[memory.part], journal="memory")
    result = await agent.run("hi")
    assert result.output == "(likes tea) hi"
    memory.known = "likes coffee"
    assert (await agent.replay(result.run_id)).same
    assert memory.asked == 1
    assert (await agent.run("hi")).output == "(likes coffee) hi"


async def test_what_was_recalled_is_a_fact_and_is_not_shown():
    agent = Agent(seeing(), context=[Memory().part], journal="memory")
    chunks = [chunk async for chunk in agent.run("hi")]
    assert not [chunk for chunk in chunks if chunk.type == "known"], "it may be one person's, and the reader another's"
    (card,) = await agent.journal.runs()
    assert (await agent.resume(card.run_id)).state.custom == {"known": {"reply": 1, "value": "likes tea"}}


async def test_each_model_call_recalls_for_itself_and_a_crash_in_between_does_not_ask_twice():
    memory, journal = Memory(), MortalJournal()
    script = ScriptedModel(lambda r: call("add", a=1, b=2) if r.messages[-1].role != "tool" else r.messages[0].text)

    async def part(messages, view):
        return [system(await view.recall("known", memory.look)), *messages]

    agent = Agent(script, [add], context=[part], journal=journal)
    journal.revive(left=2)  # opened and received, what was recalled; then death at the reply
    run = agent.run("hi")
    with pytest.raises(Died):
        await run
    memory.known = "likes coffee"
    journal.revive()
    assert (await agent.resume(run.run_id)).output == "likes coffee", "the second call recalls what is known then"
    assert memory.asked == 2
    kinds = [type(event.body).__name__ async for event in journal.read(run.run_id)]
    assert kinds.count("Custom") == 2


async def test_a_replay_notices_a_part_that_has_changed():
    journal = MemoryJournal()
    result = await Agent(ScriptedModel(["fine"]), context=[greet], journal=journal).run("hi")

    async def insult(messages, view):
        return [*messages, user("You fool.")]

    async def forget(messages, view):
        return messages[:-1]

    for changed in ([insult], [greet, insult], [], [greet, forget]):
        assert not (await Agent(ScriptedModel(["fine"]), context=changed, journal=journal).replay(result.run_id)).same
    assert (await Agent(ScriptedModel(["fine"]), context=[greet], journal=journal).replay(result.run_id)).same


async def test_a_part_that_gives_no_messages_is_told():
    async def broken(messages, view):
        return ["hello"]

    with pytest.raises(UnexpectedError, match="broken.* gave something else than messages"):
        await Agent(seeing(), context=[broken], journal="memory").run("hi")
    with pytest.raises(ConfigError, match="'delta' cannot be the name of a fact"):
        custom("delta", 1)
