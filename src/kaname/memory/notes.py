"""Dicts that a program keeps for a session, for a user or for all: plain to use, and written into the files of memories."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from ..core.errors import ConfigError
from .store import Memories

_MOST = 200  # dicts that are held
_Texts = dict[str, str]


class Notes(MutableMapping[str, dict[str, Any]]):
    """Dicts of JSON values, by id. `notes["s1"]["task"] = "…"` and `notes["s1"]["rows"].append(…)` work as with any dict.

    What has changed is written with the next use of these notes, and with `write`; of two processes that change the same key,
    the later one wins. What is not JSON is refused; where it was put in later, `write` says so, and the rest is written.

    Args:
        store: Returns the file that an id is kept in; if its second argument is False, None instead of a new file.
        mark: What the names of these notes begin with in the file.
        ids: Returns the ids that there are.
    """

    def __init__(
        self, store: Callable[[str, bool], Memories | None], mark: str, ids: Callable[[], Iterable[str]] = tuple
    ) -> None:
        self._store, self._mark, self._ids = store, mark, ids
        self._held: OrderedDict[str, tuple[dict[str, Any], _Texts]] = OrderedDict()  # each with its texts as they were written
        self._lock = threading.RLock()

    def __getitem__(self, id: str) -> dict[str, Any]:
        with self._lock:
            self.write()
            found = self._texts_of(id)
            if not found and id not in self._held:
                raise KeyError(id)
            held, known = self._held.setdefault(id, ({}, {}))
            for key in [key for key in known if key not in found]:
                held.pop(key, None)
            for key in [key for key, text in found.items() if known.get(key) != text]:
                held[key] = json.loads(found[key])
            self._held[id] = (held, found)
            self._held.move_to_end(id)
            while len(self._held) > _MOST:
                self._held.popitem(last=False)
            return held

    def __setitem__(self, id: str, value: Mapping[str, Any]) -> None:
        if not isinstance(value, Mapping):
            raise ConfigError.of("notes.value", "a context must be a dict of JSON values, not {value!r:.100}", value=value)
        with self._lock:
            given = dict(value)  # it may be the dict that is held
            for key, one in given.items():
                _text(key, one)
            held, _ = self._held.setdefault(id, ({}, self._texts_of(id)))
            held.clear()
            held.update(given)
            self.write()

    def __delitem__(self, id: str) -> None:
        with self._lock:
            self[id] = {}
            del self._held[id]

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            self.write()
            return iter(list(dict.fromkeys([*self._ids(), *self._held])))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def setdefault(self, id: str, default: Any = None) -> dict[str, Any]:
        if id not in self:
            self[id] = default or {}
        return self[id]

    def __repr__(self) -> str:
        return repr({id: self[id] for id in self})

    def write(self) -> list[ConfigError]:
        """Write what has changed and is JSON, and return what is not."""
        problems: list[ConfigError] = []
        with self._lock:
            for id, (held, known) in self._held.items():
                texts = dict[str, str]()
                for key, value in list(held.items()):
                    try:
                        texts[str(key)] = _text(key, value)
                    except ConfigError as problem:
                        problems.append(problem)
                        texts |= {key: known[key]} if key in known else {}
                changes: dict[str, str | None] = {key: text for key, text in texts.items() if known.get(key) != text}
                changes |= dict.fromkeys([key for key in known if key not in texts])
                if changes and (store := self._store(id, True)) is not None:
                    store.note(self._mark + id, changes)
                    self._held[id] = (held, texts)
        return problems

    def _texts_of(self, id: str) -> _Texts:
        store = self._store(id, False)
        return {} if store is None else store.notes(self._mark + id)


def _text(key: Any, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise ConfigError.of(
            "notes.no_json", "{key!r} cannot be stored: its value is not JSON ({problem})", key=key, problem=problem
        ) from None
