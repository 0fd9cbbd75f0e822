"""Give a task to a person: a tool whose result is what they answer, now or in another process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import ConfigError
from ..core.messages import ToolResult
from ..core.record import replace
from ..kernel.ports import ToolContext
from ..run.actions import AskPerson

_TEXT = {"type": "string"}


class DelegateToHuman(AskPerson):
    """`roles`: the people there are, by what they do, such as "accountant"; without them, whoever answers."""

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
