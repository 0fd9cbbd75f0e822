"""The warning about a request that does not begin as the last one did, although the provider had cached that."""

from kaname import Agent, MemoryJournal, Message, ModelReply, Policy, ScriptedModel, Usage, call, replace
from kaname.core.events import Warned
from kaname.core.messages import Text, ToolSpec, system
from kaname.kernel.bases import ModelInfo
from kaname.policies.reuse.prefix import PrefixWatch
from tests.parts import add, facts


class Caching:
    """A provider that reads the beginning of a request from its cache if it has seen it, message by message."""

    name, about = "caching", ModelInfo(caches_prompts=True)

    def __init__(self, steps=4, caches=True, least=2):
        self.steps, self.caches, self.least, self.seen = steps, caches, least, []

    async def reply(self, request, emit):
        sent = [repr(request.tools), *map(repr, request.messages)]
        known = [n for n in range(len(sent), self.least - 1, -1) if sent[:n] in self.seen]
        self.seen += [sent[:n] for n in range(2, len(sent) + 1)]
        cached = 1000 * known[0] if known and self.caches else 0
        done = sum(message.role == "assistant" for message in request.messages)
        part = Text("done") if done >= self.steps else call("add", a=done, b=1)
        stop = "end_turn" if done >= self.steps else "tool_use"
        return ModelReply(Message("assistant", (part,)), stop, Usage(5000, 10, cached, 0.01))


async def warnings(agent):
    result = await agent.run("Add.")
    assert result.stop.kind == "completed", result.stop
    return [event.body.text for event in await facts(agent, result.run_id) if isinstance(event.body, Warned)]


async def test_run_that_only_grows_is_not_warned():
    assert await warnings(Agent(Caching(), [add], instructions="Be brief.", journal=MemoryJournal())) == []
    assert await warnings(Agent(Caching(caches=False), [add], context=[changing()], journal=MemoryJournal())) == []


def changing(after=2):
    """Return a context part that writes something new into the instructions, again and again."""

    async def now(messages, view):
        replied = view.state.replied
        told = f"It is {replied} o'clock." if replied >= after else "It is morning."
        return (system(told), *[one for one in messages if one.role != "system"])

    return now


async def test_instructions_that_change_are_reported_once():
    (told,) = await warnings(Agent(Caching(6), [add], context=[changing()], journal=MemoryJournal()))
    assert told.startswith("the instructions are not the same as in the last request")
    assert "4,000 tokens" in told or "3,000 tokens" in told


async def test_tools_that_change_are_reported():
    class More(Policy):
        async def model(self, request, next, view):
            more = (ToolSpec("other", "Another tool.", {"type": "object"}, "pure"),) if view.state.replied >= 2 else ()
            return await next(replace(request, tools=(*request.tools, *more)))

    agent = Agent(Caching(), [add], instructions="Be brief.", policies=[More()], journal=MemoryJournal())
    (told,) = await warnings(agent)
    assert told.startswith("the tools are not the same as in the last request")


async def test_message_that_changes_is_reported_with_its_number():
    async def shout(messages, view):
        changed = replace(messages[1], parts=(Text("ADD!"),)) if view.state.replied >= 3 else messages[1]
        return (messages[0], changed, *messages[2:])

    agent = Agent(Caching(least=3), [add], instructions="Be brief.", context=[shout], journal=MemoryJournal())
    (told,) = await warnings(agent)
    assert told.startswith("message 2 is not the same as in the last request")


async def test_summary_of_the_conversation_is_not_reported():
    async def sum_up(messages, view):
        async def summarise(old):
            return "so far: 1 and 2", Usage()

        if view.state.replied == 3 and len(view.state.messages) > 5:
            await view.compact(5, summarise)
        return (messages[0], *view.state.history)

    agent = Agent(Caching(3, least=3), [add], instructions="Be brief.", context=[sum_up], journal=MemoryJournal())
    assert await warnings(agent) == []


async def test_another_model_has_a_cache_of_its_own():
    other = Caching(least=9)

    class Instead(Policy):
        async def model(self, request, next, view):
            switched = view.state.replied >= 3
            messages = (system("Other."), *request.messages[1:]) if switched else request.messages
            return await next(replace(request, messages=messages, model=other if switched else None))

    agent = Agent(Caching(4), [add], instructions="Be brief.", policies=[Instead()], journal=MemoryJournal())
    assert await warnings(agent) == []


async def test_models_without_a_prompt_cache_are_not_watched():
    assert not [one for one in Agent(ScriptedModel(["a"])).recipe.policies if isinstance(one, PrefixWatch)]
    assert [one for one in Agent(Caching()).recipe.policies if isinstance(one, PrefixWatch)]
