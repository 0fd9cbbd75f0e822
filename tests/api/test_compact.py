"""`Compact`: a long conversation is summed up; the summary is a fact, and what it stands for can be looked up."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import Agent, Compact, ConfigError, Memory, ModelError, ScriptedModel, Window, call, cost, max_steps, tool
from kaname.core.events import Compacted, Warned
from kaname.core.messages import ModelReply, Usage, assistant
from tests.parts import assert_valid_history
from tests.properties import tries

LONG = "word " * 200  # about 250 tokens


class Summaries:
    """A model that writes summaries, and keeps what it was asked."""

    name = "summaries"

    def __init__(self, *failures):
        self.asked, self.failures = [], list(failures)

    async def reply(self, request, emit):
        self.asked.append(request.messages[-1].text)
        if self.failures:
            raise self.failures.pop(0)
        summary = f"Summary {len(self.asked)}: Ken promised Mika the report."
        return ModelReply(assistant(summary), usage=Usage(100, 10, cost=0.5))


def noting(seen, answers):
    """A scripted model that keeps what it was sent."""

    def answer(request):
        assert_valid_history(request.messages)
        seen.append(request.messages)
        return answers(request) if callable(answers) else answers

    return ScriptedModel(answer)


async def test_a_long_conversation_is_summed_up_and_goes_on_from_the_summary():
    seen, summaries = [], Summaries()
    agent = Agent(noting(seen, "fine"), context=Compact(1_000, 400, model=summaries), journal="memory")
    for number in range(8):
        result = await agent.run(f"{number} {LONG}", session_id="s")
    assert len(summaries.asked) >= 2
    assert "Summary 1: Ken promised" in summaries.asked[1], "a summary is summed up with what came after it"
    assert seen[-1][0].text.startswith("[Summary of the conversation so far")
    assert seen[-1][-1].text.startswith("7 word")
    assert max(len(messages) for messages in seen) < 9
    assert result.output == "fine"


async def test_a_summary_is_a_fact_that_is_paid_for_and_shown():
    chunks = []
    agent = Agent(noting([], "fine"), context=Compact(600, 300, model=Summaries()), journal="memory")
    await agent.run(LONG, session_id="s")
    await agent.run(LONG, session_id="s")
    run = agent.run(LONG, session_id="s")
    async for chunk in run:
        chunks.append(chunk)
    result = await run
    (shown,) = [chunk.data for chunk in chunks if chunk.type == "status" and chunk.data["status"] == "compacted"]
    assert "Ken promised" in shown["content"]
    assert shown["usage"]["cost"] == 0.5
    assert result.usage.cost == 0.5
    (card,) = await agent.journal.runs(run_id=result.run_id)
    assert card.cost == 0.5


async def test_a_summary_counts_for_the_limit_on_money():
    seen = []
    agent = Agent(
        noting(seen, lambda request: call("look", page=len(seen))),
        [look],
        context=Compact(600, 300, model=Summaries()),
        stops=cost(1.2),
        journal="memory",
    )
    result = await agent.run("Read on.")
    assert result.stop.kind == "budget"


@tool(effect="pure")
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}: {LONG}"


async def test_a_long_turn_is_summed_up_and_keeps_its_question():
    seen = []

    def read_on(request):
        return "done" if len(seen) > 12 else call("look", page=len(seen))

    compact = Compact(1_200, 500, model=Summaries())
    agent = Agent(noting(seen, read_on), [look], context=compact, stops=max_steps(20), journal="memory")
    result = await agent.run("Read all pages and tell me about page 3.")
    assert result.output == "done"
    assert all(messages[0].text.startswith(("Read all", "[Summary")) for messages in seen)
    assert any(messages[0].text.startswith("[Summary") for messages in seen)
    assert all(any(one.text.startswith("Read all pages") for one in messages) for messages in seen)


def asking(query):
    return lambda request: "I see." if request.messages[-1].role == "tool" else call("look_back", query=query)


async def test_what_was_summed_up_can_be_looked_up():
    facts = [f"The code of box {number} is {number * 7919 % 9000 + 1000}." for number in range(20)]
    agent = Agent(noting([], "noted"), context=Compact(1_500, 500, model=Summaries()), journal="memory")
    for fact in facts:
        await agent.run(f"{fact} {LONG}", session_id="s")
    for number, fact in enumerate(facts):
        curious = Agent(
            noting([], asking(f"code of box {number}")), context=Compact(1_500, 500, model=Summaries()), journal=agent.journal
        )
        result = await curious.run(f"What is the code of box {number}?", session_id="s")
        (found,) = result.state.results.values()
        assert fact in json.dumps(found.output), fact
    assert {one["who"] for one in found.output["passages"]} == {"user", "agent"}


async def has_summary(journal, run_id):
    return any([isinstance(event.body, Compacted) async for event in journal.read(run_id)])


async def test_a_summary_is_the_same_after_a_crash_and_in_a_replay(tmp_path):
    summaries = Summaries()
    agent = Agent(noting([], "fine"), context=Compact(600, 300, model=summaries), journal=tmp_path / "j.db")
    for _ in range(4):
        result = await agent.run(LONG, session_id="s")
    asked = len(summaries.asked)
    assert asked >= 1
    (await agent.replay(result.run_id)).raise_for_difference()
    assert len(summaries.asked) == asked
    other = Agent(noting([], "fine"), context=Compact(100_000, model=summaries), journal=agent.journal)
    compacted = [card.run_id for card in await agent.journal.runs() if await has_summary(agent.journal, card.run_id)]
    assert not (await other.replay(compacted[0])).same, "a part of the context that has changed is told"
    (await agent.replay(compacted[0])).raise_for_difference()
    other_life = Agent(noting([], "fine"), context=Compact(600, 300, model=summaries), journal=tmp_path / "j.db")
    again = await other_life.run("short", session_id="s")
    assert [message.text for message in again.state.messages][:1] == [result.state.messages[0].text]


async def test_a_summary_that_fails_is_a_warning_and_the_run_goes_on():
    seen, summaries = [], Summaries(ModelError("the summary model is away", status=401))
    agent = Agent(noting(seen, "fine"), context=Compact(600, 300, model=summaries), journal="memory")
    await agent.run(LONG, session_id="s")
    await agent.run(LONG, session_id="s")
    result = await agent.run(LONG, session_id="s")
    assert result.output == "fine"
    warned = [event.body.text async for event in agent.journal.read(result.run_id) if isinstance(event.body, Warned)]
    assert any("could not be summarised" in one for one in warned)
    assert len(seen[-1]) == 5


def test_a_number_that_cannot_be_meant_is_told():
    with pytest.raises(ConfigError, match="keep must be an integer .*below 100, not 100"):
        Compact(100, 100)
    for tokens in (-3, 1, 1000.5, "24k"):
        with pytest.raises(ConfigError, match="tokens must be an integer of at least 20"):
            Compact(tokens)
    with pytest.raises(ConfigError, match="only one context part"):
        Agent(ScriptedModel([]), context=[Compact(), Window(messages=4)])


async def test_a_failed_summary_is_replayed_as_one():
    summaries = Summaries(ModelError("away", status=401))
    agent = Agent(noting([], "fine"), context=Compact(600, 300, model=summaries), journal="memory")
    for _ in range(3):
        result = await agent.run(LONG, session_id="s")
    (await agent.replay(result.run_id)).raise_for_difference()


async def test_a_very_long_conversation_is_summed_up_in_parts():
    """A session from before `Compact` was there: no request is longer than what may be sent."""
    summaries = Summaries()
    before = Agent(noting([], "fine"), journal="memory")
    for number in range(40):
        await before.run(f"{number} {LONG}", session_id="s")
    after = Agent(noting([], "fine"), context=Compact(2_000, 600, model=summaries), journal=before.journal)
    result = await after.run("and now?", session_id="s")
    assert len(summaries.asked) > 4
    assert max(len(asked) for asked in summaries.asked) < 12_000
    assert sum(len(message.text) for message in result.state.messages) < 8_000
    (await after.replay(result.run_id)).raise_for_difference()


async def test_a_summary_is_shorter_than_what_it_stands_for():
    class Chatty:
        name = "chatty"

        async def reply(self, request, emit):
            return ModelReply(assistant("blah " * 5_000))

    agent = Agent(noting([], "fine"), context=Compact(600, 200, model=Chatty()), journal="memory")
    for _ in range(4):
        result = await agent.run(LONG, session_id="s")
    assert len(result.state.messages[0].text) < 3_000


async def test_a_first_message_that_is_too_long_does_not_take_all_others_along():
    summaries = Summaries()
    before = Agent(noting([], "fine"), journal="memory")
    for said in ["start " * 4_000, *[f"{number} {LONG}" for number in range(20)]]:
        await before.run(said, session_id="s")
    after = Agent(noting([], "fine"), context=Compact(2_000, 600, model=summaries), journal=before.journal)
    await after.run("and now?", session_id="s")
    assert max(len(asked) for asked in summaries.asked) < 12_000


async def test_a_japanese_summary_is_cut_to_half_as_well():
    class Chatty:
        name = "chatty"

        async def reply(self, request, emit):
            return ModelReply(assistant("話は長く続きます。" * 900))

    agent = Agent(noting([], "はい"), context=Compact(1_000, 300, model=Chatty()), journal="memory")
    for _ in range(6):
        result = await agent.run("今日は天気がよいので、散歩に行きました。" * 15, session_id="s")
    assert len(result.state.messages[0].text) < 1_000


async def test_instructions_and_memories_stay_whatever_the_order_of_the_parts(tmp_path):
    for order in (1, -1):
        seen = []
        memory = Memory(tmp_path / f"m{order}", learn="nothing")
        memory.of().add("Every word counts here.")
        parts = [memory, Compact(600, 300, model=Summaries())][::order]
        agent = Agent(noting(seen, "fine"), instructions="Be brief.", context=parts, journal="memory")
        for _ in range(3):
            await agent.run(LONG, session_id="s")
        texts = [message.text for message in seen[-1]]
        assert texts[0] == "Be brief."
        assert sum(text.startswith("[Summary") for text in texts) == 1
        assert "Every word counts" in texts[-2]


async def test_looking_back_finds_the_last_step_that_was_summed_up_and_the_middle_of_a_long_result():
    pages = {
        n: ("x " * 3_000 + f"codeword{n} is here " + "y " * 3_000) if n == 2 else f"codeword{n} {LONG}" for n in range(1, 6)
    }

    @tool(effect="pure")
    def page(number: int) -> str:
        """A page."""
        return pages[number]

    script = iter([*[call("page", number=n) for n in pages], *[call("look_back", query=f"codeword{n}") for n in pages], "done"])
    compact = Compact(700, 200, model=Summaries())
    agent = Agent(ScriptedModel(lambda request: next(script)), [page], context=compact, stops=max_steps(20), journal="memory")
    result = await agent.run("Read on.")
    found = [one.output for one in result.state.results.values() if one.name == "look_back"]
    assert len(found) == 5
    for number, output in enumerate(found, 1):
        assert f"codeword{number}" in json.dumps(output), number


@tries(60)
@given(st.lists(st.lists(st.sampled_from(["say", "one", "three"]), max_size=4), min_size=1, max_size=6), st.integers(40, 400))
async def test_no_result_is_ever_sent_without_its_call(turns, tokens):
    """Whatever the conversation, and wherever it is cut: `noting` checks every request."""
    plan = [kind for turn in turns for kind in (*turn, "answer")]
    kinds = {"say": "hm " * 20, "one": call("look_short"), "three": [call("look_short")] * 3, "answer": "done"}

    @tool(effect="pure")
    def look_short() -> str:
        """Look."""
        return "seen " * 10

    model = noting([], lambda request: kinds[plan.pop(0)])
    agent = Agent(model, [look_short], context=Compact(tokens, max(1, tokens // 3), model=Summaries()), journal="memory")
    for turn in turns:
        asked = len(plan)
        await agent.run("go " * 10, session_id="s")
        del plan[: max(0, len(turn) + 1 - (asked - len(plan)))]


def long_report(facts: list[str]) -> str:
    """A message of many pages, with a fact on each of them, far from its beginning and its end."""
    filler = "The committee met again, talked for a while about this and that, and went home without a result. " * 30
    return filler + "\n\n".join([f"{fact} {filler}" for fact in facts]) + filler


async def test_what_stands_in_the_middle_of_a_long_message_reaches_the_summary():
    facts = [f"Crate {number} is stored in hall {number * 7}." for number in range(1, 17)]
    summaries = Summaries()
    agent = Agent(noting([], "fine"), context=Compact(6_000, 300, model=summaries), journal="memory")
    await agent.run(long_report(facts), session_id="s")
    result = await agent.run("And now?", session_id="s")
    sent = "\n".join(summaries.asked)
    assert [fact for fact in facts if fact not in sent] == []
    assert max(len(asked) for asked in summaries.asked) < 6_000 * 4 + 2_000  # no request is longer than what may be sent
    assert result.usage.cost == 0.5 * len(summaries.asked)  # every part is paid for
    assert f"Summary {len(summaries.asked)}:" in result.state.messages[0].text
    (await agent.replay(result.run_id)).raise_for_difference()


async def test_a_message_of_millions_of_letters_is_not_summed_up_for_ever():
    summaries = Summaries()
    agent = Agent(noting([], "fine"), context=Compact(500, 100, model=summaries), journal="memory")
    await agent.run("endless " * 40_000, session_id="s")
    await agent.run("And now?", session_id="s")
    assert len(summaries.asked) <= 12


@pytest.mark.parametrize("language", ["en", "ja"])
async def test_looking_back_finds_each_passage_of_one_long_message(language):
    if language == "en":
        facts = [f"The {colour} crate is stored in hall {number}." for number, colour in enumerate(COLOURS["en"], 21)]
        said, asked = long_report(facts), [f"Which hall has the {colour} crate?" for colour in COLOURS["en"]]
    else:
        facts = [f"{colour}の木箱は第{number}倉庫にあります。" for number, colour in enumerate(COLOURS["ja"], 21)]
        filler = "委員会はまた集まり、いろいろと話し合いましたが、何も決まらないまま解散しました。" * 30
        said, asked = filler.join(["", *facts, ""]), [f"{colour}の木箱はどの倉庫ですか" for colour in COLOURS["ja"]]
    script = iter(["fine", *[call("look_back", query=query) for query in asked], "done"])
    compact = Compact(2_000, 300, model=Summaries())
    agent = Agent(ScriptedModel(lambda request: next(script)), context=compact, stops=max_steps(20), journal="memory")
    await agent.run(said, session_id="s")
    result = await agent.run("Look all of them up.", session_id="s")
    found = [json.dumps(one.output, ensure_ascii=False) for one in result.state.results.values() if one.name == "look_back"]
    assert [fact for fact, output in zip(facts, found, strict=True) if fact not in output] == []
    assert max(map(len, found)) < 6_000


COLOURS = {
    "en": ["red", "green", "blue", "yellow", "purple", "orange", "silver", "golden"],
    "ja": ["赤色", "緑色", "青色", "黄色", "紫色", "橙色", "銀色", "金色"],
}
