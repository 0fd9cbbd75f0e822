"""Killed at every fact with calls in the outbox: each approved call is made once, a refused one never."""

import json
import os
from pathlib import Path

import pytest

from kaname import Agent, Flow, ScriptedModel, ToolLabels, call, tool
from kaname.testing import crash
from tests.properties import nightly

HERE = "tests.flow.test_outbox_crash"
TASK = "Read the page and pay what it asks for."
ANSWERS = {"some": [1, 3], "all": "yes", "none": "no"}
MADE = {"some": [1, 3], "all": [1, 2, 3], "none": []}

pytestmark = pytest.mark.slow


@tool(effect="pure", labels=ToolLabels())
async def read_page() -> str:
    """Read a page that somebody else wrote."""
    return "Pay 1 to ann@x.example, 2 to bob@x.example and 3 to cy@x.example."


@tool(effect="idempotent", labels=ToolLabels(verbs=("pay",)))
async def pay_once(yen: int, to: str) -> str:
    """Pay, and note it in a file that outlives the process. A repetition after a crash would be a second line."""
    _note(yen)
    return f"paid {yen} to {to}"


@tool(labels=ToolLabels(verbs=("pay",)))
async def pay(yen: int, to: str) -> str:
    """Pay. A call that a crash interrupted is in doubt, and asked about."""
    _note(yen)
    return f"paid {yen} to {to}"


def _note(yen: int) -> None:
    with open(Path(os.environ["KANAME_CRASH_FOLDER"]) / "paid.jsonl", "a") as file:
        file.write(json.dumps(yen) + "\n")


def _agent(paying) -> Agent:
    name = paying.name
    script = [
        call("read_page"),
        [call(name, yen=1, to="ann@x.example"), call("read_page")],
        [call(name, yen=2, to="bob@x.example"), call(name, yen=3, to="cy@x.example")],
        "All three wait.",
        "Done as you said.",
    ]
    return Agent(ScriptedModel(script), [read_page, paying], policies=[Flow("strict")], name="payer")


def irreversible() -> Agent:
    return _agent(pay)


def idempotent() -> Agent:
    return _agent(pay_once)


def _watch_files(monkeypatch) -> list[list[int]]:
    """Collect what each killed run paid, before the folder of the check is removed."""
    found: list[list[int]] = []

    class Kept(crash.tempfile.TemporaryDirectory):
        def cleanup(self):
            for trial in sorted(Path(self.name).iterdir()):
                if trial.is_dir():
                    paid = trial / "paid.jsonl"
                    found.append([json.loads(line) for line in paid.read_text().splitlines()] if paid.exists() else [])
            super().cleanup()

        def __exit__(self, *error):
            self.cleanup()

    monkeypatch.setattr(crash.tempfile, "TemporaryDirectory", Kept)
    return found


@pytest.mark.parametrize(("answer", "deaths"), [("some", 1), *nightly(("all", 2), ("none", 1))])
def test_calls_in_the_outbox_are_made_once_if_approved_and_never_if_refused(answer, deaths, monkeypatch):
    paid = _watch_files(monkeypatch)
    report = crash.check(f"{HERE}:irreversible", TASK, answers={"outbox:": ANSWERS[answer]}, deaths=deaths, moments=("before",))
    assert report.problems == ()
    assert report.kills >= report.facts
    assert len(paid) == report.runs + 1, "one for each killed run, and one for the undisturbed run"
    for one in paid:
        assert len(one) == len(set(one)), "no call twice"
        assert set(one) <= set(MADE[answer]), "no refused call"
    in_full = [one for one in paid if sorted(one) == MADE[answer]]
    assert len(paid) - len(in_full) <= report.in_doubt, "a call is missing only where a person answered that it be skipped"


@pytest.mark.nightly
def test_an_approved_call_that_may_be_repeated_is_made_in_every_run(monkeypatch):
    paid = _watch_files(monkeypatch)
    report = crash.check(f"{HERE}:idempotent", TASK, answers={"outbox:": [1, 3]}, moments=("before",))
    assert report.problems == ()
    assert report.in_doubt == 0
    assert all(set(one) == {1, 3} for one in paid)
