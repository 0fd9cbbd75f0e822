"""An agent that says a lot at once, for clients that do not read it; `KANAME_TEST_PATIENCE`: how long they are waited for."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import kaname.serve.guard
import kaname.serve.server
import kaname.serve.stream
from kaname import Agent, ScriptedModel, SqliteJournal
from kaname.core.messages import ModelReply, ModelRequest, assistant

FOLDER = Path(os.environ.get("KANAME_TEST_FOLDER", "."))
TEXT = "größer " * 250_000  # 2 MB

if patience := os.environ.get("KANAME_TEST_PATIENCE"):
    for module in (kaname.serve.guard, kaname.serve.server, kaname.serve.stream):
        module.PATIENCE = float(patience)  # type: ignore[attr-defined]


class Large:
    """Says it when the file `go` is there, all at once."""

    name = "large"

    async def reply(self, request: ModelRequest, emit: object) -> ModelReply:
        while not (FOLDER / "go").exists():
            await asyncio.sleep(0.02)
        return ModelReply(assistant(TEXT), "end_turn")


journal = SqliteJournal(FOLDER / "journal.db")
large_agent = Agent(Large(), name="large", journal=journal)
small_agent = Agent(ScriptedModel(lambda request: "small"), name="small", journal=journal)
agents = [large_agent, small_agent]
