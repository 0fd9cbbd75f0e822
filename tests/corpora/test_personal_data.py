"""The labelled sentences of personal data: the file itself is sound."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from tests.corpora.made_up import MAKERS, luhn, my_number_check
from tests.corpora.make_personal_data import WRITTEN, lines

JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


@pytest.fixture(scope="module")
def sentences() -> list[dict[str, Any]]:
    return [json.loads(line) for line in WRITTEN.read_text(encoding="utf-8").splitlines()]


def labels(sentence: dict[str, Any], kind: str) -> list[str]:
    return [sentence["text"][span["start"] : span["end"]] for span in sentence["spans"] if span["kind"] == kind]


def test_personal_data_file_is_what_its_script_writes() -> None:
    assert WRITTEN.read_text(encoding="utf-8").splitlines() == list(lines())


def test_personal_data_sentences_are_many_and_half_of_them_japanese(sentences: list[dict[str, Any]]) -> None:
    japanese = sum(bool(JAPANESE.search(sentence["text"])) for sentence in sentences)
    assert len(sentences) >= 640
    assert 0.45 <= japanese / len(sentences) <= 0.55
    assert [sentence["id"] for sentence in sentences] == list(range(1, len(sentences) + 1))
    assert len({sentence["text"] for sentence in sentences}) == len(sentences)


def test_personal_data_has_25_sentences_of_every_kind_and_a_third_without_any(sentences: list[dict[str, Any]]) -> None:
    counts = Counter(kind for sentence in sentences for kind in {span["kind"] for span in sentence["spans"]})
    assert set(counts) == set(MAKERS)
    assert min(counts.values()) >= 25, counts
    assert sum(not sentence["spans"] for sentence in sentences) >= 0.30 * len(sentences)


def test_personal_data_labels_cover_a_value_and_nothing_around_it(sentences: list[dict[str, Any]]) -> None:
    for sentence in sentences:
        end = 0
        for span in sentence["spans"]:
            assert end <= span["start"] < span["end"] <= len(sentence["text"]), sentence
            value = sentence["text"][span["start"] : span["end"]]
            assert value == value.strip(), sentence
            assert not re.search(r"[<>|\"\n]", value), sentence
            end = span["end"]
        assert "<<" not in sentence["text"], sentence


def test_personal_data_shapes_are_those_of_their_kind(sentences: list[dict[str, Any]]) -> None:
    sizes = {
        "my_number": {12},
        "licence_jp": {12},
        "bank_account_jp": {7},
        "postal_code_jp": {7},
        "passport_jp": {7},
        "card": {14, 15, 16},
    }
    for sentence in sentences:
        for kind, allowed in sizes.items():
            for value in labels(sentence, kind):
                assert len(re.sub(r"\D", "", value)) in allowed, (kind, value)
        for value in labels(sentence, "email"):
            assert re.search(r"[@＠]|%40", value), value
        for value in labels(sentence, "phone"):
            assert 9 <= len(re.sub(r"\D", "", value)) <= 14, value


def test_personal_data_check_digits_hold_for_cards_ibans_and_my_numbers(sentences: list[dict[str, Any]]) -> None:
    for sentence in sentences:
        for value in labels(sentence, "card"):
            assert luhn(re.sub(r"\D", "", value)), value
        for value in labels(sentence, "iban"):
            plain = value.replace(" ", "")
            assert int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1, value
        for value in labels(sentence, "my_number"):
            digits = re.sub(r"\D", "", value)
            assert my_number_check(digits[:11]) == str(int(digits[11])), value


def test_my_number_check_digit_of_a_worked_example_is_8() -> None:
    assert my_number_check("12345678901") == "8"
