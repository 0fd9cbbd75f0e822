"""Ids of runs, sessions and users, as callers give them."""

from __future__ import annotations

from ..core.errors import ConfigError
from ..core.runs import SHARED


class SharedSession(str):
    """A session of several agents or users: `session_id=SharedSession("meeting")`. Others belong to one agent and one user."""

    def __new__(cls, name: str) -> SharedSession:
        return super().__new__(cls, f"{SHARED}{name}")


def check_ids(**ids: str | None) -> None:
    for name, value in ids.items():
        if value is not None and (not isinstance(value, str) or value.encode("utf-8", "ignore").decode() != value):
            raise ConfigError.of(
                "id.not_text", "{name} must be a string that can be encoded as UTF-8, not {value!r}", name=name, value=value
            )
    if (session := ids.get("session_id")) and session.startswith(SHARED) and not isinstance(session, SharedSession):
        raise ConfigError.of(
            "session.not_shared",
            "a session_id that begins with {shared} belongs to a shared session: use SharedSession(…)",
            shared=SHARED,
        )
