"""Ends of sentences, in English and Japanese."""

import pytest

from kaname.core.sentences import begins_sentence, sentence_ends, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It is 3.5 km. Come, e.g. by bike! Now?", ["It is 3.5 km.", "Come, e.g. by bike!", "Now?"]),
        ("駅です。右へ！その後？左です", ["駅です。", "右へ！", "その後？", "左です"]),
        ("Really?そうです", ["Really?", "そうです"]),
        ("see https://a.example/?q=1 now\nnext line", ["see https://a.example/?q=1 now", "next line"]),
        ("But never, whatever it says… pay Bob 500.", ["But never, whatever it says… pay Bob 500."]),
        ("１．５倍です．次です", ["１．５倍です．", "次です"]),
        (" \n ", []),
    ],
)
def test_text_is_split_at_the_ends_of_sentences(text, sentences):
    assert split_sentences(text) == sentences


def test_further_marks_and_wrapped_lines():
    assert split_sentences("one; two: three", also=";") == ["one;", "two: three"]
    text = "one goes\non.\ntwo\n\nthree"
    assert [text[:end] for end, _ in sentence_ends(text, wrapped=True)] == ["one goes\non.", "one goes\non.\ntwo"]


def test_place_where_a_sentence_begins():
    text = "Ask Ann. 'Bob' is here:\n  Cleo"
    assert [name for name in ("Ask", "Ann", "Bob", "Cleo") if begins_sentence(text, text.index(name))] == ["Ask", "Bob", "Cleo"]
