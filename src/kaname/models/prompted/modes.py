"""Detect from a server's refusal what a model cannot do, and choose another mode."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from typing import Any

from ...core.codec import dump
from ...core.errors import ModelError
from ...core.messages import Message, ModelRequest, Text
from ...core.reading.lazy_regex import lazy_regex
from ...core.record import replace
from ...kernel.ports import Emit

_TOOLS = r"(?:tools?|tool[ _-]?(?:use|calls?|calling|choice)|functions?|function[ _-]?(?:calls?|calling))"
_NOT_KNOWN = r"(?:unrecogni[sz]ed|unknown|unsupported|unexpected|extra|invalid|additional)"
# Ollama, vLLM, llama.cpp, LM Studio, OpenRouter, Gemini, Azure, Go's and pydantic's readers of JSON
_CANNOT = {
    "native": lazy_regex(
        rf"(?:not|n['’]t) support {_TOOLS}\b|endpoints found that support tool"
        rf"|(?<![\w'\"]){_TOOLS}[`'\"]? (?:is|are) not (?:supported|enabled|available|allowed)"
        rf"|{_NOT_KNOWN} (?:request )?(?:field|parameter|argument|input|property|key)s?[^.\n]{{0,30}}[\s`'\":]tools\b(?![\[._])"
        r"|extra_forbidden.{0,40}\btools['\"]?\s*[\])]"
        r"|tools param requires|--jinja|enable-auto-tool-choice",
        re.IGNORECASE | re.DOTALL,
    ),
    "constrained": lazy_regex(
        r"response_format|json[ _-]?schema|json[ _-]?mode|grammar|guided|structured[ _-]?(?:output|response)"
        rf"|{_NOT_KNOWN} (?:request )?(?:field|parameter|argument|property|key)|extra_forbidden",
        re.IGNORECASE,
    ),
}
OF_NATIVE_TOOLS = ("tool_choice", "parallel_tool_calls")
_IN_WORDS = "Answer with one JSON object that fits this JSON Schema, and with nothing else:\n"


def refuses(mode: str, problem: ModelError) -> bool:
    """Return True if the server says that it does not support this mode."""
    return bool(_CANNOT[mode].search(problem.said))


def ignored_settings(settings: Mapping[str, Any], mode: str) -> list[str]:
    """Return the settings that have no effect on a model whose calls are text or constrained JSON."""
    return [name for name in OF_NATIVE_TOOLS if mode in ("constrained", "text") and name in settings]


class WatchedEmit:
    """An `emit` that remembers whether anything was shown: after that, another mode can no longer be tried."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.anything = False

    def __call__(self, text: str, kind: str = "text", call_id: str = "") -> Awaitable[None]:
        self.anything = True
        return self._emit(text, kind)


def with_schema_in_words(request: ModelRequest) -> ModelRequest:
    """Return the request with its schema in the instructions."""
    if request.schema is None:
        return request
    first, *others = request.messages or (Message("system", ()),)
    told = _IN_WORDS + dump(request.schema)
    if first.role != "system":
        return replace(request, schema=None, messages=(Message("system", (Text(told),)), *request.messages))
    told = f"\n\n{told}" if first.text else told
    return replace(request, schema=None, messages=(replace(first, parts=(*first.parts, Text(told))), *others))
