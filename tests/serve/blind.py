"""An agent that reads only text, so that the pictures that it is sent are read to it."""

from __future__ import annotations

import os
from pathlib import Path

from kaname import Agent, ScriptedModel, SqliteJournal
from kaname.kernel.bases import ModelInfo


class Blind(ScriptedModel):
    """Replies with what it was sent."""

    def __init__(self) -> None:
        super().__init__(lambda request: request.messages[-1].text)
        self.about = ModelInfo(takes=())


agents = [Agent(Blind(), name="blind", journal=SqliteJournal(Path(os.environ["KANAME_TEST_FOLDER"]) / "journal.db"))]
