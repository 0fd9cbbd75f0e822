"""Settings of chat completions in the names of Anthropic's Messages API, and the unsupported ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.messages import Message, Part, Provided, Thinking

_NOT_HERE = (
    *("seed", "n", "logit_bias", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "prediction", "audio"),
    *("modalities", "response_format", "reasoning_effort", "verbosity", "store", "prompt_cache_key", "safety_identifier"),
)
"""Settings of chat completions for which this API has no counterpart. It refuses a request that holds one."""
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def ignored_settings(given: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that are set but that this API does not accept."""
    names = [name for name in _NOT_HERE if given.get(name) is not None]
    return names if all(one.strip() for one in _stops(given.get("stop"))) else ["stop", *names]


def translate_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in this API's names, without unsupported ones."""
    made = {name: value for name, value in given.items() if name not in (*_NOT_HERE, "stream_options")}
    stops = [one for one in _stops(made.pop("stop", None)) if one.strip()]  # it refuses those that are only white space
    if stops:
        made["stop_sequences"] = [*(made.get("stop_sequences") or ()), *stops]
    if (most := made.pop("max_completion_tokens", None)) is not None:
        made.setdefault("max_tokens", most)
    if (user := made.pop("user", None)) is not None:
        made["metadata"] = {"user_id": user, **(made.get("metadata") or {})}
    together, choice = made.pop("parallel_tool_calls", None), _choice(made.pop("tool_choice", None))
    if together is False and (choice or {}).get("type") != "none":
        choice = {"type": "auto", **(choice or {}), "disable_parallel_tool_use": True}
    return made if choice is None else {**made, "tool_choice": choice}


def _stops(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _choice(given: Any) -> dict[str, Any] | None:
    """Return a `tool_choice` in this API's form."""
    if isinstance(given, str):
        return {"type": _CHOICES.get(given, given)}
    if isinstance(given, Mapping) and isinstance(given.get("function"), Mapping):
        return {"type": "tool", "name": given["function"].get("name")}
    return None if given is None else dict(given)


def has_call_without_thought(messages: tuple[Message, ...]) -> bool:
    """Return True if another model, or this one without thinking, made calls in the turn that is under way."""
    for message in reversed(messages):
        if message.role == "user":
            return False
        if message.role == "assistant" and message.calls and not any(_is_sealed_thought(part) for part in message.parts):
            return True
    return False


def _is_sealed_thought(part: Part) -> bool:
    if isinstance(part, Thinking):
        return bool(part.signature)
    return isinstance(part, Provided) and part.provider == "anthropic" and part.data.get("type") == "redacted_thinking"
