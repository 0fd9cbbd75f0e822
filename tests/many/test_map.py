"""`agent.map`: each input one run, in the order of completion, resumable however it ends."""

import asyncio

import pytest

from kaname import Agent, Approve, ConfigError, MapInput, ScriptedModel, call, tool
from kaname.core.errors import ModelDenied
from kaname.core.messages import ModelReply, assistant
from tests.parts import kinds


class Echo:
    """Answers with the question. `gates`: questions that wait for an event first."""

    name = "echo"

    def __init__(self):
        self.asked, self.gates, self.here, self.most = [], {}, 0, 0

    async def reply(self, request, emit):
        text = request.messages[-1].text
        self.asked.append(text)
        self.here += 1
        self.most = max(self.most, self.here)
        try:
            if text in self.gates:
                await self.gates[text].wait()
            await asyncio.sleep(0)
        finally:
            self.here -= 1
        if "deny" in text:
            raise ModelDenied("wrong key")
        return ModelReply(assistant(f"re: {text}"), "end_turn")


async def test_results_come_when_they_are_there_and_await_returns_them_in_order():
    model = Echo()
    model.gates["a"] = asyncio.Event()
    agent, found = Agent(model, journal="memory"), []
    async for key, result in agent.map(["a", "b", "c"], at_once=2):
        found.append((key, result.output))
        model.gates["a"].set()
    assert found[0][0] != 0
    assert sorted(found) == [(0, "re: a"), (1, "re: b"), (2, "re: c")]
    again = await agent.map(MapInput(text, key=text) for text in "xyz")
    assert [result.output for result in again] == ["re: x", "re: y", "re: z"]


async def test_inputs_are_read_as_the_runs_progress_and_at_once_is_kept():
    model, read = Echo(), []

    def endless():
        for n in range(10**9):
            read.append(n)
            yield f"q{n}"

    done = 0
    mapped = Agent(model, journal="memory").map(endless(), at_once=3)
    async for _ in mapped:
        done += 1
        if done == 50:
            break
    await mapped.aclose()
    assert len(read) <= 50 + 2 * 3
    assert model.most <= 3


async def test_an_input_that_fails_does_not_stop_the_others():
    agent = Agent(Echo(), journal="memory")
    good, denied, wrong, also = await agent.map(["one", "deny this", 5, "two"])
    assert (good.output, also.output) == ("re: one", "re: two")
    assert (denied.stop.kind, denied.stop.error) == ("failed", "ModelDenied")
    assert (wrong.stop.kind, wrong.stop.error) == ("failed", "ConfigError")


async def test_the_same_job_runs_each_input_once_and_a_changed_input_anew(tmp_path):
    model = Echo()
    agent = Agent(model, journal=tmp_path / "a.db")
    first = await agent.map(["a", "b"], job="job")
    again = await agent.map(["a", "B", "c"], job="job")
    assert model.asked == ["a", "b", "B", "c"] or sorted(model.asked) == ["B", "a", "b", "c"]
    assert first[0].run_id == again[0].run_id
    assert [result.output for result in again] == ["re: a", "re: B", "re: c"]
    assert first[0].run_id.startswith("job-0-")


async def test_a_cancelled_map_leaves_its_runs_resumable(tmp_path):
    model = Echo()
    model.gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    agent = Agent(model, journal=tmp_path / "a.db")
    task = asyncio.ensure_future(_collect(agent.map(["a", "b", "c"], job="job", at_once=2)))
    while len(model.asked) < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cards = await agent.journal.runs()
    assert [card.status for card in cards] == ["interrupted", "interrupted"]
    for gate in model.gates.values():
        gate.set()
    results = await agent.map(["a", "b", "c"], job="job", at_once=2)
    assert [result.output for result in results] == ["re: a", "re: b", "re: c"]
    assert (await kinds(agent, results[0].run_id))[-1] == "Stopped"
    assert len(await agent.journal.runs()) == 3


async def _collect(mapped):
    return [one async for one in mapped]


async def test_inputs_of_one_session_run_in_their_order_and_know_each_other():
    agent = Agent(model := Echo(), journal="memory")
    inputs = [MapInput(f"{who}{n}", session=who, user="ken") for n in range(3) for who in "ab"]
    results = await agent.map(inputs, at_once=8)
    assert [one for one in model.asked if one[0] == "a"] == ["a0", "a1", "a2"]
    assert [message.text for message in results[4].history] == ["a0", "re: a0", "a1", "re: a1", "a2", "re: a2"]


async def test_two_inputs_of_one_key_and_wrong_arguments_are_refused():
    agent = Agent(Echo(), journal="memory")
    with pytest.raises(ConfigError, match="the key 'k'"):
        await agent.map([MapInput("a", key="k"), MapInput("b", key="k")])
    with pytest.raises(ConfigError, match="at_once"):
        agent.map(["a"], at_once=0)
    with pytest.raises(ConfigError, match="list or an iterator"):
        agent.map("one text")
    with pytest.raises(ConfigError, match="echo has no batch API"):
        agent.map(["a"], batch=True)


async def test_a_question_is_the_result_and_its_answer_is_found_by_the_same_job():
    @tool(effect="irreversible")
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal="memory")
    (waiting,) = await agent.map(["go"], job="job")
    assert waiting.stop.kind == "waiting"
    await agent.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
    (done,) = await agent.map(["go"], job="job")
    assert (done.run_id, done.output) == (waiting.run_id, "done")


async def test_an_async_iterator_of_inputs():
    async def inputs():
        for text in "ab":
            yield text

    results = await Agent(Echo(), journal="memory").map(inputs())
    assert [result.output for result in results] == ["re: a", "re: b"]
