"""Actions that are no functions of a user: what workflows, plans and teams do by a call. A question to a person is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import Suspend
from ..core.events import Effect
from ..core.messages import ToolCall, ToolResult
from ..core.notices import Notice
from ..core.people.answers import choose_option, read_refusal
from ..core.people.visible import visible
from ..kernel.bases import ActionBase, ToolOptions
from ..kernel.ports import ToolContext
from ..kernel.results import declined
from ..tools.arguments.prepare import fitting_arguments

ASK = "ask_person"
_TEXT = {"type": "string"}


class Doing(ActionBase):
    """An `Action` with the arguments of its schema."""

    description = ""
    effect: Effect = "idempotent"  # tried again, it finds what there is
    options = ToolOptions(labels={"role": "own"}, listed=False)  # what it runs is judged itself
    parameters: Mapping[str, Any] = {"type": "object"}

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, call: ToolCall) -> dict[str, Any]:
        return fitting_arguments(call, self.name, self.parameters)


class AskPerson(Doing):
    """`question`, and the `options` that there are. What is answered is the task's output."""

    options = ToolOptions(labels={"role": "own", "result": "trusted"}, listed=False)

    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"question": _TEXT, "options": {"type": "array", "items": _TEXT}},
        "required": ["question"],
    }

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        options, answers = tuple(prepared.get("options") or ()), context.state.answers
        key, number = f"task:{context.call_id}", 1
        while key in answers:
            option = choose_option(options, answers[key])
            if option is None and (reason := read_refusal(answers[key])) is not None:
                return declined(reason)
            if option is not None or not options:
                return ToolResult(answers[key] if option is None else option)
            number += 1
            key = f"task:{context.call_id}:{number}"  # asked again: that was none of the answers to choose from
        asked = prepared["question"]  # a notice is kaname's own, and has made visible what it quotes
        raise Suspend(key, asked if isinstance(asked, Notice) else visible(asked), options)
