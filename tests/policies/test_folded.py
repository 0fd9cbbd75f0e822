"""Guardrail patterns see text as it looks: full-width letters, marks and zero-width characters hide nothing."""

from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kaname import Guardrails, ScriptedModel
from kaname.policies.guardrails.folded import Folded, folded
from tests.policies.test_guardrails import Slices, guarded, shown
from tests.properties import tries

HIDDEN = "\u200b\u200d\u2060\ufeff\u00ad\ufe0f\u115f\U000e0041"
MARKS = "\u3099\u309a\u0301\u0338\u0323\uff9e\u0f73"
ODD = st.text("aE=1 。かガｶﾞ漢ＰＡﬁ㍿½한\u1112\u1161\u11ab😀" + MARKS + HIDDEN, max_size=20) | st.text(max_size=10)
SIZES = st.lists(st.integers(1, 5), max_size=30)


@tries(300)
@given(ODD, SIZES)
@example("e\u0301", [1, 1])
@example("ｶ\u200bﾞ㍿", [1, 1, 1, 1])
def test_folding_in_pieces_is_folding_the_whole_and_every_place_is_in_the_text(text, sizes):
    reader, said, place = Folded(7), "", 0
    for size in [*sizes, len(text)]:
        said += reader.feed(text[place : place + size])
        place += size
    said += reader.end()
    assert said == folded(text) == normalize("NFKC", "".join([char for char in text if folded(char)]))
    places = [reader.place(number + 7) - 7 for number in range(len(said))]
    assert places == sorted(places)
    for number, at in enumerate(places):
        assert folded(text[:at]) == said[: len(folded(text[:at]))], "what stands before the place was said before"
        assert len(folded(text[:at])) <= number


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
