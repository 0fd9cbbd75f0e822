"""Captions: times, line breaks, and what must not break their form."""

import pytest

from kaname import ConfigError
from kaname.senses.captions import captions
from kaname.senses.results import Page, Sentence, SpokenTurn, TextLine
from kaname.senses.senses import speaker_of


def test_srt_and_vtt_have_their_own_times():
    said = [Sentence(0.0, 1.5, "Hello."), Sentence(3661.25, 3662.0, "A < B & C --> D")]
    assert captions(said) == ("1\n00:00:00,000 --> 00:00:01,500\nHello.\n\n2\n01:01:01,250 --> 01:01:02,000\nA < B & C → D\n")
    assert captions(said, "vtt").startswith("WEBVTT\n\n1\n00:00:00.000 --> 00:00:01.500\nHello.\n\n2\n")
    assert "A &lt; B &amp; C" in captions(said, "vtt")
    with pytest.raises(ConfigError, match='"srt" or "vtt"'):
        captions(said, "ass")


def test_long_sentence_is_divided_with_its_time():
    text = "これは一行には長すぎる文です。" * 12
    lines = captions([Sentence(0.0, 24.0, text, "speaker 1")]).splitlines()
    assert "".join(line.removeprefix("speaker 1: ") for line in lines if "これ" in line or "す。" in line).count("これは") == 12
    assert len([line for line in lines if "-->" in line]) >= 4
    assert all(len(line) <= 42 for line in lines)
    assert lines[1].startswith("00:00:00,000")
    assert lines[-2 if "-->" in lines[-2] else -3].endswith("00:00:24,000")


def test_sentence_belongs_to_the_voice_that_speaks_most_of_it():
    turns = [SpokenTurn(0.0, 2.0, "speaker 1"), SpokenTurn(2.0, 6.0, "speaker 2")]
    assert speaker_of(Sentence(1.5, 4.0, "x"), turns) == "speaker 2"
    assert speaker_of(Sentence(9.0, 10.0, "x"), turns) == ""


def test_words_in_one_row_of_a_picture_become_one_line():
    lines = [TextLine("right", (500, 12, 600, 38)), TextLine("below", (10, 60, 80, 90)), TextLine("left", (10, 10, 80, 40))]
    assert Page(tuple(lines)).text == "left right\nbelow"
