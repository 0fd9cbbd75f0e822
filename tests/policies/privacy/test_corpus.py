"""The labelled sentences, written by somebody who has not seen the patterns: how much is found, and that no cut shows more."""

import json
from collections import Counter
from pathlib import Path

import pytest

from kaname.policies.content.privacy.kinds import built_in
from kaname.policies.content.privacy.scan import DataStream, find
from kaname.policies.content.privacy.values import mask, replace_found
from tests.properties import nightly

CORPUS = Path(__file__).parents[2] / "corpora" / "personal_data.jsonl"
NAMES = {
    "birth_date": "date_of_birth",
    "key": "api_key",
    "bank_account_jp": "bank_account",
    "postal_code_jp": "postal_code",
    "passport_jp": "passport",
    "licence_jp": "driving_licence",
}
pytestmark = pytest.mark.skipif(not CORPUS.is_file(), reason="the labelled sentences are not here")


@pytest.fixture(scope="module")
def sentences():
    read = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]
    return [
        (one["text"], [(span["start"], span["end"], NAMES.get(span["kind"], span["kind"])) for span in one["spans"]])
        for one in read
    ]


def test_patterns_find_95_of_100_of_every_kind_and_9_of_10_finds_are_right(sentences):
    labelled, right, wrong = Counter(), Counter(), Counter()
    kinds = {form.kind for form in built_in()}
    for text, spans in sentences:
        found = find(text, built_in())
        for start, end, kind in spans:
            labelled[kind] += 1
            right[kind] += any(one.kind == kind and one.start <= start and end <= one.end for one in found)
        for one in found:
            wrong[one.kind] += not any(kind == one.kind and start < one.end and one.start < end for start, end, kind in spans)
    recall = {kind: right[kind] / labelled[kind] for kind in kinds}
    precision = {kind: right[kind] / (right[kind] + wrong[kind]) for kind in kinds}
    assert min(recall.values()) >= 0.95, recall
    assert min(precision.values()) >= 0.90, precision


@pytest.mark.slow
@pytest.mark.parametrize("step", [7, *nightly(1)])
def test_stream_of_single_characters_shows_what_the_whole_sentence_shows(sentences, step):
    for text, _ in sentences[::step]:
        stream = DataStream(built_in(), mask)
        shown = "".join([*[stream.feed(char) for char in text], stream.end()])
        assert shown == replace_found(text, find(text, built_in()), mask)
