"""Show a run's chunks: text as it streams, calls and results on lines of their own, questions."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from mimetypes import guess_extension
from tempfile import mkstemp
from time import monotonic
from typing import Any

from ...core.chunks import RESERVED, Chunk
from ...core.notices import Notice
from ...core.people.todo import TODO, todo_lines
from ...core.people.visible import call_line, visible_line
from ..messages import said_line, say, translate
from .children import Children
from .markdown import Markdown
from .screen import Screen, columns, truncate, width

_A_SECOND = 1.0


class Show:
    """Show the chunks of a run: call `take` with every chunk, then `finish`.

    In a terminal the text streams, with its Markdown rendered. A pipe gets the answer alone: text before a call is a remark,
    and that is known only when the call comes. `earlier`: the calls that an earlier attempt of the run has left, by id.
    """

    def __init__(self, screen: Screen, *, quiet: bool = False, earlier: Mapping[str, str] | None = None) -> None:
        self._screen, self._quiet, self._earlier = screen, quiet, earlier or {}
        self._live = screen.out.isatty() and not quiet
        self._markdown = None if not self._live or Screen.is_plain(screen.out) or os.environ.get("NO_COLOR") else Markdown()
        self._held = ""  # text that is not known yet to be the answer
        self._thinking_now = self._open_line = False
        self._began: dict[str, float] = {}
        self._running: set[str] = set()
        self._calls: dict[str, str] = {}  # of the last reply that had any, as they were shown
        self._results = 0  # of them
        self._far = ""  # how many tasks of a graph are done
        self._children = Children(lambda text, colour: self._line(text, colour), result_text)
        self._last_todo: list[str] = []
        self._told_progress = -_A_SECOND  # when progress was last printed
        self.tokens, self.cost = 0, 0.0
        self.cost_known = True
        self.answered = self.failed = False  # whether an answer, or an error, has been shown
        self.run_id = ""
        self.asked: set[str] = set()
        screen.doing = say("thinking", "考え中")

    def take(self, chunk: Chunk) -> None:
        if self._children.take(chunk):
            return
        kind = chunk.type
        handle = getattr(self, f"_{kind}", None) if kind in RESERVED else None  # other types are custom
        if handle is not None and (kind != "error" or chunk.fails):  # a refused call is shown by its response
            handle(chunk.data)
        elif kind == TODO and isinstance(items := chunk.data.get("items"), list):
            self._todo(items)

    def finish(self, answer: str = "", citations: Sequence[Mapping[str, Any]] = ()) -> None:
        """Show the end of a run: the `answer`, if it has not been shown, and its citations."""
        text, self._held = self._held or ("" if self.answered else answer), ""
        if text:
            self.end_line()
            self._write(text)
        self.end_line()
        for number, source in enumerate([] if self._quiet else dict.fromkeys(map(_source, citations)), 1):
            self._screen.note(truncate(f"  [{number}] {source}", columns() - 1))

    def _delta(self, data: dict[str, Any]) -> None:
        if self._thinking_now:
            self.end_line()
        if self._live:
            self._write(data["content"])
        else:
            self._held += data["content"]

    def _write(self, text: str) -> None:
        self.answered = self.answered or bool(text.strip())
        if self._markdown is None:
            self._screen.say(text, end="")
        else:
            self._screen.raw(self._markdown.feed(self._screen.safe(text)))
        self._open_line = not text.endswith("\n")

    def _thinking(self, data: dict[str, Any]) -> None:
        if not self._quiet:
            if self._open_line and not self._thinking_now:
                self.end_line()
            self._screen.note(data["content"], end="")
            self._thinking_now = self._open_line = True

    def _todo(self, items: list[Any]) -> None:
        """Show things to do, if the list has changed."""
        if (lines := todo_lines(items)) != self._last_todo:
            self._last_todo = lines
            self._line("\n".join([f"  {line}" for line in lines]), "dim", whole=True)

    def _show_progress(self, data: dict[str, Any]) -> None:
        """Show how far a plan or a workflow is; first the plan itself, then its steps as things to do."""
        if "steps" in data:
            self._line(translate(data["steps"]), "dim", whole=True)
        elif "items" in data:
            self._todo(data["items"])
        self._far = f"{data['done']}/{data['of']} ({data['percent']} %)  "
        self._screen.doing = self._far + ", ".join(data["running"])

    def _media(self, data: dict[str, Any]) -> None:
        """Save a picture or a sound that the model made, and show where."""
        if self._quiet:
            return
        place = data["url"]
        with suppress(ValueError, OSError):  # what cannot be saved is still named
            if content := b64decode(data["base64"]):
                number, place = mkstemp(guess_extension(data["mime"]) or "", "kaname-")  # only its owner can read it
                with open(number, "wb") as file:
                    file.write(content)
        self._line(f"▧ {data['name'] or data['mime']}{f': {place}' if place else ''}", "green", whole=True)

    def _tool_call(self, data: dict[str, Any]) -> None:
        if self._held:
            remark, self._held = self._held, ""
            if not self._quiet:
                self._screen.note(remark)
        self.answered = False  # the text so far was not the answer
        call = data["function"]
        self._began[data["id"]] = monotonic()
        if self._results:  # of the reply before
            self._calls, self._results = {}, 0
        self._calls[data["id"]] = call_line(call["name"], call["arguments"])
        self._line(f"→ {self._calls[data['id']]}", "cyan")

    def _tool_response(self, data: dict[str, Any]) -> None:
        begun = self._began.pop(data["tool_call_id"], None)
        self._running.discard(data["tool_call_id"])
        self._results += 1
        self._screen.doing = self._far + self._calls.get(next(iter(self._running), ""), say("thinking", "考え中"))
        call = self._calls.get(data["tool_call_id"], "") if len(self._calls) > 1 else ""
        whose = f"{truncate(call, columns() // 3)}: " if call else ""  # where several run at once
        took = f"  {monotonic() - begun:.1f} s" if begun is not None else ""
        mark, colour = ("✗", "red") if data["is_error"] else ("◆", "yellow") if data.get("waiting") else ("←", "green")
        self._line(f"{mark} {whose}{result_text(data)}", colour, took)

    def _progress(self, data: dict[str, Any]) -> None:
        """Show the progress next to the spinner.

        Without a spinner, print the progress of the model: it is loaded only once. In a chat, print that of tools as well, at
        most once a second.
        """
        self._screen.doing = translate(data["content"])
        of_tool, now = bool(data.get("tool_call_id")), monotonic()
        if not of_tool and Screen.is_plain(self._screen.err):
            self._line(f"{self._screen.doing} …", "dim")
        elif self._screen.still and now - self._told_progress >= _A_SECOND:
            self._told_progress = now
            self._line(f"  {self._screen.doing}", "dim")

    def _usage(self, data: dict[str, Any]) -> None:
        if self._thinking_now:  # a reply ends here, and the next one's thoughts are others
            self.end_line()
        self.tokens += data["total_tokens"]
        if data["cost"] is None:
            self.cost_known = False
        else:
            self.cost += data["cost"]

    def _error(self, data: dict[str, Any]) -> None:
        self.failed = True
        message = f"{translate(data['message'])}{said_line(data.get('said', ''))}"
        self._line(f"{say('failed', '失敗')}: {message}", "red", whole=True, always=True)

    def _status(self, data: dict[str, Any]) -> None:
        match data.get("status"):
            case "restarted" if "fact" not in data:  # in the middle of a reply
                self._held, self.answered = "", False
                self._line(say("the reply begins again", "返答をやり直します"), "yellow")
            case "started" | "restarted":
                self.run_id = data.get("run_id", "")
                self._screen.doing = say("thinking", "考え中")
            case "tool_started":
                if data["tool_call_id"] not in self._running:  # without the time of a question, and once for all retries
                    self._began[data["tool_call_id"]] = monotonic()
                    self._running.add(data["tool_call_id"])
                    if (call := data["tool_call_id"]) not in self._calls:
                        self._calls[call] = self._earlier.get(call, call)
                        task = f"{visible_line(call)} ({visible_line(data['name'])})"  # of a graph: the model did not call it
                        self._line(f"→ {self._earlier.get(call, task)}", "cyan")
                    self._screen.doing = self._far + ", ".join([self._calls.get(one, data["name"]) for one in self._running])
            case "progress":
                self._show_progress(data)
            case "throttled":
                self._screen.doing = translate(data["content"]) or say("thinking", "考え中")
            case "queued":
                self._screen.doing = say(
                    f"waiting for {data['behind']} of the same session", f"同じセッションの {data['behind']} を待っています"
                )
            case "warning" | "interjected" as kind:
                begins = ">" if kind == "interjected" else f"{say('warning', '警告')}:"
                self._line(f"{begins} {translate(data['content'])}", "dim" if kind == "interjected" else "yellow", whole=True)
            case "waiting":
                self.asked.add(str(data["content"]))
                self._line(f"? {translate(data['content'])}", "yellow", whole=True, always=True)

    def _line(self, text: str, colour: str, ending: str = "", *, whole: bool = False, always: bool = False) -> None:
        if self._quiet and not always:
            return
        self.end_line()
        self._screen.note((text if whole else truncate(text, columns() - width(ending) - 1)) + ending, colour)

    def end_line(self) -> None:
        """End the open line, and the Markdown in it."""
        if self._markdown is not None:
            if rest := self._markdown.end():
                self._screen.raw(rest)
            self._markdown = Markdown()
        if self._open_line:
            self._screen.note("") if self._thinking_now else self._screen.say("")
        self._open_line = self._thinking_now = False

    def spent(self) -> str:
        money = f"${self.cost:.4f}" if self.cost_known else say("cost unknown", "費用不明")
        return f"{self.tokens} {say('tokens', 'トークン')}, {money}"


def result_text(data: Mapping[str, Any]) -> str:
    """Return the beginning of a result; an error of kaname in the language of the user."""
    if data.get("waiting"):  # its text is for the model
        return say("waits: you are asked at the end", "保留中: 最後に確認します")
    error = data["content"] if data["is_error"] else None
    return translate(error) if isinstance(error, Notice) else str(data["content_preview"])


def _source(citation: Mapping[str, Any]) -> str:
    """Return the name of a source. Providers use different fields for it, but always one of them."""
    named = [citation.get(name) for name in ("title", "document_title", "filename", "url", "source")]
    parts = [one for one in dict.fromkeys(named) if isinstance(one, str) and one]
    return ", ".join(parts) or str(citation.get("cited_text") or citation.get("type") or "?")
