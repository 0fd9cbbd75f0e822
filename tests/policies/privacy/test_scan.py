"""Finding personal data: forms, look-alikes, full-width text, and text that arrives in pieces."""

from itertools import pairwise

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from kaname import ConfigError, sanitize_data
from kaname.policies.content.privacy.kinds import KINDS, DataForm, built_in
from kaname.policies.content.privacy.scan import DataStream, find
from kaname.policies.content.privacy.values import mask, replace_found
from tests.properties import nightly, tries

FOUND = {
    "email": ["連絡先はa.b@example.comです", "mailto:'o.k@mail.example.co.jp'", "ａ．ｂ＠example.comへ", "x?m=a%40example.net"],
    "card": [
        "カードは4111 1111 1111 1111です",
        "4111111111111111",
        "３７８２－８２２４６３－１０００５",
        "注文 12 5555-5555-5555-4444",
    ],
    "iban": ["IBAN GB82 WEST 1234 5698 7654 32 is mine", "DE89370400440532013000 but"],
    "my_number": ["マイナンバーは1234 5678 9018です", "１２３４５６７８９０１８"],
    "passport": ["パスポート番号はTK1234567", "Passport, no. TK1234567.", "旅券を落としました。番号はTK1234567"],
    "driving_licence": ["免許証番号 301234567890", "driving licence 3012 3456 7890"],
    "bank_account": ["みなと銀行 港支店 普通 1234567 名義 ヤマダ", "口座番号：1234567", "account number 1234567"],
    "date_of_birth": ["生年月日は1985年4月1日", "昭和60年4月1日生まれ", "born on April 1, 1985", "name,dob\nX,1985-04-01"],
    "phone": [
        "電話は０３－１２３４－５６７８",
        "TEL03(1234)5678",
        "携帯09012345678まで",
        "+81-3-1234-5678",
        "(415) 555-2671",
        "001-415-555-2671",
        "(415)555-2671x89 in the office",
    ],
    "postal_code": ["〒100-0001", "郵便番号１０００００１", "100-0001 東京都千代田区"],
    "ip": ["接続元は192.0.2.10です", "from 2001:db8::1 today"],
    "api_key": [
        "sk-ant-api03-abcdefghijklmnop0123456789",
        "鍵はAKIAIOSFODNN7EXAMPLEです",
        "ghp_" + "a1" * 18,
        "xoxb-1234567890-abc",
    ],
}
LOOK_ALIKES = [
    "カードは4111 1111 1111 1112です",
    "IBAN GB83 WEST 1234 5698 7654 32",
    "番号は1234 5678 9019です",
    "注文番号TK1234567",
    "会議は1985年4月1日でした",
    "version 1.2.3.4 at 12:34:56, mask 255.255.255.0",
    "商品 0312345678901 と 603-419-5747-XL",
    "sk-this-is-a-long-name-of-a-class",
    "std::vector and a@b",
    "売上は1234567円です",
    "IMEI 356938035643809",
    "注文番号 001-2345-67 と 0012345678901",
]
WHOLE = "\n".join([text for texts in FOUND.values() for text in texts] + LOOK_ALIKES)


def masked(text):
    return replace_found(text, find(text, built_in()), mask)


def streamed(text, cuts):
    stream = DataStream(built_in(), mask)
    places = [0, *sorted(cuts), len(text)]
    return "".join([*[stream.feed(text[a:b]) for a, b in pairwise(places)], stream.end()])


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
def test_data_of_every_kind_is_found_in_the_forms_in_which_people_write_it(kind, text):
    assert {one.kind for one in find(text, built_in())} == {kind}


def test_data_of_every_kind_has_an_example():
    assert set(FOUND) == set(KINDS) == {form.kind for form in built_in()}


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_data_that_only_looks_like_it_is_left(text):
    assert masked(text) == text


@pytest.mark.parametrize(
    "number",
    [
        "415-555-2671x89",
        "(415) 555-2671 ext. 4321",
        "+1-415-555-2671;ext=4321",
        "+44 20 7946 0018 extension 12",
        "0121 234 5678 x667",
        "０３－１２３４－５６７８（内線１２３）",
        "090-1234-5678 内線番号：45",
        "001-415-555-2671",
        "00 44 20 7946 0018",
        "011 81 3-1234-5678",
        "010-1-415-555-2671",
    ],
)
@pytest.mark.parametrize("around", ["Call {} today", "電話は{}です。", "Tel {}, thanks"])
def test_phone_number_with_an_extension_or_a_prefix_for_abroad_is_found_as_a_whole(number, around):
    assert masked(around.format(number)) == around.format("[phone]")


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, *nightly(1)])
def test_stream_cut_at_every_place_shows_what_the_whole_text_shows(step):
    lines = [line for line in WHOLE.split("\n") if line]
    for text in [f"{one}。{other}" for one, other in pairwise(lines)][::step]:
        expected = masked(text)
        for cut in range(1, len(text)):
            assert streamed(text, [cut]) == expected, (text, cut)
        assert streamed(text, range(1, len(text))) == expected


@given(st.lists(st.sampled_from([*WHOLE.split("\n"), " ", "、", "1", "-", "\u200b", "か\u3099", "＠"]), max_size=6), st.data())
@tries(120)
def test_stream_cut_anywhere_never_shows_more_than_the_whole_text(pieces, data):
    text = "".join(pieces)
    cuts = data.draw(st.sets(st.integers(0, len(text)), max_size=12))
    assert streamed(text, cuts) == masked(text)


def test_stream_holds_back_nothing_that_cannot_become_personal_data():
    stream = DataStream(built_in(), mask)
    assert stream.feed("今日は良い天気です。") == "今日は良い天気です。"
    assert stream.feed("番号は4111 1111") == "番号は"
    assert stream.feed(" 11円") == "4111 1111 11円"


def test_sanitize_data_masks_texts_numbers_and_values_whose_key_says_what_they_are():
    data = {"to": ["a@b.example", 4111111111111111], "passport_number": "TK1234567", "order": "TK1234567", "n": 3, "ok": True}
    assert sanitize_data(data) == {
        "to": ["[email]", "[card]"],
        "passport_number": "[passport]",
        "order": "TK1234567",
        "n": 3,
        "ok": True,
    }
    assert data["to"][0] == "a@b.example"


def test_sanitize_data_takes_kinds_or_patterns_and_refuses_what_it_does_not_know():
    assert sanitize_data("a@b.example 192.0.2.1", ["ip"]) == "a@b.example [ip]"
    assert sanitize_data("E123456 a@b.example", {"employee": r"E[0-9]{6}"}) == "[employee] a@b.example"
    assert sanitize_data("社員番号Ａ１２", {"employee": "番号Ａ[0-9]+"}) == "社員[employee]"
    with pytest.raises(ConfigError, match="email"):
        sanitize_data("x", ["emial"])
    with pytest.raises(ConfigError):
        sanitize_data("x", {"employee": "("})


def test_stream_holds_back_a_match_that_is_open_before_one_that_is_complete():
    forms = (DataForm("x", regex.compile("a[a-z0-9]{0,5}z|b")),)
    stream = DataStream(forms, mask)
    assert stream.feed("ab1") == ""
    assert stream.feed("z.") + stream.end() == "[x]."
