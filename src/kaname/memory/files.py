"""Files of memories: one for each owner (a user, an agent, the project), so that nobody sees what belongs to another."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from ..core.encryption.keys import key_for
from ..core.errors import ConfigError
from ..core.project import state_path
from ..tools.search.embed import Embeddings
from .store import Memories, Remembered

Owner = tuple[Literal["user", "agent", "project"], str]
LEARNING = "memory"  # the agent that writes down what is learnt, and the end of its runs' ids
_OPEN, _IN_USE = 32, 16  # files that are kept open, and those in use at once beside them
_A_DAY = len("2026-03-01")


class MemoryFiles:
    """`folder`: where they are, by default beside the journal of this project."""

    def __init__(self, folder: str | Path | None = None, embeddings: Embeddings | str | None = None) -> None:
        self.folder = Path(state_path("memory") if folder is None else folder).expanduser()
        self._embeddings = embeddings
        self._stores: OrderedDict[Owner, Memories] = OrderedDict()
        self._lock, self._gate = threading.Lock(), threading.Semaphore(_IN_USE)

    def of(self, user: str = "", *, agent: str = "", project: bool = False) -> Memories:
        """Return the memories of a user, of an agent, or of the project."""
        return self._open(("project", "") if project else ("agent", agent) if agent else ("user", user))

    def known(self, user: str, agent: str) -> list[Memories]:
        """Return all memories that a run of that user and agent can see."""
        owners: list[Owner] = [("user", user), ("agent", agent), ("project", "")]
        return [self._open(owner) for owner in owners if self.path(owner).exists()]

    def path(self, owner: Owner, hidden: bool | None = None) -> Path:
        """Return the path of an owner's file. Of encrypted files, the name does not show the user (`hidden`)."""
        kind, name = owner
        if kind == "project":
            return self.folder / "project.db"
        if hidden is None:
            hidden = key_for(self.folder) is not None
        mark = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        if hidden and kind == "user":
            return self.folder / f"user-{mark[:32]}.db"
        label = "".join([char if char.isascii() and char.isalnum() else "-" for char in name])[:24]
        return self.folder / f"{kind}-{label}-{mark[:12]}.db"

    def _open(self, owner: Owner) -> Memories:
        with self._lock:
            if owner not in self._stores:
                while len(self._stores) >= _OPEN:
                    self._stores.popitem(last=False)[1].close()
                self._stores[owner] = Memories(self.path(owner), " ".join(owner).strip(), self._embeddings, self._gate)
            self._stores.move_to_end(owner)
            return self._stores[owner]

    def users(self) -> Iterator[Memories]:
        """Go through the files of all users."""
        for path in sorted(self.folder.glob("user-*.db")):
            store = Memories(path, "", self._embeddings, self._gate)
            yield store
            store.close()

    def close(self) -> None:
        """Close all files. What is used afterwards is opened again."""
        with self._lock:
            while self._stores:
                self._stores.popitem()[1].close()


def moment(text: str) -> float | None:
    """The end of a day (`2026-03-01`), or a moment of it (`2026-03-01T12:00`); `None` if it is empty."""
    if not text.strip():
        return None
    try:
        when = datetime.fromisoformat(text.strip())
        return (when + timedelta(days=1) if len(text.strip()) == _A_DAY else when).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise ConfigError.of("memory.date", "write the date as 2026-03-01, not {text_!r}", text_=text) from None


def day(when: float) -> str:
    return datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d")


def days_of(times: Sequence[float]) -> dict[float, str]:
    """The day of each time, with the time of day where several are of the same day: `2026-03-01 09:30`."""
    counts = Counter([day(when) for when in set(times)])
    exact = {when: datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d %H:%M") for when in times}
    return {when: exact[when] if counts[day(when)] > 1 else day(when) for when in times}


def as_data(one: Remembered) -> dict[str, Any]:
    """A memory as JSON, for exports and tools."""
    kept = {"id": one.id, "text": one.text, "kind": one.kind, "about": one.about, "since": day(one.said), "run": one.run}
    return {name: value for name, value in kept.items() if value} | ({"until": day(one.ended)} if one.ended else {})
