"""`TypedRun`: the run of an agent with an output type. Its `delta` chunks have the answer so far, as that type."""

from __future__ import annotations

from typing import Any

from ..core.chunks import PARTS, Chunk
from ..run.result import OutputT
from ..run.run import Run
from ..strategies.output import Output


class TypedChunk(Chunk):
    """A piece of a typed answer. `partial` is made when it is read."""

    __slots__ = ("_count", "_output", "_pieces")

    def __init__(self, chunk: Chunk, output: Output, pieces: list[str]) -> None:
        super().__init__(chunk.stamp, chunk.agent, chunk.type, chunk.data, chunk.seq)
        self.encoded, self._output, self._pieces, self._count = chunk.encoded, output, pieces, len(pieces)

    @property
    def partial(self) -> Any:
        return self._output.partial.read("".join(self._pieces[: self._count]))


class TypedRun(Run[OutputT]):
    def __init__(self, output: Output, *given: Any) -> None:
        super().__init__(*given)
        self._output, self._pieces = output, list[str]()

    async def __anext__(self) -> Chunk:
        chunk = await super().__anext__()
        if chunk.type == "delta":
            self._pieces.append(str(chunk.data["content"]))
            return TypedChunk(chunk, self._output, self._pieces)
        if chunk.type in (*PARTS, "usage") or chunk.data.get("status") == "restarted":  # the next delta begins another reply
            self._pieces = []
        return chunk
