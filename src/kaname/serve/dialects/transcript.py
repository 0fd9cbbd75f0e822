"""A run as moments of a conversation. The chunks are read here, once for all dialects; a dialect writes the moments."""

from __future__ import annotations

import json
from typing import Any, Literal

from ...core.chunks import Chunk
from ...core.events import Asked
from ...core.messages import ToolCall, Usage
from ...core.notices import notice
from ...core.people.answers import is_yes_or_no
from ...core.people.asking import question_in_words, question_text
from ...core.values import plain_text
from ..language import in_language

SEPARATOR = ":"  # in an id that names a run and one of its questions
INTERRUPTED = notice("serve.interrupted", "the run was interrupted here; it continues later, and can be followed by its id")

WITHDRAWN = notice(
    "serve.withdrawn", "the model failed after its first words, and another one was asked; send the request again"
)

Kind = Literal["text", "thinking"]


class Transcript:
    """Turn chunks into moments, and each moment into bytes. A dialect overrides the methods under "Moments".

    Text and thinking are opened by their first word, and at most one of them is open at a time. `end` writes the last bytes. If
    the server shuts down while the run continues, `end` writes that the run was interrupted here.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.used = Usage(cost=None)
        self.acted = False  # a tool was called
        self.ended = ""  # the kind of the stop; "" while the run continues
        self.ended_at = 0.0
        self.output: Any = None
        self.detail = self.error = ""  # of the stop; `error` is the type of the error if the run failed
        self._shown: list[str] = []  # the text of the message that is being shown
        self._anything_said = False
        self._open: Kind | None = None
        self.broken = False  # words were withdrawn that the client has already
        self.language = ""  # of the client

    def begin(self) -> bytes:
        return b""

    def take(self, chunk: Chunk) -> bytes:
        """Return the bytes for a chunk."""
        data = chunk.data
        if self.broken:
            return b""
        match chunk.type:
            case "delta":
                self._shown.append(data["content"])
                return self._write("text", data["content"])
            case "thinking":
                return self._write("thinking", data["content"])
            case "message":
                return self._finish_message(data["content"])
            case "tool_call":
                self.acted = True
                return self.close_open() + self.call(data)
            case "tool_response":
                return self.write_result(data)
            case "usage":
                self.used += Usage(
                    data["prompt_tokens"], data["completion_tokens"], data["cached_tokens"], reasoning=data["reasoning_tokens"]
                )
                return self.close_open() + self.end_reply()
            case "error" if chunk.fails:
                self._end("failed", chunk, data["message"], data["type"])
            case "status":
                return self._status(chunk)
        return b""

    def _status(self, chunk: Chunk) -> bytes:
        data = chunk.data
        match data["status"]:
            case "restarted" if "fact" not in data:  # in the middle of a reply
                return self.close_open() + (self.withdraw("".join(self._shown), chunk) if self._shown else b"")
            case "tool_started":
                return self.start_tool(data["tool_call_id"], data["name"])
            case "waiting":
                self._end("waiting", chunk)
                return self.ask(question_of(chunk))
            case "stopped":
                self._end(data["kind"], chunk, data["detail"])
                self.output = data["output"]
                unsaid = self.output is not None and not self._anything_said  # a plan ends without having told its answer
                return (self.write_message(plain_text(self.output)) if unsaid else b"") + self.write_stop()
        return b""

    def _end(self, how: str, chunk: Chunk, detail: str = "", error: str = "") -> None:
        self.ended, self.ended_at, self.detail, self.error = how, chunk.stamp, detail, error

    def _write(self, kind: Kind, text: str) -> bytes:
        if not text:
            return b""
        self._anything_said = self._anything_said or kind == "text"
        if self._open == kind:
            return self.write(kind, text)
        opened = self.close_open() + self.open_part(kind)
        self._open = kind
        return opened + self.write(kind, text)

    def _finish_message(self, whole: str) -> bytes:
        """Write the part of a message that the deltas left out. A message that was changed later stays as it was shown."""
        before, self._shown = "".join(self._shown), []
        rest = whole[len(before) :] if whole.startswith(before) else ""
        self._anything_said = self._anything_said or bool(whole)
        return self._write("text", rest) + self.close_open() + self.finish_message(whole)

    def write_message(self, text: str) -> bytes:
        """Write a message that is not from the model: a question, or the output of a run that has not written it."""
        return self._write("text", text) + self.close_open() + self.finish_message(text) if text else b""

    def question_text(self, question: Asked) -> str:
        """Return a question with its options, for a protocol that shows only yes and no."""
        return in_language(question_text(question), self.language)

    def question_in_words(self, question: Asked) -> str:
        """Return a question as a message that the user answers in words."""
        return in_language(question_in_words(self.run_id, question), self.language)

    def close_open(self) -> bytes:
        """Close the open text or thinking."""
        kind, self._open = self._open, None
        return self.close_part(kind) if kind else b""

    # Moments

    def open_part(self, kind: Kind) -> bytes:
        return b""

    def write(self, kind: Kind, text: str) -> bytes:
        return b""

    def close_part(self, kind: Kind) -> bytes:
        return b""

    def finish_message(self, text: str) -> bytes:
        """Write the end of a message. `text`: the whole message."""
        return b""

    def call(self, data: dict[str, Any]) -> bytes:
        """Write that the model calls a tool."""
        return b""

    def withdraw(self, text: str, chunk: Chunk) -> bytes:
        """Withdraw words of a message that is not finished. In most dialects nothing can be taken back: the stream ends."""
        self.broken = True
        self._end("failed", chunk, WITHDRAWN, "ModelUnavailable")
        return b""

    def start_tool(self, call_id: str, name: str) -> bytes:
        """Write that a tool starts."""
        return b""

    def write_result(self, data: dict[str, Any]) -> bytes:
        """Write the result of a tool."""
        return b""

    def end_reply(self) -> bytes:
        """Write the end of a reply of the model."""
        return b""

    def ask(self, question: Asked) -> bytes:
        return b""

    def write_stop(self) -> bytes:
        """Write that the run has stopped."""
        return b""

    def end(self) -> bytes:
        return b""


class TextTranscript(Transcript):
    """The text alone, for a dialect whose messages are not bytes. `withdrawn`: the text that replaces all written so far."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.said = ""
        self.withdrawn = False

    def write(self, kind: Kind, text: str) -> bytes:
        self.said += text if kind == "text" else ""
        return text.encode("utf-8", "replace") if kind == "text" else b""

    def withdraw(self, text: str, chunk: Chunk) -> bytes:
        self.said, self._shown, self.withdrawn = self.said.removesuffix(text), [], True
        return b""


def question_of(chunk: Chunk) -> Asked:
    """Return the question in a `waiting` chunk."""
    data = chunk.data
    call = data.get("call")
    about = ToolCall(data["tool_call_id"], call["name"], call["arguments"]) if call else None
    return Asked(data["key"], data["content"], tuple(data["options"]), data["tool_call_id"], bool(data.get("in_doubt")), about)


def is_told_by_its_call(question: Asked) -> bool:
    """Return True if the call says all that is asked: a plain yes or no, without hidden characters, reasons or origins."""
    call = question.about
    if call is None or not is_yes_or_no(question.options):
        return False
    return question.prompt == f"Run {call.name}({json.dumps(call.args, ensure_ascii=False, default=str)})?"
