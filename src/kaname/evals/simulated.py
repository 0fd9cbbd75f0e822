"""A simulated user: an agent with a goal, and facts that it can tell, who talks to the agent under evaluation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..agent.agent import Agent
from ..core.messages import NOTHING, Usage
from ..core.record import record
from ..kernel.ports import Journal, Model
from ..run.input import Input
from ..run.many.map import MapInput
from ..run.result import Result

SIMULATED = "simulated user"  # the name of the agent
_BEGIN = "(The conversation begins. Write your first message.)"
_INSTRUCTIONS = """You play a person who talks to an assistant. You are not the assistant: never answer for it.
Your goal: {goal}
What you know: {facts}
Write as this person would: short, one thing at a time. Tell what you know only when it is needed or asked for. Invent nothing:
if you are asked for something that you do not know, say so. Set "done" to true, with a short last message, as soon as your goal
is reached, or when the assistant cannot help you."""

RunTurn = Callable[[MapInput], Awaitable[Result[Any]]]
"""Runs a turn of the agent under evaluation, or returns the result that the journal has."""


@dataclass
class UserTurn:
    """What the person says, and whether it is the last message."""

    message: str
    done: bool


@record
class SimulatedUser:
    """A person to talk to.

    Args:
        goal: What the person wants to reach.
        facts: What the person knows and can tell: a text, a list of texts, or names and values.
        turns: The most messages that the person writes (default: 8).
        model: The model that plays the person (default: the model that judges).
    """

    goal: str
    facts: str | Sequence[str] | Mapping[str, Any] = ""
    turns: int = 8
    model: Model | str | None = None

    @property
    def description(self) -> list[Any]:
        model = self.model if isinstance(self.model, str) else getattr(self.model, "name", "")
        return [self.goal, self.told_facts, self.turns, model]

    @property
    def told_facts(self) -> str:
        if isinstance(self.facts, Mapping):
            return "; ".join([f"{name}: {value}" for name, value in self.facts.items()])
        return self.facts if isinstance(self.facts, str) else "; ".join(self.facts)

    def agent(self, model: Model | str, journal: Journal) -> Agent[Any]:
        said = _INSTRUCTIONS.format(goal=self.goal, facts=self.told_facts or "nothing in particular")
        return Agent(self.model or model, name=SIMULATED, instructions=said, output=UserTurn, journal=journal)


class Talk:
    """A conversation between an agent and a simulated user. Each turn of both is a run, so that it can be resumed.

    Attributes: results: The agent's turns. spent: What the simulated user has cost. error: Why the simulated user said nothing.
    """

    def __init__(self, person: Agent[Any], run: RunTurn, job: str, key: str, user_id: str) -> None:
        self._person, self._run, self._job, self._key, self._user_id = person, run, job, key, user_id
        self._session = f"{job}-{key}"
        self.results: list[Result[Any]] = []
        self.spent: Usage = NOTHING
        self.error = ""

    async def go(self, first: Input, turns: int) -> None:
        """Talk until the person is done, the agent cannot continue, or the person has said enough."""
        said: Input = first
        for turn in range(turns):
            if (turn or not first) and not (said := await self._ask(turn)):
                return
            given = MapInput(said, f"{self._key}.{turn}", self._session, self._user_id)
            self.results.append(await self._run(given))
            if self.results[-1].stop.kind not in ("completed", "degraded"):
                return

    async def _ask(self, turn: int) -> str:
        """Return the person's next message; "" if the conversation is over."""
        heard = self.results[-1].text if self.results else _BEGIN
        given = MapInput(heard or "…", f"{self._key}.user{turn}", f"{self._session}.user", self._user_id)
        (result,) = await self._person.map([given], job=self._job)
        self.spent += result.usage
        said: Any = result.output
        if not result.completed or said is None:
            self.error = str(result.stop.summary)
            return ""
        return "" if said.done and self.results else str(said.message)
