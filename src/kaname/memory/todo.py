"""A list of things to do inside a run, which the model keeps and people see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict

from ..core.messages import Message, ToolResult, user
from ..core.people.todo import TODO, todo_lines
from ..kernel.bases import ContextBase
from ..kernel.ports import ToolContext
from ..kernel.view import RunView
from ..tools.function import tool

_REMINDER = "Your list of things to do, as you wrote it last:\n{list}"


class TodoItem(TypedDict):
    """One thing to do."""

    text: str
    status: Literal["open", "doing", "done"]


@tool(effect="idempotent", labels={"role": "own"})
async def todo(items: list[TodoItem], context: ToolContext) -> dict[str, Any]:
    """Write down what there is to do, for work of three steps or more. Pass the whole list each time something changes.

    Args:
        items: each with a short text and its status: open, doing or done
    """
    written = {"items": [dict(item) for item in items]}
    await context.note(TODO, written)
    return written


class Todo(ContextBase):
    """A list of things to do: the tool `todo` for the model, and the list for people who watch the run.

    The list is recorded with each change, and shown in the terminal and on the page. If a summary of the conversation has
    replaced it, the model is reminded of it.
    """

    tools: Sequence[Any] = (todo,)

    async def __call__(self, messages: Sequence[Message], view: RunView) -> Sequence[Message]:
        last = next((one for one in reversed(view.state.results.values()) if one.name == TODO and not one.is_error), None)
        items = last.output.get("items", []) if last is not None and isinstance(last.output, Mapping) else []
        if last is None or all(item["status"] == "done" for item in items):
            return messages
        seen = any(isinstance(part, ToolResult) and part.call_id == last.call_id for one in messages for part in one.parts)
        return messages if seen else [*messages, user(_REMINDER.format(list="\n".join(todo_lines(items))))]
