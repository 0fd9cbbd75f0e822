"""Details that only administrators see: the words of a model provider, and the cause of an internal error.

Both are also logged.
"""

from __future__ import annotations

from ..core.chunks import Chunk
from ..core.errors import AgentError, UnexpectedError
from ..core.notices import notice
from ..core.record import replace
from ..core.steps import Stop
from .users import Caller

_OURS = UnexpectedError.__name__
HIDDEN = notice("serve.failure", "the agent failed with an internal error; see the server's log")


def stop_for(stop: Stop, caller: Caller) -> Stop:
    """Return the stop of a run as the caller is allowed to see it. `said` is emptied: an administrator finds it in `detail`."""
    return replace(stop, detail=_words(stop.detail, stop.error, stop.said, caller), said="")


def words_for(problem: AgentError, caller: Caller) -> str:
    """Return the message of an error as the caller is allowed to see it."""
    return _words(problem.public, type(problem).__name__, problem.said, caller)


def chunks_for(chunks: list[Chunk], caller: Caller) -> list[Chunk]:
    return [_redact_error(chunk, caller) if chunk.type == "error" else chunk for chunk in chunks]


def _redact_error(chunk: Chunk, caller: Caller) -> Chunk:
    data = {name: value for name, value in chunk.data.items() if name != "said"}
    told = _words(data.get("message", ""), data.get("type", ""), chunk.data.get("said", ""), caller)
    return Chunk(chunk.stamp, chunk.agent, chunk.type, {**data, "message": told}, chunk.seq)


def _words(detail: str, error: str, said: str, caller: Caller) -> str:
    if not caller.is_admin:
        return HIDDEN if error == _OURS else detail
    return notice("model.said", "{detail}\nDetails: {said}", detail=detail, said=said) if said else detail
