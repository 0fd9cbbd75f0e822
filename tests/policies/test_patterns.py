"""Patterns of the guardrails: held against Python's `re`, cut into pieces, slow, too large."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kaname import ConfigError
from kaname.policies.content.guardrails.patterns import Pattern, Scan
from tests.properties import tries

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "c",
        ".",
        r"\d",
        r"\w",
        r"\s",
        "[ab]",
        "[^a]",
        "[a-c0-9]",
        "あ",
        r"\b",
        "^",
        r"\Z",
        r"\W",
        "1",
        " ",
        r"\n",
        "i",
        "k",
        "[é-ű]",
        "[^é-ű]",
        "[I-K]",
    ]
)
AROUND = st.sampled_from(
    ["(?<!a)", "(?=b)", "(?!1)", "(?<=c)", r"(?<![0-9])", r"(?!\d)", "(?=$)", "(?<!^)", "(?=b|$)", r"(?=\b)"]
)


def joined(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(children, min_size=1, max_size=3).map("".join),
        st.lists(children, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(children, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    )


PATTERNS = st.tuples(st.recursive(ATOMS | AROUND, joined, max_leaves=8), st.sampled_from(["", "", "$"])).map("".join)
TEXTS = st.text(alphabet="abcABC01 あ\n_iIkK\u212aéŰsſ", max_size=30)


def compiled(pattern: str) -> Pattern | None:
    try:
        return Pattern(pattern)
    except ConfigError:
        return None


@given(PATTERNS, TEXTS, st.sampled_from(["", "(?i)", "(?s)", "(?m)", "(?a)", "(?ai)"]))
@example("a$", "a\n", "").via("the end of a line that ends the text")
@example("a(?=$)", "a\nb", "(?m)").via("the end of a line, looked ahead to")
@example("a(?=$)", "a\n", "").via("the same, where the line ends the text")
@example("s", "ſ", "(?i)").via("a letter that has two small ones")
@example("iban", "İBAN", "(?i)").via("a letter that has no single small letter")
@tries(1500)
def test_finds_what_python_finds(pattern: str, text: str, flags: str) -> None:
    ours, theirs = compiled(flags + pattern), re.compile(flags + pattern)
    if ours is None:
        return
    found = ours.search(text)
    assert (found is not None) == (theirs.search(text) is not None), (pattern, text)
    if found is not None:
        assert theirs.match(text, found.start) is not None, "what it found begins where it says"


@given(PATTERNS, TEXTS, st.lists(st.integers(1, 5), max_size=40))
@tries(600)
def test_slicing_changes_nothing_and_what_was_let_go_is_never_part_of_a_match(
    pattern: str, text: str, sizes: list[int]
) -> None:
    ours = compiled(pattern)
    if ours is None:
        return
    whole = ours.search(text)
    scan, place, released, found = Scan([ours]), 0, 0, None
    for size in [*sizes, *[3] * len(text)]:
        if place >= len(text) or found is not None:
            break
        found = scan.feed(text[place : place + size])
        place += size
        if found is None:
            released = max(released, scan.pending)
    found = found or scan.end()
    assert (found is None) == (whole is None)
    assert whole is None or released <= whole.start


@given(PATTERNS, TEXTS)
@tries(600)
def test_a_whole_text_fits_or_does_not(pattern: str, text: str) -> None:
    try:
        ours = Pattern(pattern, whole=True)
    except ConfigError:
        return
    assert (ours.search(text) is not None) == (re.compile(pattern.replace("$", r"\Z")).fullmatch(text) is not None)


def test_a_thousand_words_are_found_as_one_is() -> None:
    words = [f"{chr(0x4E00 + number)}{chr(0x5E00 + number)}" for number in range(1_000)]
    patterns = [Pattern(word) for word in words]
    text = "".join([f"。{word[0]}の{word[1]}" for word in words])
    scan = Scan(patterns)
    assert (scan.feed(text), scan.end()) == (None, None)
    assert Scan(patterns).feed(text + words[777] + "。") == (len(text), len(text) + 2, words[777])


def test_after_a_match_the_rest_is_looked_at() -> None:
    scan, found = Scan([Pattern("ab"), Pattern("b+c"), Pattern("x")]), []
    text = "abcxabx"
    while (match := scan.feed(text[scan.length :]) or scan.end()) is not None:
        found.append(match.pattern)
        scan.drop(match.pattern)
    assert found == ["ab", "b+c", "x"]


@pytest.mark.parametrize("pattern", [r"(a|aa)+\d", "(?:a|aa)+!{2}"])
def test_a_pattern_that_would_hang_is_given_up_and_counts_as_a_match(pattern: str) -> None:
    slow, text = Pattern(pattern), "a" * 60 + "!"
    assert slow.search(text) == (0, 61, pattern)
    assert Scan([slow]).feed(text) == (0, 61, pattern)
    assert Pattern(pattern, whole=True).search(text) is None, "where it would have to fit, it does not"


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a*", "empty"),
        (r"\b", "empty"),
        ("(?m)^$", "empty"),
        ("(?=a)", "empty"),
        ("x" * 1_000_000, "too long"),
        (7, "must be a string"),
        ("(", "missing|unterminated"),
        ("[z-a]", "bad character range"),
    ],
)
def test_what_cannot_be_used_is_refused_when_it_is_made(pattern: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Pattern(pattern)


def test_japanese_beside_letters_and_digits() -> None:
    post = Pattern(r"(?<!\d)\d{3}-\d{4}(?!\d)")
    assert post.search("郵便番号は123-4567です") is not None
    assert post.search("0123-45678") is None
    assert Pattern("(?i)パスワード[::]").search("パスワード:abc") is not None


def test_nothing_is_held_while_nothing_may_match() -> None:
    scan = Scan([Pattern(r"secret-\d+"), Pattern("(?s)BEGIN.*END")])
    assert scan.feed("hello world ") is None
    assert scan.pending == 12
    scan.feed("sec")
    assert scan.pending == 12
    scan.feed("urity ")
    assert scan.pending == 21


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [(r"cat\b", ["cat", "s"]), ("cat$", ["cat", "s"]), ("cat$", ["cat", "\n", "s"]), ("cat(?!fish)", ["cat", "fi", "sh"])],
)
def test_what_follows_a_match_may_undo_it_and_is_waited_for(pattern: str, pieces: list[str]) -> None:
    scan = Scan([Pattern(pattern)])
    for piece in pieces:
        assert scan.feed(piece) is None
        assert scan.pending in (0, scan.length), "held back, or known to be none"
    assert scan.end() is None
    assert Scan([Pattern(pattern)]).feed("cat") is None
    ended = Scan([Pattern(pattern)])
    ended.feed("a cat")
    assert ended.end() == (2, 5, pattern)


def test_a_match_begins_where_it_may_have_begun() -> None:
    assert Pattern("a+b").search("xaaab") == (1, 5, "a+b")
    scan = Scan([Pattern("a+b")])
    scan.feed("xaaa")
    assert scan.pending == 1
