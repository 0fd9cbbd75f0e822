"""`search`: the user's documents for a model, every passage with where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...core.events import Effect
from ...core.messages import ToolResult
from ...kernel.offload import off_loop
from .pipeline import Hit, RAGPipeline


class SearchTool:
    name = "search"
    effect: Effect = "pure"
    timeout = 60.0
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "what to look for, in a few words or as a question"}},
        "required": ["query"],
    }

    def __init__(self, pipeline: RAGPipeline | str | Path | None = None, *, top_k: int = 5, name: str = "search") -> None:
        if top_k < 1:
            raise ConfigError(f"top_k is a number from 1 up, not {top_k!r}")
        self._given = pipeline
        self.top_k, self.name = top_k, name

    @cached_property
    def pipeline(self) -> RAGPipeline:
        return self._given if isinstance(self._given, RAGPipeline) else RAGPipeline(self._given)

    @property
    def description(self) -> str:
        return (
            "Search the user's documents. Every passage comes with its source; cite the sources that you use by their "
            "number, such as [1]. If no passage answers the question, say so."
        )

    async def execute(self, input_text: str) -> ToolResult:
        if not input_text.strip():
            return ToolResult(error="say what to look for", retryable=False)
        hits = await off_loop(lambda: self.pipeline.search(input_text, self.top_k))
        return ToolResult({"passages": [_shown(number, hit) for number, hit in enumerate(hits, 1)], **_note(hits)})


def _shown(number: int, hit: Hit) -> dict[str, Any]:
    path = Path(hit.source)
    source = "/".join(path.parts[-2:]) if path.name.lower().startswith(("readme", "index")) else path.name
    shown: dict[str, Any] = {"cite": f"[{number}]", "source": source}
    shown |= {"heading": hit.heading} if hit.heading else {}
    shown |= {"place": hit.place} if hit.place else {}
    return {**shown, "chunk": hit.chunk, "text": hit.text}


def _note(hits: list[Hit]) -> dict[str, str]:
    if not hits:
        return {"note": "nothing was found; there may be no documents yet"}
    return {}
