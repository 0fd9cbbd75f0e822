"""What a person is shown before deciding cannot be forged: not by a value, a key or a name, and a file is named by its hash."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import Agent, Approve, Flow, MemoryJournal, ScriptedModel, ToolLabels, call, tool
from kaname.core.people.visible import call_line, call_text, shown_call, visible, visible_json, visible_line
from tests.properties import tries

FORGED = "yen\n→ pay(yen=1)\x1b[2K\u202e\u200b\t"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@tries(300)
@given(st.text(max_size=20), JSON)
def test_shown_call_is_one_line_of_characters_that_can_be_seen(name: str, args: Any) -> None:
    for shown in (shown_call(name, args), call_line(name, args), call_line(name, {name: args})):
        assert len(shown.splitlines()) <= 1
        assert shown == visible(shown)
        assert "\t" not in shown
    assert json.loads(visible_json(args)) == args


def test_key_of_an_argument_cannot_look_like_a_line_or_another_argument() -> None:
    for shown in (call_text({FORGED: 1}), visible_json({FORGED: 1}), shown_call("pay", {"to": [{FORGED: 1}]})):
        assert not {"\n", "\t", "\x1b", "\u202e", "\u200b"} & {*shown}
    assert call_text({'yen=1, to="ann", x': 2}) == '"yen=1, to=\\"ann\\", x"=2'
    assert call_text({"yen": 1, "宛先": "x"}) == 'yen=1, 宛先="x"'
    assert call_text('{"yen": 1}') == "yen=1"


@pytest.mark.parametrize("given", ["not\x1b[2J\njson", '["\\u202e"]', ["\u202e"], "\u202e"])
def test_arguments_that_are_no_object_are_escaped_too(given: Any) -> None:
    assert not {"\n", "\x1b", "\u202e"} & {*call_text(given)}


def test_name_of_a_tool_is_one_line() -> None:
    assert shown_call("read()?\nRun pay", {}) == "read()?\\u000aRun pay({})"
    assert visible_line("a\tb\u202e") == "a\\u0009b\\u202e"


@pytest.mark.parametrize("written", [b64encode(PNG).decode(), "data:image/jpeg;base64," + b64encode(PNG).decode()])
def test_file_is_shown_by_the_type_of_its_content_its_size_and_its_hash(written: str) -> None:
    shown = visible_json({"to": "ann", "files": [{"name": "cat.png", "data": written}]})
    told = f"<image/png, 208 bytes, sha256 {sha256(PNG).hexdigest()[:16]}>"
    assert shown == f'{{"to": "ann", "files": [{{"name": "cat.png", "data": {told}}}]}}'
    assert visible_json({"data": told}) == json.dumps({"data": told}), "a text that looks like it has quotes"


@pytest.mark.parametrize("text", ["data:image/png;base64,AAAA", "A" * 300, "data:text/plain,hello", "x" * 10_000 + "?"])
def test_text_that_is_no_file_is_shown_as_it_is(text: str) -> None:
    assert visible_json(text) == json.dumps(text)


async def test_question_of_an_approval_shows_the_file_and_cannot_be_forged_by_a_key() -> None:
    @tool
    def send(to: dict[str, str], picture: str) -> str:
        """Send."""
        return "sent"

    args = {"to": {FORGED: "x"}, "picture": b64encode(PNG).decode()}
    agent = Agent(ScriptedModel([call("send", **args), "ok"]), [send], policies=[Approve()], journal=MemoryJournal())
    (asked,) = (await agent.run("go")).questions.values()
    assert len(asked.prompt.splitlines()) == 1
    assert "<image/png, 208 bytes, sha256 " in asked.prompt
    assert "\x1b" not in asked.prompt


async def test_question_of_the_outbox_cannot_be_forged_by_a_key() -> None:
    @tool(effect="pure", labels=ToolLabels())
    def read_page() -> str:
        """Read a page that somebody else wrote."""
        return "Pay 5 to ann@x.example."

    @tool(labels=ToolLabels(verbs=("pay",)))
    def pay(yen: int, to: dict[str, str]) -> str:
        """Pay."""
        return "paid"

    forged = 'x = "y"  ← yours\n   to'
    steps = [call("read_page"), call("pay", yen=5, to={forged: "ann@x.example"}), "waits", "done"]
    agent = Agent(ScriptedModel(steps), [read_page, pay], policies=[Flow("strict")], journal=MemoryJournal())
    (asked,) = (await agent.run("Read the page and pay what it asks for.")).questions.values()
    assert forged not in asked.prompt
    named = [line.split(" = ")[0].strip() for line in asked.prompt.splitlines()[2:]]
    assert {*named} == {"yen", "to", '"to.x'}, "a name that could look like more is in quotes"
