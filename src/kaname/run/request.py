"""`RunRequest`: a run that is wanted, with ids as callers give them. Every way in makes one, and `Opener` opens the run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Literal

from ..core.errors import ConfigError
from ..core.messages import Message
from ..core.record import field, record
from ..core.runs import SHARED

QUEUED = "queued"  # the name of a fact: a worker has to continue the run
Turns = Literal["wait", "refuse", "ahead"]


@record
class RunRequest:
    """A run that is wanted: its input, its user, and whether it is new, resumed or forked.

    Args:
        run_id: Its id.
        messages: What the user says; earlier messages of the conversation can stand before it.
        how: "new"; "resume" for a run that exists; "either" for both, as the journal has it; "fork" for a copy of another.
        session: The conversation that it belongs to.
        user: Whose it is.
        base: The run whose conversation it continues. By default the last run of its session; "" for none.
        turns: What to do while another run of the session is at work: wait for it, refuse this one, or go ahead.
        parent: The run and the tool call that open it.
        answers: Answers to its questions, by their keys. A parent passes down each as `Given`.
        by: Who gave the other answers, or starts the run for the user.
        queued: Record with the answers that a worker has to continue the run.
        unfinished: Leave it as it is if it has ended, however it ended. A worker asks so, because the run may have ended since.
        takeover: Take it from a process that seems to execute it.
        after: Show the facts after this number first.
        source: The run and the fact that a fork begins at. None for the fact: the last one.
        results: Results of calls that wait there.
        deps: What its tools find in `ToolContext.deps`. It is not recorded.
    """

    run_id: str
    messages: tuple[Message, ...] = ()
    how: Literal["new", "resume", "either", "fork"] = "new"
    session: str = ""
    user: str = ""
    base: str | None = None
    turns: Turns = "wait"
    parent: tuple[str, str] | None = None
    answers: Mapping[str, Any] = field(factory=dict)
    by: str = ""
    queued: bool = False
    unfinished: bool = False
    takeover: bool = False
    after: int | None = None
    source: tuple[str, int | None] = ("", None)
    results: Mapping[str, Any] = field(factory=dict)
    deps: Any = None


class SharedSession(str):
    """A session of several agents or users: `session_id=SharedSession("meeting")`. Others belong to one agent and one user.

    Args:
        name: The name of the session.
    """

    def __new__(cls, name: str) -> SharedSession:
        return super().__new__(cls, f"{SHARED}{name}")


def check_ids(**ids: str | None) -> None:
    for name, value in ids.items():
        if value is not None and (
            not isinstance(value, str) or "\0" in value or value.encode("utf-8", "ignore").decode() != value
        ):
            raise ConfigError.of(
                "id.not_text",
                "{name} must be a string that can be encoded as UTF-8, without zeros, not {value!r}",
                name=name,
                value=value,
            )
    if (session := ids.get("session_id")) and session.startswith(SHARED) and not isinstance(session, SharedSession):
        raise ConfigError.of(
            "session.not_shared",
            "a session_id that begins with {shared} belongs to a shared session: use SharedSession(…)",
            shared=SHARED,
        )


def new_run_id() -> str:
    """Return an id that sorts by time, so that the newest facts lie together on the disk."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(7).hex()}"
