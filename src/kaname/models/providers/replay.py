"""A model that gives a recorded run's replies again, in their order, without a provider."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...core.codec import decode
from ...core.errors import ConfigError, ReplayDiverged
from ...core.events import Event, ModelReplied
from ...core.messages import ModelReply, ModelRequest, Text
from ...core.notices import notice
from ...kernel.ports import Emit


def read_recording(path: str | Path) -> list[Event]:
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")  # and at no other line end, which a text may contain
    except OSError as problem:
        raise ConfigError(
            notice(
                "replay.unreadable",
                "the recording {path} cannot be read: {problem}; make one with save_run(journal, run, path)",
                path=path,
                problem=problem,
            )
        ) from problem
    return [decode(line) for line in lines if line.strip()]


class ReplayModel:
    def __init__(self, events: Iterable[Event], *, name: str = "replay") -> None:
        self.name = name
        self._replies = [event.body.reply for event in events if isinstance(event.body, ModelReplied)]
        self._next = 0

    @classmethod
    def from_file(cls, path: str) -> ReplayModel:
        """From a recording: a file with one fact a line, as `save_run` writes it."""
        return cls(read_recording(path), name=f"replay/{path}")

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        if self._next >= len(self._replies):
            raise ReplayDiverged(
                notice(
                    "replay.no_more_replies",
                    "the model is asked once more than in the record, which has {count} replies",
                    count=len(self._replies),
                )
            )
        reply = self._replies[self._next]
        self._next += 1
        for part in reply.message.parts:
            if isinstance(part, Text):
                await emit(part.text)
        return reply
