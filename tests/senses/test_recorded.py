"""Runs of the local model with a picture and a sound, recorded and replayed: the same questions, calls and answers."""

import sys
from pathlib import Path

from kaname import Media, ScriptedModel
from kaname.core.events import Received
from kaname.models.providers.replay import read_recording
from kaname.testing import freeze

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

from senses.agents import bill_agent, meeting_agent  # noqa: E402

test_bill = freeze(EXAMPLES / "senses" / "bill.jsonl", lambda: bill_agent(ScriptedModel([])))
test_meeting = freeze(EXAMPLES / "senses" / "meeting.jsonl", lambda: meeting_agent(ScriptedModel([])))


def asked(name):
    (received,) = [one.body for one in read_recording(EXAMPLES / "senses" / name) if isinstance(one.body, Received)]
    return received.message


def test_local_model_was_given_what_was_read_and_heard_and_the_file_itself_is_kept():
    bill, meeting = asked("bill.jsonl"), asked("meeting.jsonl")
    assert "[You cannot see pictures. A program has read bill.png:]" in bill.text
    assert "Total 970 yen" in bill.text
    assert "River Hall" in meeting.text
    for message, file in ((bill, "bill.png"), (meeting, "message.wav")):
        (media,) = [part for part in message.parts if isinstance(part, Media)]
        assert media == Media.file(EXAMPLES / "senses" / file)
