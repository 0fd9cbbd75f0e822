"""Guardrail patterns see text and patterns folded: full-width letters, marks and hidden characters hide nothing."""

from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kaname import Guardrails, ScriptedModel
from kaname.policies.content.guardrails.folded import Folded, fold_text
from kaname.policies.content.guardrails.folded import strip_hidden as without_hidden
from tests.policies.test_guardrails import Slices, guarded, shown
from tests.properties import tries

HIDDEN = "\u200b\u200d\u2060\ufeff\u00ad\ufe0f\u115f\U000e0041\u202e\u2066\u2800\x00\x08\x7f"
MARKS = "\u3099\u309a\u0301\u0338\u0323\uff9e\u0f73"
ODD = st.text("aE=1 。かガｶﾞ漢ＰＡﬁ㍿½한\u1112\u1161\u11ab😀" + MARKS + HIDDEN, max_size=20) | st.text(max_size=10)
SIZES = st.lists(st.integers(1, 5), max_size=30)


@pytest.mark.parametrize("fold", [fold_text, without_hidden])
@tries(300)
@given(ODD, SIZES)
@example("e\u0301", [1, 1])
@example("ｶ\u200bﾞ㍿", [1, 1, 1, 1])
def test_folding_in_pieces_is_folding_the_whole_and_every_place_is_in_the_text(fold, text, sizes):
    reader, said, place = Folded(7, fold), "", 0
    for size in [*sizes, len(text)]:
        said += reader.feed(text[place : place + size])
        place += size
    said += reader.end()
    assert said == fold(text) == fold("".join([char for char in text if fold_text(char)]))
    places = [reader.place(number + 7) - 7 for number in range(len(said))]
    assert places == sorted(places)
    for number, at in enumerate(places):
        assert fold(text[:at]) == said[: len(fold(text[:at]))], "what stands before the place was said before"
        assert len(fold(text[:at])) <= number


@st.composite
def disguised(draw, word):
    """The letters of a word, each in full width or not, with characters between that are not shown."""
    return [
        draw(st.text(HIDDEN, max_size=2)) * (number > 0) + (chr(ord(char) + 0xFEE0) if draw(st.booleans()) else char)
        for number, char in enumerate(word)
    ]


@tries(150)
@given(st.data(), st.text("ab é日か㍿\u200b", max_size=12), SIZES, st.sampled_from(["text", "thinking"]))
async def test_a_disguised_word_does_not_leave_however_it_is_sliced(data, before, sizes, kind):
    text = before + "".join(data.draw(disguised("s3cr3t"))) + " more"
    result, seen, facts = await guarded(Slices(text, sizes, kind), Guardrails(blocked_patterns=["s3cr3t"]))
    assert result.stop.kind == "blocked"
    assert before.startswith(shown(seen, "delta" if kind == "text" else kind))
    assert text not in "".join(facts)


@pytest.mark.parametrize(
    "text", ["ＰＡＳＳＷＯＲＤ", "pass\u200bword", "ｐａｓｓ\u00adｗｏｒｄ", '{"a": "\\uff50\\uff41\\uff53\\uff53word"}']
)
def test_patterns_of_both_kinds_see_input_and_output_folded(text):
    blocks, warns = Guardrails(blocked_patterns=["(?i)password"]), Guardrails(warn_patterns=["(?i)password"])
    assert blocks.check_output(text).action == "block"
    assert warns.check_output(text).action == "warn"
    if "\\" not in text:
        assert blocks.check_input(text).action == "block"


async def test_a_question_in_full_width_is_blocked_and_a_warning_is_told_once():
    result, _, _ = await guarded(ScriptedModel(["ok"]), Guardrails(blocked_patterns=["(?i)password"]), "ＰＡＳＳＷＯＲＤ は?")
    assert result.stop.kind == "blocked"
    _, seen, _ = await guarded(Slices("ｈｕｒｒｙ and hurry"), Guardrails(warn_patterns=["hurry"]))
    assert [chunk["status"] for chunk in seen if chunk.type == "status"].count("warning") == 1
    _, seen, _ = await guarded(Slices("ｈｕｒｒｙ"), Guardrails(warn_patterns=["hurry"]))
    assert [chunk["status"] for chunk in seen if chunk.type == "status"].count("warning") == 1


async def test_text_that_is_not_blocked_leaves_as_it_was_written():
    text = "ＡＢＣ e\u0301 ｶﾞ ㍿ 👩\u200d💻 end\u3099"
    result, seen, _ = await guarded(Slices(text, [1] * 30), Guardrails(blocked_patterns=["s3cr3t"]))
    assert result.output == shown(seen) == text


def test_a_pattern_for_what_is_not_shown_sees_the_text_as_it_is():
    assert Guardrails(blocked_patterns=["\u200b"]).check_output("a\u200bb").action == "block"
    assert Guardrails(blocked_patterns=["[Ａ-Ｚ]"]).check_output("Ａ").action == "block"


WORDS = st.text("（）①ＡbﾊﾟダダＰ秘é한ﬁ㍻。", min_size=2, max_size=6)
FORMS = st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"])


@tries(200)
@given(WORDS, FORMS, FORMS, st.text(HIDDEN, min_size=1, max_size=2), st.data(), SIZES)
async def test_a_literal_pattern_in_any_form_finds_its_words_in_any_form_with_hidden_characters_between(
    word, written, said, hidden, data, sizes
):
    place = data.draw(st.integers(1, len(word) - 1))
    pattern = normalize(written, word).replace("(", r"\(").replace(")", r"\)")
    text = "ab " + normalize(said, word[:place]) + hidden + normalize(said, word[place:])
    result, seen, _ = await guarded(Slices(text, sizes), Guardrails(blocked_patterns=[pattern]))
    assert result.stop.kind == "blocked"
    assert "ab ".startswith(shown(seen))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\b㍻{2}", "平成平成"),
        ("(?i)[（(]ｎｄａ[）)]", "（N\u200bDA)"),
        (r"\①号", "1号"),
        ("[Ａ-Ｚ]{2}", "Ａ\u200bＢ"),
        ("(?P<社名>㈱)(?P=社名)", "(株)㈱"),
        ("می\u200cخواهم", "می\u2060خواهم"),
        ("葛\U000e0100城", "葛城"),
        ("password", "pass\x00word"),
        ("password", "\u202epass\u2800word\u202c"),
    ],
)
def test_a_pattern_that_is_not_in_nfkc_finds_what_looks_the_same(pattern, text):
    assert Guardrails(blocked_patterns=[pattern]).check_output(text).action == "block"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("社外秘（限定）", "社外秘限定"),
        ("[Ａ-Ｚ]", "A"),
        (r"\u2460", "1"),
        ("[\u200b-\u200f]", "-"),
        ("[a-z]\u200b+[a-z]", "ab"),
        ("a(?:\u200b|\u200c)b", "ab"),
        ("x{２}", "xx"),
        (r"(a)\1①", "aa"),
        ("[㍻]", "平"),
    ],
)
def test_a_folded_pattern_keeps_its_meaning_and_what_is_written_by_number_stays(pattern, text):
    assert Guardrails(blocked_patterns=[pattern]).check_output(text).action == "allow"


@tries(60)
@given(SIZES)
async def test_a_word_half_in_full_width_and_half_in_escapes_does_not_leave(sizes):
    result, seen, _ = await guarded(Slices(r"ｓ３ｃ\u0072\u0033t", sizes), Guardrails(blocked_patterns=["s3cr3t"]))
    assert result.stop.kind == "blocked"
    assert not shown(seen)


@tries(60)
@given(SIZES, st.text(HIDDEN, min_size=1, max_size=2), st.sampled_from(["[Ａ-Ｚ]{3}", r"\uff21\uff22Ｃ"]))
async def test_a_pattern_that_is_not_folded_finds_its_characters_with_hidden_ones_between(sizes, hidden, pattern):
    text = "ab " + hidden.join("ＡＢＣ")
    result, seen, _ = await guarded(Slices(text, sizes), Guardrails(blocked_patterns=[pattern]))
    assert result.stop.kind == "blocked"
    assert "ab ".startswith(shown(seen))
