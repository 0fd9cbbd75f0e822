"""Output of runs inside a run, in whole lines with the name of the agent, because several may write at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.chunks import Chunk
from ...core.people.visible import call_line


class Children:
    """Show the chunks of child runs.

    `line(text, colour)` shows a line. `result_text` returns the text of a result.
    """

    def __init__(self, line: Callable[[str, str], None], result_text: Callable[[Any], str]) -> None:
        self._line, self._result_text = line, result_text
        self._said: dict[str, str] = {}  # by run: a line that is not whole yet

    def take(self, chunk: Chunk) -> bool:
        """Show the chunk of a child and return True.

        Return False for chunks that are shown as those of the run: questions, warnings, costs.
        """
        data = chunk.data
        if "run_id" not in data or (
            chunk.type == "status" and data.get("status") in ("started", "restarted") and "fact" in data
        ):
            return False
        run, name = data["run_id"], chunk["agent"]
        match chunk.type:
            case "delta" | "thinking":
                *lines, self._said[run] = (self._said.get(run, "") + data["content"]).split("\n")
                for line in lines:
                    self._show(name, line)
            case "tool_call":
                self._end(run, name)
                call = data["function"]
                self._line(f"{name} → {call_line(call['name'], call['arguments'])}", "cyan")
            case "tool_response":
                mark, colour = ("✗", "red") if data["is_error"] else ("←", "green")
                self._line(f"{name} {mark} {self._result_text(data)}", colour)
            case "usage":
                self._end(run, name)
                return False
            case "status" if data.get("status") == "restarted":
                self._said.pop(run, None)
            case "status" if data.get("status") in ("started", "tool_started", "progress", "received", "stopped"):
                pass
            case _:
                return False
        return True

    def _end(self, run: str, name: str) -> None:
        self._show(name, self._said.pop(run, ""))

    def _show(self, name: str, line: str) -> None:
        if line.strip():
            self._line(f"{name}: {line}", "dim")
