"""Contracts: the promises of every port, as tests. Subclass one, implement `make`, and let pytest (or unittest) find it.

    class TestMyJournal(JournalContract):
        def make(self):
            return MyJournal()

The tests are plain functions that start their own event loop: no plugin is needed.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..agent.agent import Agent
from ..core.codec import decode_body, encode_body
from ..core.errors import BadArguments
from ..core.events import Body, Event, ModelReplied, Opened, Received, Warned
from ..core.messages import ModelReply, ModelRequest, ToolCall, ToolResult, ToolSpec, assistant, user
from ..core.state import State, evolve
from ..core.steps import CallModel, CallTools, Conclude, Finish
from ..kernel.ports import Model, Policy, Sink, Strategy
from ..models.providers.scripted import ScriptedModel, call
from ..stores.memory import MemoryJournal
from ..tools.definition import TextTool
from ..tools.registry import as_action
from . import samples


class ModelContract(ABC):
    """Tests for a model.

    `request`: the request that the model is sent. Override it if your model cannot answer this one.
    """

    request = ModelRequest((user("Say hello."),), (ToolSpec("add", "Add.", {"type": "object", "properties": {}}),))

    @abstractmethod
    def make(self) -> Model:
        """Return a model that can answer the request."""

    async def _reply(self) -> tuple[ModelReply, str]:
        shown: list[str] = []

        async def emit(text: str, kind: str = "text", call_id: str = "") -> None:
            shown.extend([text] if kind == "text" else [])

        return await self.make().reply(self.request, emit), "".join(shown)

    def test_it_has_a_name(self) -> None:
        assert isinstance(self.make().name, str)

    def test_the_reply_is_the_assistants(self) -> None:
        reply, _ = asyncio.run(self._reply())
        assert isinstance(reply, ModelReply)
        assert reply.message.role == "assistant"
        assert reply.stop_reason in ("tool_use", "end_turn", "max_tokens", "stop_sequence", None)

    def test_what_is_streamed_is_what_is_said(self) -> None:
        reply, shown = asyncio.run(self._reply())
        assert shown == reply.message.text

    def test_the_reply_can_be_recorded(self) -> None:
        reply, _ = asyncio.run(self._reply())
        fact = ModelReplied(reply, CallModel())
        assert decode_body(*encode_body(fact)) == fact

    def test_it_lets_itself_be_cancelled(self) -> None:
        async def go() -> None:
            stuck = asyncio.Event()

            async def emit(text: str, kind: str = "text", call_id: str = "") -> None:
                stuck.set()
                await asyncio.sleep(60)

            task = asyncio.create_task(self.make().reply(self.request, emit))
            waiter = asyncio.create_task(stuck.wait())
            await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
            waiter.cancel()
            task.cancel()
            begun = stuck.is_set()
            done, _ = await asyncio.wait([task], timeout=1)
            assert done, "the model went on after it was cancelled"
            assert task.cancelled() or not begun, "the model swallowed the cancellation"

        asyncio.run(go())


class ToolContract(ABC):
    """Tests for a tool.

    `args`: arguments that fit the tool. `wrong`: arguments that do not fit, if the default ones do.
    """

    args: Mapping[str, Any] = MappingProxyType({})
    wrong: Any = None

    @abstractmethod
    def make(self) -> Any:
        """Return a tool, in any form that an agent accepts."""

    def test_it_can_be_shown_to_a_model(self) -> None:
        action = as_action(self.make())
        assert action.name
        assert action.description
        assert json.loads(json.dumps(action.parameters))["type"] == "object"

    def test_right_arguments_are_taken(self) -> None:
        action = as_action(self.make())
        action.prepare(ToolCall("c", action.name, dict(self.args)))
        action.prepare(ToolCall("c", action.name, json.dumps(dict(self.args))))

    def test_wrong_arguments_are_answered(self) -> None:
        action = as_action(self.make())
        try:
            plain = {"one": 1, "two": 2} if isinstance(action, TextTool) else "[1, 2"
            action.prepare(ToolCall("c", action.name, plain if self.wrong is None else self.wrong))
        except BadArguments:
            return
        raise AssertionError("wrong arguments were taken")

    def test_an_agent_can_use_it(self) -> None:
        made = self.make()
        name = as_action(made).name
        agent = Agent(ScriptedModel([call(name, **dict(self.args)), "done"]), [made], journal="memory")
        result = asyncio.run(_run_once(agent))
        if result.stop.kind != "waiting":
            (used, _) = result.steps
            finished = next(iter(result.state.results.values()))
            assert isinstance(finished, ToolResult)
            assert finished.error is None, finished.error
            json.dumps(finished.output)
            assert used.action == name


class PolicyContract(ABC):
    """Tests for a policy.

    A policy that allows an ordinary call must not change it. If yours refuses that call, set `allows = False`: it must then say
    so in a result or a stop. If it changes ordinary messages or results, set `changes = True`. If it needs certain tools, list
    them in `tools`.
    """

    allows = True
    changes = False
    tools: Sequence[Any] = ()

    @abstractmethod
    def make(self) -> Policy:
        """Return a policy."""

    def _agent(self) -> Agent:
        def echo(text: str) -> str:
            """Echo."""
            return text

        model = ScriptedModel([call("echo", text="hi"), "done"])
        return Agent(model, [echo, *self.tools], policies=[self.make()], journal="memory")

    def _run(self) -> Any:
        return asyncio.run(_run_once(self._agent()))

    def test_a_run_ends_in_order(self) -> None:
        result = self._run()
        if self.allows:
            assert result.stop.kind == "completed", f"{result.stop}; set `allows = False` if the policy refuses"
            if not self.changes:
                assert result.output == "done", "the policy changed the answer; set `changes = True`"
                observed = [step.observation for step in result.steps]
                assert observed == ["hi", None], "the policy changed the call; set `allows = False` or `changes = True`"
        else:
            refused = [r for r in result.state.results.values() if r.error]
            assert refused or result.stop.kind != "completed", "the policy let the run through; leave `allows = True`"

    def test_a_replay_takes_the_same_decisions(self) -> None:
        """In a replay, the policy runs again around recorded results, which it has changed already."""

        async def go() -> Any:
            agent = self._agent()
            return await agent.replay((await agent.run("text")).run_id)

        if self.make().about.replayed:
            replay = asyncio.run(go())
            assert replay.same, (
                f"{replay}; a change must change nothing the second time, and what comes from outside is recorded"
            )

    def test_it_keeps_nothing_between_runs_that_would_mix_them(self) -> None:
        made = self.make()

        async def go() -> list[Any]:
            def echo(text: str) -> str:
                """Echo."""
                return text

            agent = Agent(
                ScriptedModel(lambda r: call("echo", text=r.messages[0].text) if len(r.messages) == 1 else r.messages[0].text),
                [echo, *self.tools],
                policies=[made],
                journal="memory",
            )
            return await asyncio.gather(*[agent.run(f"text {number}") for number in range(20)])

        if self.allows:
            outputs = [result.output for result in asyncio.run(go())]
            if not self.changes:
                assert outputs == [f"text {number}" for number in range(20)]
            assert len(set(outputs)) == 20


class SinkContract(ABC):
    """Tests for a sink."""

    @abstractmethod
    def make(self) -> Sink:
        """Return a sink."""

    def test_it_takes_every_event(self) -> None:
        async def go() -> None:
            sink = self.make()
            for event in samples.events():
                outcome = sink(event)
                if outcome is not None and hasattr(outcome, "__await__"):
                    await outcome

        asyncio.run(go())

    def test_it_hears_a_run(self) -> None:
        journal = MemoryJournal()
        result = asyncio.run(_run_once(Agent(ScriptedModel(["hello"]), sinks=[self.make()], journal=journal)))
        facts = asyncio.run(_facts(journal, result.run_id))
        assert result.output == "hello"
        assert not [fact for fact in facts if isinstance(fact, Warned)], (
            "the sink failed, and gets no further events of the run"
        )


class StrategyContract(ABC):
    """Tests for a strategy: it must be a pure function of the facts."""

    @abstractmethod
    def make(self) -> Strategy:
        """Return a strategy."""

    def test_same_facts_same_step(self) -> None:
        said = ModelReplied(ModelReply(assistant("hi"), "end_turn"), CallModel())
        facts: list[Body] = [Opened(), Received(user("hello")), said]
        for length in range(2, len(facts) + 1):
            steps = []
            for _ in range(3):
                state = State()
                for number, fact in enumerate(facts[:length], 1):
                    evolve(state, Event("r", number, float(number), "agent", fact))
                strategy = self.make()
                steps += [strategy.next(state), strategy.next(state)]
            assert isinstance(steps[0], CallModel | CallTools | Conclude | Finish)
            assert all(step == steps[0] for step in steps)


async def _run_once(agent: Agent) -> Any:
    return await agent.run("go")


async def _facts(journal: MemoryJournal, run_id: str) -> list[Any]:
    return [event.body async for event in journal.read(run_id)]
