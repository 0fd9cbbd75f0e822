"""Ask a person by a call: a question of a plan, or a task whose result is their answer, now or in another process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import ConfigError, Suspend
from ..core.messages import ToolResult
from ..core.notices import Notice
from ..core.people.answers import choose_option, read_refusal
from ..core.people.visible import visible
from ..core.record import replace
from ..kernel.bases import ToolOptions
from ..kernel.ports import ToolContext
from ..kernel.results import declined
from ..tools.definition import Doing

ASK = "ask_person"
_TEXT = {"type": "string"}


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


class DelegateToHuman(AskPerson):
    """A tool with which an agent gives a task to a person.

    Args:
        roles: The roles of people, such as "accountant". Without roles, any person can answer.
        name: The name of the tool.
    """

    options = replace(AskPerson.options, listed=True)
    description = (
        "Give a task to a person, if it needs their knowledge, their decision or their hands. They see only what you write "
        "here; their answer is the result."
    )

    def __init__(self, roles: Iterable[str] = (), name: str = "delegate_task_to_human") -> None:
        super().__init__(name)
        if isinstance(roles, str):
            raise ConfigError.of("person.roles", "roles must be a list of names, not a string")
        role = {**_TEXT, "enum": list(roles)} if roles else _TEXT
        self.parameters: Mapping[str, Any] = {
            "type": "object",
            "properties": {
                "task_details": {**_TEXT, "description": "all that the person has to know and to do"},
                "reason_for_delegation": {**_TEXT, "description": "why a person"},
                "human_expert_role": {**role, "description": "who should do it"},
            },
            "required": ["task_details", "reason_for_delegation", *(["human_expert_role"] if roles else [])],
            "additionalProperties": False,
        }

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        whose = f"[{prepared['human_expert_role']}] " if prepared.get("human_expert_role") else ""
        asked = f"{whose}{prepared['task_details']} ({prepared['reason_for_delegation']})"
        return await super().act({"question": asked}, context)
