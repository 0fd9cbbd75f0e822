"""A run as people read it: text as it comes, calls and results on lines of their own."""

from __future__ import annotations

import json
from time import monotonic
from typing import Any

from ..core.chunks import Chunk
from ..core.language import say
from .screen import Screen, columns, cut


class Show:
    """`take` every chunk of a run; then `end`."""

    def __init__(self, screen: Screen, *, quiet: bool = False) -> None:
        self._screen, self._quiet = screen, quiet
        self._open_line = False
        self._began: dict[str, float] = {}
        self.tokens, self.cost = 0, 0.0
        self.cost_known = True

    def take(self, chunk: Chunk) -> None:
        handle = getattr(self, f"_{chunk.type}", None)
        if handle is not None:
            handle(chunk.data)

    def _delta(self, data: dict[str, Any]) -> None:
        self._screen.say(data["content"], end="")
        self._open_line = not data["content"].endswith("\n")

    def _thinking(self, data: dict[str, Any]) -> None:
        if not self._quiet:
            self._screen.note(data["content"], end="")
            self._open_line = True

    def _tool_call(self, data: dict[str, Any]) -> None:
        call = data["function"]
        self._began[data["id"]] = monotonic()
        self._line(f"→ {call['name']}({call_text(call['arguments'])})", "cyan")

    def _tool_response(self, data: dict[str, Any]) -> None:
        begun = self._began.pop(data["tool_call_id"], None)
        took = f"  {monotonic() - begun:.1f} s" if begun is not None else ""
        mark, colour = ("✗", "red") if data["is_error"] else ("←", "green")
        self._line(f"{mark} {data['content_preview']}", colour, took)

    def _usage(self, data: dict[str, Any]) -> None:
        self.tokens += data["total_tokens"]
        if data["cost"] is None:
            self.cost_known = False
        else:
            self.cost += data["cost"]

    def _error(self, data: dict[str, Any]) -> None:
        self._line(f"{say('failed', '失敗')}: {data['message']}", "red", whole=True)

    def _status(self, data: dict[str, Any]) -> None:
        name = data.get("name") or data.get("status")
        if name == "warning":
            self._line(f"{say('warning', '警告')}: {data['content']}", "yellow")
        elif name == "waiting":
            self._line(f"? {data['content']}", "yellow", whole=True)

    def _line(self, text: str, colour: str, ending: str = "", *, whole: bool = False) -> None:
        if self._quiet:
            return
        self.end_line()
        self._screen.note((text if whole else cut(text, columns() - len(ending) - 1)) + ending, colour)

    def end_line(self) -> None:
        if self._open_line:
            self._screen.say("")
            self._open_line = False

    def spent(self) -> str:
        money = f"${self.cost:.4f}" if self.cost_known else say("cost unknown", "費用不明")
        return f"{self.tokens} {say('tokens', 'トークン')}, {money}"


def call_text(arguments: Any) -> str:
    """Arguments as one would write them."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return str(arguments)
    if not isinstance(given, dict):
        return str(given)
    return ", ".join([f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items()])
