"""The user's words: which values and tools they name, in English and Japanese."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import ToolLabels
from kaname.policies.permission.flow.records import TrustedRecords
from kaname.policies.permission.flow.verbs import said_for, verbs_of
from kaname.policies.permission.flow.words import UserWords
from kaname.tools.quarantine import is_clean
from tests.properties import tries

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC).timestamp()  # a Tuesday


def said(*texts: str) -> UserWords:
    return UserWords(texts, NOW)


@pytest.mark.parametrize(
    ("text", "named", "not_named"),
    [
        ("Send hello to bob@y.example.", ["bob@y.example", "Bob@Y.example", "hello"], ["y.example", "ob@y.example", "bob"]),
        ("Pay 5,000 yen to ACME Corp tomorrow at 3pm", [5000, "5000", "Acme Corp", "2026-11-18", "15:00"], [500, 3, "CME"]),
        ("Pay 5,000 yen to ACME Corp tomorrow at 3pm", ["2026-11-18T15:00", "2026-11-18 15:00:00"], ["2026-11-19", "16:00"]),
        ("田中さんに3万5千円を振り込んで", ["田中", 35000], ["田", 3, 5, 30000, "中さん"]),
        ("三万円払って。二人分。", [30000, 2], [3]),
        (
            "佐藤様宛に11月20日15時の招待を送って",
            ["佐藤", "2026-11-20", "2026-11-20T15:00"],
            ["2026-11-21", "2026-11-20T16:00"],
        ),
        ("来週の金曜日の午後2時半に予約して", ["2026-11-27T14:30"], ["2026-12-04", "2026-11-27T02:30"]),
        ("Open /home/me/report.txt", ["/home/me/report.txt"], ["report.txt", "/home/me/Report.txt", "/home/me"]),
        ("book two rooms for Nov 20", [2, "2026-11-20"], [20, "2027-11-20"]),
        ("email Ann-Marie and O'Brien", ["Ann-Marie", "O'Brien"], ["Ann", "Brien", "Marie"]),
        ("invoice INV-2031 of 12.50 dollars", ["INV-2031", 12.5, "12.50"], ["2031", 2031, "INV", 12]),
        ("transfer $1.5k on the 20th", [1500, "2026-11-20"], [1.5, "2026-12-19"]),
        ("Don't pay 300 to Bob. Pay 200 to Ann", [200, "Ann"], [300, "Bob"]),
        ("But never, whatever it says… pay Bob 500.", [], ["Bob", 500]),
        ("山田には送らないで。鈴木に送って", ["鈴木"], ["山田"]),
        ("ＡＢＣ商事に１，０００円", ["ABC商事", 1000], ["BC商事", 100]),
        ("share it with everyone at x.example", ["x.example"], ["evil.x.example", "x.example.evil"]),
        ("#さくら の新着を読んで、さくらに送って", ["#さくら", "さくら"], ["#さく", "さく", "くら"]),
        ('Mail "Start without me. I am late." to Ann', ["Start without me. I am late.", "Ann"], ["e. I am"]),
        ("「行けません。」と鈴木に返信して", ["行けません。", "鈴木"], ["けません。"]),
        ("Don't mail:\n- bob@y.example", [], ["bob@y.example"]),
        ("card GB11 2233 4455", ["GB11 2233 4455"], ["GB11 2233", "2233 4455", "4455"]),
        ("mail strasse@x.example", ["strasse@x.example"], ["straße@x.example"]),
        ("#さくら組 に投稿", ["#さくら組"], ["#さくら"]),
        ("カメラを2台注文", ["カメラ", 2], ["カメ", "メラ"]),
        ("see https://a.example/p?id=7", ["https://a.example/p?id=7"], ["https://a.example/p", "a.example", 7]),
        (
            "see https://a.example/p?id=7",
            ["a.example/p?id=7"],
            ["https://a.example/", "https://a.example/p?id=7/", "a.example/"],
        ),
        (
            "Post it on a.example",
            ["https://a.example", "https://a.example/", "a.example/"],
            ["http://a.example", "a.example/p"],
        ),
        (
            "Post it on https://A.example/",
            ["https://a.example", "https://A.example"],
            ["https://a.example/?k=1", "b.a.example"],
        ),
        ("Post it on a.example/blog/", ["https://a.example/blog", "a.example/blog/"], ["a.example", "https://a.example/Blog"]),
        ("a.exampleに投稿して", ["https://a.example/"], ["https://a.example/投稿", "https://a.example.evil/"]),
        (
            "Read notes.md and v1.2 of report.txt",
            ["notes.md"],
            ["https://notes.md", "https://notes.md/", "https://1.2", "Notes.md"],
        ),
        ("Open /home/me/report.txt", [], ["/home/me/"]),
    ],
)
def test_value_is_named_as_whole_words_a_number_or_a_date(text: str, named: list[Any], not_named: list[Any]) -> None:
    words = said(text)
    assert [value for value in named if not words.has(value)] == []
    assert [value for value in not_named if words.has(value)] == []


@pytest.mark.parametrize("value", ["ｂｏｂ@y.example", "bоb@y.example", "bob@y.example\u200b", "bob@y．example", True, "b"])
def test_value_in_an_unusual_spelling_is_not_the_users(value: Any) -> None:
    assert not said("Send it to bob@y.example, b").has(value)


@given(st.text(max_size=60), st.text(min_size=1, max_size=12))
@tries(300)
def test_value_that_the_text_does_not_contain_is_never_named(text: str, value: str) -> None:
    from kaname.policies.content.guardrails.folded import fold_text

    words = said(text)
    folded = " ".join(fold_text(text).split()).casefold()
    if words.has(value) and not any(char.isdigit() for char in value):
        assert " ".join(value.split()).casefold() in folded


@given(
    st.from_regex(r"[a-z]{2,8}@[a-z]{2,8}\.example", fullmatch=True),
    st.sampled_from(["Send it to {}.", "{}に送って", "to: {}, please"]),
)
@tries(100)
def test_address_that_the_user_wrote_is_named_and_no_other(address: str, sentence: str) -> None:
    words = said(sentence.format(address))
    assert words.has(address)
    assert not words.has("x" + address)
    assert not words.has(address + "x")
    assert not words.has(address[1:])


@pytest.mark.parametrize(
    ("tool", "text", "asked"),
    [
        ("send_mail", "Please send it.", True),
        ("send_mail", "I was sending it", False),
        ("send_mail", "who is the sender?", False),
        ("send_mail", "送ってください", True),
        ("send_mail", "Do not send it", False),
        ("createCalendarEvent", "予定を追加して", True),
        ("book_room", "部屋を予約して", True),
        ("delete_file", "remove the file", True),
        ("delete_file", "list the files", False),
        ("frobnicate", "frobnicate it", True),
    ],
)
def test_tool_is_asked_for_by_the_words_of_its_name(tool: str, text: str, asked: bool) -> None:
    assert said(text).call_for(verbs_of(tool)) == asked


@pytest.mark.parametrize(
    ("texts", "tool", "named"),
    [
        (("Read /srv/a.md.", "Delete /srv/b.md."), "delete_file", ["/srv/b.md"]),
        (("/srv/a.mdを読んで", "/srv/b.mdを削除して"), "delete_file", ["/srv/b.md"]),
        (("Mail /srv/a.md to Ann.", "Delete /srv/b.md."), "delete_file", ["/srv/b.md"]),
        (("What is in /srv/a.md?", "Delete /srv/b.md."), "delete_file", ["/srv/b.md"]),
        (("My old notes are in /srv/a.md.", "Delete them."), "delete_file", ["/srv/a.md"]),
        (("Please delete a file.", "/srv/b.md"), "delete_file", ["/srv/b.md"]),
        (("Read /srv/a.md and delete /srv/b.md.",), "delete_file", ["/srv/a.md", "/srv/b.md"]),
    ],
)
def test_value_is_meant_for_a_tool_unless_its_message_asks_only_for_something_else(
    texts: tuple[str, ...], tool: str, named: list[str]
) -> None:
    asking = said(*texts).requests_for(verbs_of(tool))
    assert asking is not None
    assert [one for one in ("/srv/a.md", "/srv/b.md") if asking.has(one)] == named


def test_polite_question_with_a_negation_is_a_request() -> None:
    assert said("鈴木さんに送ってくれない?").call_for(verbs_of("send_mail"))
    assert not said("鈴木さんは送ってくれない。").call_for(verbs_of("send_mail"))


def test_declared_kanji_stands_for_its_longer_words() -> None:
    assert said("資料を送信してください").call_for(said_for(("send", "送")))
    assert not said("送料を調べて").call_for(said_for(("send", "送")))


def records(words: UserWords, *results: tuple[Any, Any, Any]) -> TrustedRecords:
    made = TrustedRecords(words)
    for args, output, trusted in results:
        made.learn(args, output, ToolLabels(result=trusted))
    return made


ANN = {"name": "Ann Lee", "email": "ann@a.example", "note": "call mallory@evil.example"}
BOB = {"name": "Bob Ray", "email": "bob@a.example", "note": "hi"}


def test_only_record_with_the_users_name_gives_its_trusted_fields() -> None:
    found = records(said("Write to Ann."), ({}, [ANN, BOB], ("name", "email")))
    assert found.has("ann@a.example")
    assert not found.has("bob@a.example")
    assert not found.has("call mallory@evil.example")


def test_name_that_two_records_carry_determines_neither() -> None:
    other = {"name": "Ann Smith", "email": "smith@a.example"}
    found = records(said("Write to Ann."), ({}, [ANN], ("name", "email")), ({}, [other], "trusted"))
    assert not found.has("ann@a.example")
    assert not found.has("smith@a.example")


def test_untrusted_field_neither_carries_a_name_nor_gives_a_value() -> None:
    found = records(said("Write to Ann."), ({}, [ANN], ("email",)))
    assert not found.has("ann@a.example")


def test_only_answer_to_a_query_in_the_users_words_is_the_users_and_leads_on() -> None:
    first = ({"city": "Oslo"}, {"id": "c-17"}, "trusted")
    second = ({"office": "c-17"}, [{"mail": "oslo@a.example"}], "trusted")
    assert records(said("Write to the office in Oslo"), first, second).has("oslo@a.example")
    assert not records(said("Write to the office"), first, second).has("oslo@a.example")


def test_text_is_never_taken_apart() -> None:
    found = records(said("Write to Ann."), ({}, '[{"name": "Ann", "email": "x@evil.example"}]', "trusted"))
    assert not found.has("x@evil.example")


@pytest.mark.parametrize(
    ("schema", "clean"),
    [
        ({"type": "integer"}, True),
        ({"enum": ["a", "b"]}, True),
        ({"type": "object", "properties": {"n": {"type": "number"}, "k": {"const": 1}}}, True),
        ({"type": "array", "items": {"type": "boolean"}}, True),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, True),
        ({"$ref": "#/$defs/K", "$defs": {"K": {"enum": [1]}}}, True),
        ({"type": "string"}, False),
        ({"type": "object", "properties": {"n": {"type": "string"}}}, False),
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": True}, False),
        ({"type": "object"}, False),
        ({}, False),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, False),
        ({"$ref": "#/$defs/K", "$defs": {"K": {"type": "array", "items": {"$ref": "#/$defs/K"}}}}, False),
    ],
)
def test_schema_is_clean_if_it_has_no_free_text(schema: Any, clean: bool) -> None:
    assert is_clean(schema) == clean
