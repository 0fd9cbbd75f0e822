"""A model that repeats the replies of a recorded run, in their order, without a provider."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...core.codec import decode, encode
from ...core.errors import ConfigError, ReplayDiverged
from ...core.events import Event, ModelReplied, Opened
from ...core.messages import ModelReply, ModelRequest, Text
from ...core.record import replace
from ...kernel.bases import ModelBase
from ...kernel.ports import Emit


def record_line(event: Event) -> str:
    """Return a fact as a line of a recording. Folders and files of this machine are left out."""
    body = event.body
    if isinstance(body, Opened) and body.recipe:
        kept = {name: held for name, held in body.recipe.items() if name != "origin"}
        body = replace(body, recipe={**kept, **({"model": without_folder(kept["model"])} if "model" in kept else {})})
    return encode(replace(event, body=body))


def without_folder(model: Any) -> str:
    """Return a model's name. For a file (`local//models/small.gguf`) the folder is left out."""
    provider, slash, rest = str(model).partition("/")
    return f"{provider}/{Path(rest).name}" if slash and Path(rest).is_absolute() else str(model)


def read_recording(path: str | Path) -> list[Event]:
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")  # and at no other line end, which a text may contain
    except OSError as problem:
        raise ConfigError.of(
            "replay.unreadable",
            "the recording {path} cannot be read: {problem}. Create one with save_run(journal, run, path)",
            path=path,
            problem=problem,
        ) from problem
    return [decode(line) for line in lines if line.strip()]


class ReplayModel(ModelBase):
    def most_expensive(self, request: ModelRequest, input: int, output: int) -> float:
        """Return 0: a repeated reply costs nothing."""
        return 0.0

    def __init__(self, events: Iterable[Event], *, name: str = "replay") -> None:
        self.name = name
        self._replies = [event.body.reply for event in events if isinstance(event.body, ModelReplied)]
        self._next = 0

    @classmethod
    def from_file(cls, path: str) -> ReplayModel:
        """Build the model from a recording: a file with one fact per line, as `save_run` writes it."""
        return cls(read_recording(path), name=f"replay/{path}")

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        if self._next >= len(self._replies):
            raise ReplayDiverged.of(
                "replay.no_more_replies",
                "the model was called more often than in the record, which has {count} replies",
                count=len(self._replies),
            )
        reply = self._replies[self._next]
        self._next += 1
        for part in reply.message.parts:
            if isinstance(part, Text):
                await emit(part.text)
        return reply
