"""Model calls are tried again when the provider is busy, and only then."""

import pytest

from kaname import Agent, ConfigError, Message, ModelError, ModelReply, Retry
from kaname.core.errors import ModelDenied, ModelTimeout, ModelUnavailable, RateLimited
from kaname.core.messages import Text
from kaname.models import OpenAI
from kaname.testing.wire import WireServer, reply, status
from tests.parts import add, chunks


class Failing:
    """Fails so often before it answers; shows something first, if it is told to."""

    name = "failing"

    def __init__(self, *errors, shows=False):
        self.errors, self.shows, self.asked = list(errors), shows, 0

    async def reply(self, request, emit):
        self.asked += 1
        if self.errors:
            if self.shows:
                await emit("half a ")
            raise self.errors.pop(0)
        await emit("done")
        return ModelReply(Message("assistant", (Text("done"),)), "end_turn")


async def test_a_busy_provider_does_not_end_the_run():
    async with WireServer([status(429, "slow down", retry_after=0), status(503, "down"), reply("here I am")]) as server:
        agent = Agent(OpenAI("any", base_url=server.url, api_key="k"), journal="memory")
        seen = await chunks(agent.run("hi"))
        await agent.close()
    assert len(server.requests) == 3
    told = [chunk["content"] for chunk in seen if chunk["type"] == "status" and chunk["data"]["status"] == "warning"]
    assert ["429" in told[0], "503" in told[1], "slow down" in told[0], len(told)] == [True, True, False, 2]
    assert "retrying in 0.0 s (try 2 of 5)" in told[0]
    assert "".join([chunk["content"] for chunk in seen if chunk["type"] == "delta"]) == "here I am"


async def test_tries_are_bounded():
    model = Failing(*[ModelUnavailable("down")] * 9)
    with pytest.raises(ModelUnavailable, match="down"):
        await Agent(model, journal="memory").run("hi")
    assert model.asked == 5


@pytest.mark.parametrize(
    "error", [ModelDenied("no key"), ModelTimeout("late"), RateLimited("tomorrow", retry_after=3600), ModelError("strange")]
)
async def test_what_makes_no_sense_is_not_tried_again(error):
    model = Failing(error)
    with pytest.raises(type(error)):
        await Agent(model, journal="memory").run("hi")
    assert model.asked == 1


async def test_what_was_shown_is_not_shown_again():
    model = Failing(ModelUnavailable("the answer stopped"), shows=True)
    run = Agent(model, journal="memory").run("hi")
    await anext(run)
    with pytest.raises(ModelUnavailable):
        await run
    assert model.asked == 1


async def test_ones_own_replaces_the_default():
    model = Failing(ModelUnavailable("down"))
    with pytest.raises(ModelUnavailable):
        await Agent(model, policies=[Retry(tries=1)], journal="memory").run("hi")
    with pytest.raises(ConfigError, match="tries must be at least 1"):
        Retry(tries=0)


async def test_a_run_that_was_tried_again_replays():
    async with WireServer([status(503, "down"), reply(calls=[("add", {"a": 1, "b": 2})]), reply("3")]) as server:
        agent = Agent(OpenAI("any", base_url=server.url, api_key="k"), [add], journal="memory")
        result = await agent.run("hi")
        await agent.close()
    assert (await agent.replay(result.run_id)).same
