"""Calls of OpenAI's own tools that the client carries out: a custom tool, a computer, a shell, a patch, an approval.

Each is a `ToolCall` named as its item. The run asks for its result, unless the agent has a tool of that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...core.messages import CLIENT_CALLS, MCP_APPROVAL, Message, Part, Provided, ToolCall, ToolResult
from ...core.openai_shape import result_text
from ..http.provider import as_mapping, as_text, parse_arguments

_OF_THE_ITEM = ("type", "id", "call_id", "status")


def is_for_client(item: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if an item of a reply is such a call, and the provider has not run it itself."""
    if item.get("type") not in CLIENT_CALLS:
        return False
    return not any(one.get("call_id") == item.get("call_id") is not None and one is not item for one in items)


def call_of(item: Mapping[str, Any]) -> ToolCall:
    args = {name: value for name, value in item.items() if name not in _OF_THE_ITEM and value is not None}
    if item.get("type") == MCP_APPROVAL:
        args["arguments"] = parse_arguments(as_text(item.get("arguments")))
    return ToolCall(as_text(item.get("call_id")) or as_text(item.get("id")), as_text(item.get("type")), args)


def item_of(call_id: str, messages: Sequence[Message], mine: str) -> Mapping[str, Any] | None:
    """Return the item from which a call was made, if this API made it. It stands before the call."""
    for message in reversed(messages):
        before: Part | None = None
        for part in message.parts if message.role == "assistant" else ():
            if type(part) is ToolCall and part.id == call_id:
                own = isinstance(before, Provided) and (before.provider, before.data.get("type")) == (mine, part.name)
                return before.data if isinstance(before, Provided) and own else None
            before = part
    return None


def output_item(item: Mapping[str, Any], result: ToolResult, content: Any) -> dict[str, Any]:
    """Return the result of a call in the form that its kind has. `content`: the result as a text, or as a list with media."""
    kind, call_id, given = item["type"], item.get("call_id"), result.output
    made: dict[str, Any] = {"type": f"{kind}_output", "call_id": call_id}
    match kind:
        case "mcp_approval_request":
            said = as_mapping(given)
            why = {"reason": str(said["reason"] or result.error)} if said.get("reason") or result.error else {}
            approve = said.get("approve") is True and result.error is None
            return {"type": "mcp_approval_response", "approval_request_id": item.get("id"), "approve": approve, **why}
        case "computer_call":
            return {**made, **_screenshot(result)}
        case "local_shell_call":
            return {"type": made["type"], "id": call_id, "output": result_text(result)}
        case "shell_call":
            most = as_mapping(item.get("action")).get("max_output_length")
            made["output"] = given if isinstance(given, list) and given else [_shell_output(result)]
            return {**made, "max_output_length": most} if most is not None else made
        case "apply_patch_call":
            return {**made, "status": "completed" if result.error is None else "failed", "output": result_text(result)}
    return {**made, "output": content}


def _screenshot(result: ToolResult) -> dict[str, Any]:
    given = result.output
    shown = dict(given) if isinstance(given, Mapping) else {"image_url": given} if isinstance(given, str) else {}
    checked = shown.pop("acknowledged_safety_checks", None)
    if result.media:
        shown = {"image_url": result.media[0].url or f"data:{result.media[0].mime};base64,{result.media[0].data}"}
    output = {"output": {"type": "computer_screenshot", **shown}}
    return {**output, "acknowledged_safety_checks": checked} if checked else output


def _shell_output(result: ToolResult) -> dict[str, Any]:
    failed = result.error is not None
    outcome = {"type": "exit", "exit_code": 1 if failed else 0}
    return {"stdout": "" if failed else result_text(result), "stderr": result.error or "", "outcome": outcome}
