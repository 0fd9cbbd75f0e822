"""Handoffs that are refused, and who is told when one is over."""

import pytest

from kaname import MAX_HANDOFF_DEPTH, Agent, ModelError, ScriptedModel, Team, call
from kaname.run.handoffs.handoff import join
from kaname.serve.dialects.transcript import Transcript
from tests.parts import chunks


def agent(script, name, **more):
    return Agent(ScriptedModel(script), name=name, journal=more.pop("journal", "memory"), **more)


def transfer(to):
    return call("transfer_to_agent", agent=to, reason="it knows")


@pytest.mark.requirement("D18")
async def test_return_of_a_transfer_is_told_to_each_who_gave_it_away_the_last_first():
    told = []

    def seen_by(giver):
        return lambda name, result: told.append((giver, name, result.output))

    third = agent(lambda request: "done by the third", "third")
    second = agent([transfer("third"), transfer("third")], "second", team=Team((third,), on_handoff_return=seen_by("second")))
    first = agent([transfer("second")], "first", team=Team((second,), on_handoff_return=seen_by("first")))
    run = first.run("go", session_id="s")
    assert (await run).output == "done by the third"
    assert told == [("second", "third", "done by the third"), ("first", "second", "done by the third")]
    told.clear()
    await first.resume(run.run_id)
    assert told == [], "a result that is given again is not another return"


@pytest.mark.requirement("D18")
async def test_return_of_a_transfer_that_failed_brings_the_error_and_a_broken_callback_breaks_nothing(caplog):
    told = []

    def on_return(name, outcome):
        told.append((name, outcome))
        raise RuntimeError("in the callback")

    broken = agent([None, ModelError("gone")], "broken")
    first = agent([transfer("broken")], "first", team=Team((broken,), on_handoff_return=on_return))
    with pytest.raises(ModelError, match="gone"):
        await first.run("go")
    ((name, outcome),) = told
    assert name == "broken"
    assert isinstance(outcome, ModelError)
    assert "on_handoff_return after run" in caplog.text


@pytest.mark.requirement("D18")
async def test_circular_and_too_deep_handoffs_give_an_error_chunk_and_the_run_goes_on():
    def chain(depth):
        last = agent(lambda request: "I answer it" if "already" in str(request.messages[-1]) else transfer("a0"), f"a{depth}")
        members = [last]
        for number in reversed(range(depth)):
            members.insert(0, agent([transfer(f"a{number + 1}")] * 9, f"a{number}", team=[members[0]]))
        return members

    two = chain(1)
    join(two[-1], [two[0]])
    run = two[0].run("go")
    seen = await chunks(run)
    assert (await run).output == "I answer it"
    (error,) = [chunk for chunk in seen if chunk.type == "error"]
    assert error.data["type"] == "HandoffRefused"
    assert "a0 has already worked on this (a0 → a1 → a0)" in error.data["message"]
    assert not error.fails
    assert [chunk.seq for chunk in seen] == [*range(1, len(seen) + 1)]
    assert MAX_HANDOFF_DEPTH == 5
    many = chain(MAX_HANDOFF_DEPTH)
    join(many[-1], [agent(["never"], "a0x")])
    many[-1].recipe = many[-1].recipe.with_changes(model=ScriptedModel(_beyond))
    run = many[0].run("go")
    (error,) = [chunk for chunk in await chunks(run) if chunk.type == "error"]
    assert "handed over 5 times" in error.data["message"]
    assert (await run).output == "I answer it"


@pytest.mark.requirement("D18")
async def test_error_chunk_of_a_refused_handoff_does_not_end_the_answer_in_other_protocols():
    first = agent([transfer("second")], "first")
    second = agent(lambda request: "I answer it" if "already" in str(request.messages[-1]) else transfer("first"), "second")
    join(first, [second])
    join(second, [first])
    written, kinds = Transcript("r"), []
    for chunk in await chunks(first.run("go")):
        written.take(chunk)
        kinds += [written.ended] if chunk.type in ("error", "status") else []
    assert "failed" not in kinds
    assert (written.ended, written.output) == ("completed", "I answer it")


def _beyond(request):
    return "I answer it" if "already been handed over" in str(request.messages[-1]) else transfer("a0x")
