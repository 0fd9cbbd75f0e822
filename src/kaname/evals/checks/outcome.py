"""`CaseOutcome`: what came of one attempt at a case, for its checks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from ...core.messages import NOTHING, ToolCall, Usage
from ...core.values import plain_text
from ...run.result import Result


class CaseOutcome:
    """One attempt at a case: a run, or the turns of a conversation.

    Attributes: results: The result of each turn. folder: The folder of the attempt, or None if the agent does not have one.
    """

    def __init__(self, results: list[Result[Any]], folder: Path | None = None) -> None:
        self.results, self.folder = results, folder

    @property
    def last(self) -> Result[Any]:
        return self.results[-1]

    @property
    def output(self) -> Any:
        """The output of the last turn: a text, or the JSON value of a typed output."""
        return self.last.recorded

    @property
    def text(self) -> str:
        """The output as a text."""
        return plain_text(self.output) if self.output is not None else ""

    @property
    def stop(self) -> str:
        """How the last turn ended: `completed`, `max_steps`, `failed`, …"""
        return self.last.stop.kind

    @cached_property
    def calls(self) -> tuple[ToolCall, ...]:
        """All tool calls that the model asked for, in their order."""
        return tuple([call for result in self.results for call in _calls(result)])

    @cached_property
    def usage(self) -> Usage:
        return sum([result.usage for result in self.results], NOTHING)

    @property
    def cost(self) -> float | None:
        """US dollars; None if the price of a model is unknown."""
        return self.usage.cost

    @property
    def steps(self) -> int:
        return sum([result.state.spent.steps for result in self.results])

    @property
    def seconds(self) -> float:
        """Seconds of work. Time in which a run waited for an answer, or was interrupted, does not count."""
        return sum([result.state.spent.seconds for result in self.results])

    @property
    def transcript(self) -> str:
        """The conversation as a text, with the tools that were called."""
        return "\n\n".join([line for result in self.results for line in _lines(result)])


def _calls(result: Result[Any]) -> Iterator[ToolCall]:
    asked = [call for one in result.state.replies for call in one.reply.message.calls]
    yield from asked
    known = {call.id for call in asked}
    for call_id, done in result.state.results.items():
        if call_id not in known:  # a call that a strategy made without the model
            yield ToolCall(call_id, done.name)


def _lines(result: Result[Any]) -> Iterator[str]:
    question = result.state.question
    yield f"User: {question.text if question is not None else ''}"
    names = [call.name for call in _calls(result)]
    if names:
        yield f"(tools: {', '.join(names)})"
    yield f"Assistant: {'' if result.recorded is None else plain_text(result.recorded)}"
