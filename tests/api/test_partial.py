"""Partial results: what was done, what was not, why, and what to do; and what changes for one run only."""

import asyncio
import contextlib

import pytest

from kaname import Agent, Approve, Price, ScriptedModel, Timeout, call, deadline, max_steps, tool
from kaname.core.errors import AgentError, ConfigError, ModelTimeout, ReplyGarbled
from kaname.core.messages import Usage
from kaname.models.providers.anthropic import Anthropic
from kaname.models.providers.openai import OpenAI
from kaname.models.providers.responses import OpenAIResponses
from kaname.testing import WireServer
from kaname.testing.wire import reply


@tool(effect="pure")
def look(n: int) -> int:
    """Look."""
    if n == 2:
        raise ValueError("nothing there")
    return n * 10


@tool
async def pay(yen: int) -> str:
    """Pay."""
    await asyncio.Event().wait()
    return "paid"


class Writing(ScriptedModel):
    """Shows some words, then hangs or breaks."""

    def __init__(self, problem=None):
        super().__init__(["never"], price=Price(1, 1))
        self.problem = problem

    async def reply(self, request, emit):
        for word in ("The ", "answer ", "is "):
            await emit(word)
        if self.problem is not None:
            raise self.problem
        await asyncio.Event().wait()


async def test_text_that_was_shown_before_a_deadline_is_the_output():
    result = await Agent(Writing(), stops=deadline("100ms"), journal="memory").run("go")
    assert (result.stop.kind, result.output, result.usage.cost) == ("deadline", "The answer is ", None)


async def test_text_that_was_shown_before_an_abort_is_the_output():
    run = Agent(Writing(), journal="memory").run("go")
    async for chunk in run:
        if chunk.data.get("content") == "is ":
            run.abort()
    assert (await run).output == "The answer is "


async def test_text_of_a_reply_that_broke_is_kept_in_the_record():
    agent = Agent(Writing(ReplyGarbled("broken")), journal="memory")
    run = agent.run("go").start()
    with pytest.raises(ReplyGarbled):
        async for _ in run:
            pass
    assert (await agent.result(run.run_id)).output == "The answer is "


async def test_completed_run_has_no_partial_result():
    assert (await Agent(ScriptedModel(["done"]), journal="memory").run("go")).partial is None


async def test_partial_result_tells_what_was_done_and_what_was_not():
    script = [[call("look", n=1), call("look", n=2)], call("look", n=3), call("look", n=4)]
    result = await Agent(ScriptedModel(script), [look], stops=max_steps(2), journal="memory").run("go")
    partial = result.partial
    assert [str(one) for one in partial.done] == ['look({"n": 1}): 10', 'look({"n": 3}): 30']
    assert [one.tool for one in partial.failed] == ["look"]
    assert "nothing there" in partial.failed[0].outcome
    assert "limit of 2 steps" in partial.why
    assert result.run_id in partial.advice[-1]
    assert "Done:\n- look" in str(partial)


async def test_call_that_was_cut_off_is_told_as_in_doubt():
    run = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], stops=deadline("100ms"), journal="memory").run("go")
    partial = (await run).partial
    assert [one.tool for one in partial.in_doubt] == ["pay"]
    assert "Check what became of pay" in partial.advice[0]


async def test_call_that_waits_for_approval_is_not_done_yet():
    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal="memory")
    partial = (await agent.run("go")).partial
    assert ([one.tool for one in partial.not_done], partial.done) == (["pay"], ())
    assert "Answer the question" in partial.advice[0]


async def test_time_limit_of_the_user_replaces_the_default():
    agent = Agent(ScriptedModel(["ok"]), policies=[Timeout("30m")], journal="memory")
    limits = [policy.model_seconds for policy in agent.recipe.policies if isinstance(policy, Timeout)]
    assert limits == [1800.0]


async def test_time_limit_of_the_user_holds_for_each_try_and_not_for_all():
    tries = []

    class Slow(ScriptedModel):
        async def reply(self, request, emit):
            tries.append(1)
            await asyncio.Event().wait()

    with pytest.raises(ModelTimeout, match=r"no reply within 0.05 s"):
        await Agent(Slow(["x"]), policies=[Timeout(0.05)], journal="memory").run("go")
    with pytest.raises(ModelTimeout, match=r"no reply within 0.02 s"):
        await Agent(Slow(["x"]), journal="memory").run("go", settings={"timeout": 0.02})


async def test_model_and_settings_can_be_chosen_for_one_run():
    seen = []

    def script(request):
        seen.append(dict(request.settings))
        return "ok"

    agent = Agent(ScriptedModel(script), settings={"temperature": 0, "seed": 1}, journal="memory")
    await agent.run("go", settings={"temperature": 1})
    await agent.run("go")
    assert seen == [{"temperature": 1, "seed": 1}, {"temperature": 0, "seed": 1}]
    assert (await agent.run("go", model=ScriptedModel(["other"]))).output == "other"
    assert (await agent.run("go")).output == "ok"


async def test_headers_of_one_request_are_sent_and_are_no_part_of_the_body():
    async with WireServer(lambda request: reply("hi")) as server:
        agent = Agent(OpenAI("m", base_url=server.url, api_key="k"), journal="memory")
        await agent.run("go", settings={"extra_headers": {"X-Trace": "abc"}, "timeout": 5, "seed": 3})
        (request,) = server.requests
        assert server.headers[0]["x-trace"] == "abc"
        assert (request["seed"], "extra_headers" in request, "timeout" in request) == (3, False, False)
        await agent.close()


@pytest.mark.parametrize("kind", [OpenAI, OpenAIResponses, Anthropic])
async def test_headers_and_time_limit_of_a_model_are_no_part_of_the_body(kind):
    async with WireServer(lambda request: reply("hi")) as server:
        own = {"extra_headers": {"X-Trace": "abc", "X-Key": "s"}, "timeout": "5s", "seed": 3, "temperature": 0}
        model = kind("m", base_url=server.url, api_key="k", headers={"X-Own": "o"}, settings=own)
        assert (model.about.patience, {*model.about.settings} & {"extra_headers", "timeout"}) == (5.0, set())
        with contextlib.suppress(AgentError):  # the server speaks chat completions
            await Agent(model, journal="memory").run("go", settings={"extra_headers": {"X-Trace": "later"}})
        sent, headers = server.requests[0], server.headers[0]
        assert not {"extra_headers", "timeout", "X-Trace"} & {*sent}
        assert sent["temperature"] == 0
        assert (headers["x-trace"], headers["x-key"], headers["x-own"]) == ("later", "s", "o")
        await model.close()
    with pytest.raises(ConfigError, match="extra_headers must be a mapping"):
        kind("m", base_url="http://127.0.0.1:1/v1", api_key="k", settings={"extra_headers": "X-Trace"})


def test_usage_without_a_known_cost_keeps_its_bound():
    whole = Usage(1, 1, cost=0.5) + Usage(1, 1, cost=None, most=0.25)
    assert (whole.cost, whole.most, whole.ceiling) == (None, 0.75, 0.75)
    assert (whole + Usage(cost=None)).ceiling is None
