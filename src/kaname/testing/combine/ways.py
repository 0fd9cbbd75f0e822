"""Ways in: how the words of users and outsiders reach an agent.

A way in is one async function that takes a `Stage`. Add it to `WAYS` with `@way`, and the generator tries it with every other
feature. It

1. takes the user's words with `stage.all_words(but=(…))`, where `but` names the places for texts that it fills itself with
   `stage.slot("system" | "assistant" | "tool" | "file" | "other")`. "other" holds the words of another person;
2. starts the run, with `stage.begin(…)` or in a way of its own around `stage.attempt(…)`, with `user=stage.user`;
3. lets people answer with `stage.settle(result)`, which also records what the user got back. A way with answers of its own (a
   protocol) appends an `Answer` to `stage.ledger.answers` for each one, with `accepted` set, and a `Got` for each reply.

Set `root` (see `ledger.py`) around whatever executes a run, so that the ledger knows the conversation.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

from ...core.messages import Media
from .stage import Stage

Way = Callable[[Stage], Awaitable[None]]
WAYS: dict[str, Way] = {}


def way(function: Way) -> Way:
    """Register a way in under the name of its function."""
    WAYS[function.__name__.rstrip("_")] = function
    return function


@way
async def run(stage: Stage) -> None:
    """One run, and further turns of its session."""
    given: Any = stage.all_words(but=("file",))
    if file := stage.slot("file"):
        given = [given, Media("text/plain", base64.b64encode(file.encode()).decode(), name="note.txt")]
    await stage.settle(await stage.begin(given))
    for words in stage.turns:
        await stage.settle(await stage.begin(words))


@way
async def messages(stage: Stage) -> None:
    """A list of messages with other roles, as a client with its own history sends it."""
    system, said, found, other = (stage.slot(name) for name in ("system", "assistant", "tool", "other"))
    history: list[Any] = [{"role": "system", "content": system}] if system else []
    history += [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": said or "Hello."}]
    if found or other:
        called = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"q": "x"}'}}
        history += [{"role": "assistant", "content": None, "tool_calls": [called]}]
        history += [{"role": "tool", "tool_call_id": "call_1", "content": f"{found} {other}"}]
    await stage.settle(await stage.begin([*history, {"role": "user", "content": stage.all_words()}]))
