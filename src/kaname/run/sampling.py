"""Answer a tool server that asks the agent's model: a child run of the call, with the agent's model, policies and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ..core.errors import AgentError, Released, Suspend
from ..core.messages import Message
from ..core.record import record
from ..kernel.ports import Journal, Recipe, Sink, ToolContext
from ..strategies.react import React
from ..tools.mcp.questions import Question, Sample
from .child import Parent
from .opener import Opener
from .request import RunRequest
from .result import result_of
from .run import Run


@record
class Answerer:
    """The agent without its tools, its instructions and its context: what a server may ask."""

    recipe: Recipe
    sinks: Sequence[Sink]

    @property
    def name(self) -> str:
        return self.recipe.name

    def run_on(
        self, journal: Journal, recipe: Recipe, run_id: str, given: Message, answers: Mapping[str, Any], parent: Parent
    ) -> Run[Any]:
        above = (parent.run_id, parent.call_id)
        request = RunRequest(run_id, (given,), "either", parent=above, answers=answers, after=parent.seen)
        opener = Opener(recipe, journal, self.sinks)
        return Run(run_id, partial(opener.open, request), partial(result_of, typed=None), journal)


class Askable(Protocol):
    """An agent, as far as its servers may ask it."""

    sinks: tuple[Sink, ...]

    @property
    def recipe(self) -> Recipe: ...


def answers_for(agent: Askable) -> Sample:
    """Return the function that answers the servers of this agent."""

    async def sample(context: ToolContext, question: Question) -> tuple[str, str]:
        return await _answer(agent.recipe, agent.sinks, context, question)

    return sample


async def _answer(recipe: Recipe, sinks: Sequence[Sink], context: ToolContext, question: Question) -> tuple[str, str]:
    """The model's answer and its name."""
    settings = {**recipe.settings, "max_tokens": question.max_tokens}
    settings |= {} if question.temperature is None else {"temperature": question.temperature}
    asked = recipe.with_changes(
        name=question.name,
        strategy=React(),
        tools={},
        instructions=question.instructions,
        context=(),
        settings=settings,
        team={},
    )
    try:
        result = await context.run_child(Answerer(asked, sinks), question.message)
    except Suspend as wanted:  # the server's call is half done, and cannot be parked
        if context.view is not None:
            context.view.withdraw_question(context.call_id)
        raise AgentError.of(
            "sampling.asks_first",
            "the model was not called, because a policy requires an approval first: {prompt}",
            prompt=wanted.prompt,
        ) from None
    except Released as left:  # it must not end the connection to the server; the call has no result all the same
        raise AgentError.of("sampling.no_answer", "the model did not answer: {why}", why="released") from left
    if result.stop.kind != "completed":
        raise AgentError.of("sampling.no_answer", "the model did not answer: {why}", why=result.stop.detail or result.stop.kind)
    return str(result.output), getattr(recipe.model, "name", "")
