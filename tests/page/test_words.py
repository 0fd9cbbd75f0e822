"""The page's words: each has its Japanese, and its files fit the house."""

from __future__ import annotations

import gzip
import hashlib
import re

from kaname.cli.messages.stops import KINDS
from kaname.serve.page.files import STATIC

_SAID = re.compile(r'\bt\(\s*"((?:[^"\\]|\\.)*)"')
_PAIR = re.compile(r'^  (?:"((?:[^"\\]|\\.)*)"|(\w+)):\s*"((?:[^"\\]|\\.)*)"', re.MULTILINE)
OWN = [path for path in STATIC.rglob("*.js") if path.parent.name != "vendor"]


def test_every_word_of_the_page_has_its_japanese():
    found = _PAIR.findall((STATIC / "ja.js").read_text("utf-8"))
    known = {quoted or plain: japanese for quoted, plain, japanese in found}
    said = {words for path in OWN for words in _SAID.findall(path.read_text("utf-8"))}
    assert len(said) > 150
    assert sorted(said - set(known)) == []
    for english, japanese in known.items():
        assert set(re.findall(r"\{(\w+)\}", english)) == set(re.findall(r"\{(\w+)\}", japanese)), english


def test_every_state_has_its_word_in_both_languages():
    """`cancelled` and `interrupted` are two states with two words, the same as in the terminal and the docs."""
    states = re.findall(r'^  (\w+): \["(.)", "([\w ]+)", "\w+"\]', (STATIC / "format.js").read_text("utf-8"), re.MULTILINE)
    known = {quoted or plain: japanese for quoted, plain, japanese in _PAIR.findall((STATIC / "ja.js").read_text("utf-8"))}
    words = {status: (english, known[english]) for status, _, english in states}
    assert words == {status: KINDS[status] for status in words}
    assert len({*words.values()}) == len({japanese for _, japanese in words.values()}) == len(states) >= 15


def test_no_file_of_the_page_makes_html_of_text():
    for path in OWN:
        text = path.read_text("utf-8")
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
            assert way not in text, f"{path.name}: {way}"
        assert not re.search(r"""["'`]https?://(?!www\.w3\.org)""", text), f"{path.name} names another place"


def test_the_vendored_library_is_the_one_that_was_looked_at():
    content = (STATIC / "vendor" / "preact.js").read_bytes()
    note = (STATIC / "vendor" / "LICENCES.txt").read_text("utf-8")
    assert hashlib.sha256(content).hexdigest() in note


def test_the_script_of_the_page_is_small():
    """65 KB as they come over the wire, the library among them; charts, evaluations, learning, the queue and the Japanese words are fetched by who needs them."""
    files = [
        path for path in STATIC.rglob("*.js") if path.name not in ("figures.js", "evals.js", "learn.js", "work.js", "ja.js")
    ]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) < 65_000
