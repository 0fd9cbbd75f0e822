"""`find_addresses`: Japanese addresses."""

import json
import re
from pathlib import Path

import pytest

from kaname import Privacy, find_addresses
from tests.policies.privacy.test_privacy import Watched, agent_of

CORPUS = Path(__file__).parents[2] / "corpora" / "personal_data.jsonl"
JAPANESE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("住所は東京都八王子市みどり町5−12−8です。", ["東京都八王子市みどり町5−12−8"]),
        ("横浜市港北区若葉台二丁目７番１５号へ", ["横浜市港北区若葉台二丁目７番１５号"]),
        ("広島県広島市中区川端町８－１２－６　メゾン桜台703、山本", ["広島県広島市中区川端町８－１２－６　メゾン桜台703"]),
        ("東京都では12月に、千葉県の市で3件ありました。", []),
        ("大阪市の人口は270万人です。", []),
    ],
)
def test_find_addresses(text, addresses):
    assert [text[start:end] for start, end, _ in find_addresses(text)] == addresses


def test_find_addresses_finds_8_of_10_and_9_of_10_finds_are_right_in_sentences_that_were_held_out():
    right = wrong = labelled = 0
    for line in CORPUS.read_text("utf-8").splitlines():
        one = json.loads(line)
        if one["id"] % 2 == 0:  # these were used to write the pattern
            continue
        places = [(span["start"], span["end"]) for span in one["spans"] if span["kind"] == "address"]
        found = find_addresses(one["text"])
        japanese = [(start, end) for start, end in places if JAPANESE.search(one["text"][start:end])]
        labelled += len(japanese)
        right += sum(any(first <= start and end <= last for first, last, _ in found) for start, end in japanese)
        wrong += sum(not any(start < last and first < end for start, end in places) for first, last, _ in found)
    assert right / labelled >= 0.80  # 16 of 18
    assert right / (right + wrong) >= 0.90


async def test_privacy_hides_an_address_from_the_model():
    model = Watched("<ADDRESS_1>に届けます。")
    result = await agent_of(model, detectors=[find_addresses]).run("新潟県長岡市雪見町6丁目17-16に届けて。")
    assert "<ADDRESS_1>に届けて。" in model.sent[0]
    assert result.output == "新潟県長岡市雪見町6丁目17-16に届けます。"
    assert Privacy(detectors=[find_addresses])
