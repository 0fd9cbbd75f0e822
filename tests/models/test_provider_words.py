"""A provider's own words: in the log, the journal and the owner's hands, without a key, and never in what everybody sees."""

import logging

import pytest

from kaname import Agent, ModelRequest, ScriptedModel, ToolContext, call, max_steps, tool
from kaname.cli.messages import translate
from kaname.core import errors
from kaname.core.chunks import chunks_of
from kaname.core.messages import user
from kaname.models import OpenAI
from kaname.models.http.errors import Who, failure
from kaname.testing import WireServer
from kaname.testing.wire import reply, status

KEY = "sk-proj-AbCdEfGhIjKlMnOpWXYZ"
WORDS = "Incorrect API key provided: sk-proj-********************WXYZ for org-CANARY."


async def quiet(*_):
    pass


def model(server):
    return OpenAI("any", base_url=server.url, api_key=KEY)


async def test_an_error_has_words_for_everybody_and_the_providers_own(caplog):
    async with WireServer(lambda _: status(401, WORDS)) as server:
        with pytest.raises(errors.ModelDenied) as raised, caplog.at_level(logging.WARNING, "kaname"):
            await model(server).reply(ModelRequest((user("hi"),)), quiet)
    error = raised.value
    assert str(error) == "openai/any: 401: the provider denied access (check the API key and its permissions)"
    assert error.said.startswith("Incorrect API key provided: ***")
    assert error.said.endswith(" for org-CANARY.")
    assert "WXYZ" not in error.said
    assert error.said in caplog.text
    assert error.__notes__ == [f"Details: {error.said}"], "a traceback shows them"
    assert error.said in translate(error), "and so does the terminal"


@pytest.mark.parametrize("text", [KEY, KEY[:10], KEY[-4:], KEY[6:20], f"…{KEY[-5:]}", f"{KEY[:7]}...{KEY[-4:]}"])
def test_no_part_of_a_key_that_can_be_recognised_is_kept(text):
    error = failure(errors.ModelDenied, f"the key ({text}) is wrong", 401, Who("openai", "any", (KEY,)))
    assert "is wrong" in error.said
    assert not any(KEY[at : at + 4] in error.said for at in range(len(KEY) - 3))


async def told_and_recorded(agent, server):
    """All that users can be shown of a run, and the facts of it."""
    run = agent.run("go")
    try:
        result = await run
    except errors.ModelError:
        result = await agent.result(run.run_id)
    facts = [fact async for fact in agent.journal.read(run.run_id)]
    return result, [str(chunk) for fact in facts for chunk in chunks_of(fact) if chunk.type != "error"], facts


@tool(effect="pure")
def look() -> str:
    """Look."""
    return "seen"


async def test_failed_run_keeps_the_words_apart():
    async with WireServer(lambda _: status(401, WORDS)) as server:
        result, told, facts = await told_and_recorded(Agent(model(server), journal="memory"), server)
    assert "CANARY" in result.stop.said
    assert "CANARY" not in f"{result.stop.detail} {result.text} {told}"
    assert "WXYZ" not in str(facts)
    (failed,) = [chunk for fact in facts for chunk in chunks_of(fact) if chunk.type == "error"]
    assert ("CANARY" in failed.data["said"], "CANARY" in failed.data["message"]) == (True, False)


async def test_retries_fallbacks_and_last_words_show_none():
    async with WireServer([status(429, WORDS, retry_after=0), reply("fine")]) as server:
        result, told, _ = await told_and_recorded(Agent(model(server), journal="memory"), server)
    assert result.output == "fine"
    assert "429" in str(told)
    assert "CANARY" not in str(told)

    async with WireServer([reply(calls=[("look", {})]), status(401, WORDS)]) as server:
        agent = Agent(model(server), [look], journal="memory", stops=max_steps(1))
        result, told, _ = await told_and_recorded(agent, server)
    assert result.stop.kind == "max_steps"
    assert "gave no final answer" in str(told)
    assert "CANARY" not in f"{told} {result.text}"


async def test_a_childs_failure_tells_neither_the_parents_model_nor_its_users():
    async with WireServer(lambda _: status(401, WORDS)) as server:
        child = Agent(model(server), name="child", journal="memory")

        @tool
        async def ask(context: ToolContext) -> str:
            """Ask the child."""
            return str((await context.run_child(child, "go")).output)

        seen = []

        def script(request):
            seen.append(str(request.messages))
            return call("ask") if len(seen) == 1 else "done"

        agent = Agent(ScriptedModel(script), [ask], journal="memory")
        result, told, _ = await told_and_recorded(agent, server)
    assert "the provider denied access" in f"{seen} {result.stop.detail} {told}"
    assert "CANARY" not in f"{seen} {result.stop.detail} {told}"


def test_a_plain_text_is_the_providers_words():
    error = errors.RateLimited("quota of org-CANARY is used up")
    assert error.public == "the provider's rate limit was reached (wait, or ask the provider for a higher limit)"
    assert error.said == str(error) == "quota of org-CANARY is used up"
