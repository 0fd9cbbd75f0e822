"""Features that an OpenAI-compatible server does not support: known in advance, or learnt from its refusal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...core.errors import RequestRefused
from ...core.reading.lazy_regex import lazy_regex

_NOT_TAKEN = (
    r"(?:unsupported|not supported|not permitted|not allowed|extra_forbidden|unknown|unrecogni[sz]ed|unexpected|invalid)"
)
# What the server says, by what it cannot take. Mistral, Groq, Cerebras, vLLM, NIM.
_REFUSED = {
    "stream_options": rf"stream_options.*{_NOT_TAKEN}|{_NOT_TAKEN}.*stream_options",
    "echo": rf"reasoning_(?:content|details).*{_NOT_TAKEN}|{_NOT_TAKEN}.*reasoning_(?:content|details)",
    "ids": r"tool call id.*length of 9",
    "order": r"unexpected role '?\"?user'?\"? after role '?\"?tool",
    "streamed_form": r"stream\w*\b.{0,40}(?:structured|response.format|json)|(?:structured|response.format).{0,40}\bstream",
    "tools": r"must define tools|without [`'\"]?tools|tools[`'\"= ]{0,4}(?:is|are|must be) (?:required|defined|specified)",
    "max_tokens": r"use [`'\"]?max_completion_tokens",
    "max_completion_tokens": rf"max_completion_tokens.*{_NOT_TAKEN}|{_NOT_TAKEN}(?!.*\buse\b).*max_completion_tokens",
}
QUIRKS = {name: lazy_regex(pattern, re.IGNORECASE | re.DOTALL) for name, pattern in _REFUSED.items()}
_TOKENS = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
_RETURN_IT = lazy_regex(r"reasoning_content.{0,60}must be (?:passed|sent|provided)", re.IGNORECASE | re.DOTALL)


class Quirks:
    """The quirks of one server.

    - `stream_options`: it takes no such field, and reports the usage anyway, or not at all.
    - `echo`: it takes no reasoning back.
    - `ids`: the id of a call has nine letters or digits.
    - `order`: a reply must stand between a tool's result and the user's next message.
    - `tools`: calls in the conversation are refused without their tools, also where none is on offer.
    - `streamed_form`: an answer in a wanted form comes in one piece.
    - `max_completion_tokens`: it is called `max_tokens`. `max_tokens`: it is called `max_completion_tokens`.
    - `choice`: a tool that must be called is wanted with `any`, and not with `required`.
    """

    def __init__(self, known: Iterable[str] = (), renamed: Mapping[str, str] | None = None) -> None:
        self._known = set(known)
        self._renamed = dict(renamed or {})
        self.form = self._name_form()

    def __contains__(self, quirk: str) -> bool:
        return quirk in self._known

    def learns(self, problem: RequestRefused) -> bool:
        """Return True if the refusal names a new quirk, so that the request can be made in another way."""
        if _RETURN_IT.search(problem.said):
            return False
        new = [name for name, said in QUIRKS.items() if name not in self._known and said.search(problem.said)]
        self._known.update(new)
        self.form = self._name_form()
        return bool(new)

    def _name_form(self) -> str:
        """Return the name of the form that messages take.

        It is a part of the key under which `Message.encode_as` caches them.
        """
        return "openai" + "".join([f"-{name}" for name in ("echo", "ids") if name in self._known])

    def call_id(self, call_id: str) -> str:
        """Return the id in the form that the server accepts, always the same for the same call."""
        if "ids" not in self._known:
            return call_id
        from hashlib import blake2s  # slow to load, and rarely needed

        return blake2s(call_id.encode(), digest_size=8).hexdigest()[:9]

    def rename_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings under the names that the server knows."""
        if not self._renamed and not self._known:
            return dict(settings)
        names = {**self._renamed, **{old: new for old, new in _TOKENS.items() if old in self}}
        made = {names.get(name, name): value for name, value in settings.items()}
        if "choice" in self and made.get("tool_choice") == "required":
            made["tool_choice"] = "any"
        return made


NONE = Quirks()
