"""Find a call that a model wrote as text although the server supports tools.

Such text is held back while it may still be a call, and shown if it is not.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Generator, Mapping

from ...core.messages import ModelReply, ToolCall, ToolSpec
from ...core.reading.lazy_regex import lazy_regex
from ...core.reading.lenient_json import TwoReadings
from ...core.values import read_json
from ...kernel.ports import Emit
from .react.arguments import strip_fence
from .react.calls import json_call

_TAG = "<tool_call>"
_TAGGED = lazy_regex(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_KEYS = "name|tool|tool_name|function|action|type|id|arguments|args|parameters"
# What a call can still become of: `{"name…`, a list of that, a code block of JSON, the tag
_MAY_BE = lazy_regex(r"`{0,3}|```[a-z_]*|(?:```(?:json|tool_call|tool_code)?[ \t]*\n\s*)?\[?\s*(?:\{.*)?", re.DOTALL)
_NAME = lazy_regex(r"[\"'](?:name|tool|tool_name|function|action)[\"']\s*:\s*[\"']([\w.-]+)[\"']")
_FIRST_KEY = lazy_regex(r"\{\s*\"(\w*)(\")?")


def _first_name(body: str) -> str:
    named = _NAME.search(body)
    return "" if named is None else named[1]


def written_call(said: ModelReply, tools: tuple[ToolSpec, ...]) -> ToolCall | None:
    """Return the call that the whole text is, or that it holds in a tag. It must be complete, and its tool must be offered."""
    if said.message.calls or said.stop_reason == "max_tokens" or not (text := said.message.text):
        return None
    tagged = _TAGGED.search(text)
    body = strip_fence(tagged[1] if tagged else text)
    if body[:1] not in ("{", "["):
        return None
    offered = {tool.name: tool.parameters for tool in tools}
    try:
        value = read_json(body)
    except TwoReadings:  # the tool's own check says so to the model; it runs nothing
        name = _first_name(body)
        return ToolCall("", name, body) if name in offered else None
    except ValueError:
        return None
    if isinstance(value, list) and len(value) != 1:  # several at once: only the first would be run
        return None
    call = json_call(body, offered)
    if call is None or call.name not in offered or not isinstance(call.args, Mapping):
        return None
    return ToolCall("", call.name, call.args)


class _Immediate:
    """An awaitable that is done."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


NOTHING_SHOWN = _Immediate()


class CallFilter:
    """An `emit` that shows text as it arrives, except text that may be a call: that is held until `release` or until it cannot
    be."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._kept = ""
        self._begun = False  # some text of the reply was shown
        self._tagged = False

    def __call__(self, text: str, kind: str = "text", call_id: str = "") -> Awaitable[None]:
        if kind != "text":
            return self._emit(text, kind)
        if self._begun and not self._kept and "<" not in text:  # nearly always
            return self._emit(text)
        self._kept += text
        if self._tagged or (not self._begun and _may_be_call(self._kept.lstrip())):
            return NOTHING_SHOWN
        self._begun = True
        place = _tag_in(self._kept)
        self._tagged = place >= 0 and self._kept.startswith(_TAG, place)
        shown, self._kept = (self._kept, "") if place < 0 else (self._kept[:place], self._kept[place:])
        return self._emit(shown) if shown else NOTHING_SHOWN

    async def release(self) -> None:
        if self._kept:
            kept, self._kept = self._kept, ""
            await self._emit(kept)


def _may_be_call(text: str) -> bool:
    if not text or _TAG.startswith(text) or text.startswith(_TAG):
        return True
    if not _MAY_BE.fullmatch(text):
        return False
    key = _FIRST_KEY.search(text)
    if key is None:
        return True
    names = _KEYS.split("|")
    return key[1] in names if key[2] else any(name.startswith(key[1]) for name in names)


def _tag_in(text: str) -> int:
    """Return the index of the tag, or of its first characters at the end of the text; -1 if there are none."""
    if (place := text.find(_TAG)) >= 0:
        return place
    place = text.rfind("<", -len(_TAG))
    return place if place >= 0 and _TAG.startswith(text[place:]) else -1
