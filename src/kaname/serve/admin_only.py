"""What only an administrator is told: the inside of a failure that is nobody's fault but the program's. The log has it."""

from __future__ import annotations

from ..core.chunks import Chunk
from ..core.notices import notice
from ..core.record import replace
from ..core.steps import Stop
from .users import Caller

_OURS = "UnexpectedError"
HIDDEN = notice("serve.failure", "the agent failed by a fault of its own; the server's log says which")


def stop_for(stop: Stop, caller: Caller) -> Stop:
    return replace(stop, detail=HIDDEN) if stop.error == _OURS and not caller.is_admin else stop


def chunks_for(chunks: list[Chunk], caller: Caller) -> list[Chunk]:
    if caller.is_admin or not any(chunk.type == "error" for chunk in chunks):
        return chunks
    return [_told(chunk) if chunk.type == "error" and chunk.data.get("type") == _OURS else chunk for chunk in chunks]


def _told(chunk: Chunk) -> Chunk:
    return Chunk(chunk.stamp, chunk.agent, chunk.type, {**chunk.data, "message": HIDDEN}, chunk.seq)
