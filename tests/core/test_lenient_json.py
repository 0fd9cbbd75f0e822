"""JSON as models write it: repaired where there is exactly one reading, refused with the reason where there are two."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kaname import Agent, tool
from kaname.core.errors import BadArguments
from kaname.core.messages import ModelReply, ToolCall, ToolSpec, assistant
from kaname.core.reading.lenient_json import TwoReadings, lenient_json, strict_json
from kaname.core.values import read_json
from kaname.models.http.provider import parse_arguments
from kaname.models.prompted.inline_calls import written_call
from kaname.models.prompted.react.parse import read_reply
from kaname.testing import ScriptedModel
from tests.parts import SOURCE

# No double quotes: written without escaping, they would end the text, and that may be valid JSON of another kind
_RICH = st.text(alphabet="\\\\\\\\nftbru0041xaNdwsU'/ .,:{}[]\n\t`$é京", max_size=12)
_OBJECTS = st.dictionaries(
    st.text(alphabet="ab\\n,: ", min_size=1, max_size=3), _RICH | st.lists(_RICH, max_size=2), max_size=3
)


def unescaped(value, quote='"'):
    """Write an object as a model does that does not know of escapes."""
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, list):
        return "[" + ", ".join([unescaped(one, quote) for one in value]) + "]"
    return "{" + ", ".join([f"{unescaped(name, quote)}: {unescaped(one, quote)}" for name, one in value.items()]) + "}"


def is_valid(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(_OBJECTS)
@example({"path": "C:\\data\\new"})
@example({"tex": "\\alpha \\frac"})
@example({"one": "C:\\dir\\", "two": "x\\"})
@example({"a": "\\", ",": "\\"})
@example({"a": "x\n\\n"})
def test_an_object_written_without_escaping_is_read_exactly_or_refused(value):
    text = unescaped(value)
    try:
        got = read_json(text)
    except ValueError:
        return
    assert got == (json.loads(text) if is_valid(text) else value), "valid JSON has the reading of the standard"


@given(_OBJECTS, st.sampled_from(["\\d", "\\w", "\\Users", "\\京"]))
def test_an_invalid_escape_makes_every_other_backslash_unclear_in_any_quotes(value, shown):
    value = {**value, "shown": shown}
    for quote in ('"', "'"):
        text = unescaped(value, quote)[:-1] + ",}"
        try:
            got = read_json(text)
        except ValueError:
            continue
        assert got == value


@given(st.recursive(st.none() | st.booleans() | st.integers() | _RICH, lambda one: st.lists(one) | st.dictionaries(_RICH, one)))
def test_json_and_the_literals_of_python_are_read_exactly(value):
    assert read_json(json.dumps([value])) == [value]
    assert read_json(json.dumps([value], ensure_ascii=False, indent=2)) == [value]
    if "\\x" not in repr(value):  # an escape that JSON has not
        assert read_json(repr([value])) == [value]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"path": "C:\data"}', "C:\\data"),
        (r'{"path": "C:\Users\Kenji"}', "C:\\Users\\Kenji"),
        (r'{"path": "C:\データ"}', "C:\\データ"),
        (r'{"pattern": "^\d+\s\w$"}', r"^\d+\s\w$"),
        (r'{"command": "grep \"^\d+\" log"}', r'grep "^\d+" log'),
        ('{"code": "if x:\n\tprint(\\"hi\\")"}', 'if x:\n\tprint("hi")'),
        ('{"code": """a\nb"""}', "a\nb"),
        ("{'text': 'it\\'s'}", "it's"),
        ('{“text”: “say "hi"”}', 'say "hi"'),
    ],
)
def test_what_has_one_reading_is_repaired(text, value):
    assert list(read_json(text).values()) == [value]


def test_valid_json_is_read_by_the_standard_even_if_it_was_meant_otherwise():
    assert read_json(r'{"path": "C:\new"}') == {"path": "C:\new"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            r'{"path": "C:\data\new"}',
            r"\\new at line 1, column 18 can be read in two ways, because \\data at line 1, column 13",
        ),
        (r'{"tex": "\alpha \frac"}', r"\\alpha at line 1, column 10 is not a JSON escape"),
        (r'{"share": "\\server\data"}', "can be read in two ways"),
        (r'{"text": "it\'s"}', "is not a JSON escape"),
        (r'{"color": "\x1b[0m"}', "is not a JSON escape"),
        (r'{"path": "C:\users"}', "is not a JSON escape"),
        (r'{"dir": "C:\data\"}', "Invalid|Unterminated"),
        ('{"text": "line\nC:\\new"}', "because a control character at line 1, column 15 is not escaped"),
        ('{"yen": 1, "yen": 1000}', "'yen' is given twice"),
        ('{"pay": {"yen": 1, "yen": 1},}', "'yen' is given twice"),
        ("{'yen': 1, 'yen': 2}", "'yen' is given twice"),
    ],
)
def test_two_readings_are_refused_with_the_place_and_how_to_write_it(text, told):
    with pytest.raises(ValueError, match=told):
        read_json(text)


@pytest.mark.parametrize(
    "text",
    [
        *('{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}', "{'a': nan}", '{"a": 1e999}', '{"a": -1e999,}'),
        *('{"a": 1', '{"a": "x', '{"a": [1, 2', '{"a": tru', '{"a": "x"', '```json\n{"a": 1\n```', '{"a": 1, "b":', '{"a": 1,'),
        *("{a: 1}", '{"a": x}', '{"a": 0x10}', '{"a": 1_000}', '{"a": +1}', '{"a": 01}', '{"a": .5}', '{"a": (1, 2)}'),
        *("{'a': r'C:\\new'}", "{'a': b'x'}", '{"a" 1}', '{"a": 1 "b": 2}', "[1 2]", "[,]", "[1,,]", "{,}", '{"a": undefined}'),
        '{"a": ' + "9" * 5000 + "}",
    ],
)
def test_nothing_is_completed_and_no_other_language_is_guessed(text):
    with pytest.raises(ValueError, match="not valid JSON"):
        read_json(text)


def test_a_key_given_twice_stays_a_text_in_a_providers_reply():
    text = '{"yen": 1, "yen": 1000}'
    assert parse_arguments(text) == text
    assert parse_arguments('{"yen": 123456789012345678901234567890}') == {"yen": 123456789012345678901234567890}
    with pytest.raises(TwoReadings):
        strict_json(text)


_NUMBERS = ("0", "-0", "7", "-1.50", "1e5", "1e999", "2E-3", "12345678901234567890", "0.1234567890123456789", "NaN", "1" * 1001)


@pytest.mark.parametrize("number", _NUMBERS)
@pytest.mark.parametrize(
    "form",
    [
        '{"a": %s}',
        '{"a": [%s], "b": "1e5"}',
        '{"a": {"b": %s}}',
        '{"a": %s, "a": 2}',
        '{"a": {"b": %s, "b": 2}}',
        '{"a": ":", "a": %s}',
        '{"a": %s, "\\u0061": 2}',
        "[%s]",
        ' {"a" :%s} ',
    ],
)
def test_arguments_in_a_providers_reply_are_read_by_the_strict_reader(form, number):
    text = form % number
    try:
        wanted = strict_json(text)
    except ValueError:
        wanted = text
    assert repr(parse_arguments(text)) == repr(wanted if isinstance(wanted, dict) else text)


def test_repairing_is_linear():
    for text in ('{"a": "' + '\\"' * 100_000, "{'a': " + '"" ' * 70_000, '{"a": ' + '"""' * 70_000, "[" + "1, " * 100_000):
        with pytest.raises(ValueError, match="not valid JSON"):
            lenient_json(text)


@tool
def delete(path: str) -> str:
    """Delete a folder."""
    return f"deleted {path}"


@tool
def pay(orders: list[dict[str, str]], yen: float = 1.0) -> str:
    """Pay."""
    return f"paid {yen} for {orders}"


async def test_an_irreversible_tool_never_gets_an_argument_made_of_backslashes():
    wrong = ToolCall("c", "delete", r'{"path": "C:\data\new"}')
    right = ToolCall("d", "delete", {"path": "C:\\data\\new"})
    agent = Agent(ScriptedModel([wrong, right, "done"]), [delete], journal="memory")
    run = agent.run("delete it")
    results = [chunk async for chunk in run if chunk.type == "tool_response"]
    told = [str(chunk.data) for chunk in results]
    assert "can be read in two ways" in told[0], "the model is told why, and how to write it"
    assert "deleted C:\\\\data\\\\new" in told[1]
    assert "deleted" not in told[0]


def test_json_inside_an_argument_is_refused_alike():
    with pytest.raises(BadArguments, match="can be read in two ways"):
        pay.prepare(ToolCall("c", "pay", {"orders": r'[{"file": "C:\data\new"}]'}))
    for amount in ("NaN", "inf", "1e999"):
        with pytest.raises(BadArguments, match="finite number"):
            pay.prepare(ToolCall("c", "pay", {"orders": [], "yen": amount}))


_TOOLS = {"delete": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}


@pytest.mark.parametrize(
    "reply",
    [
        'Action: delete\nAction Input: {"path": "C:\\data\\new"}',
        'Action: delete\nAction Input: "C:\\data\\new"',
        "Action: delete\nAction Input: 'C:\\new'",
        'Action: delete\nAction Input: path: "C:\\data\\new"',
        'Action: delete(path="C:\\data\\new")',
        'Action: delete(path="C:\\Users\\new")',
        'Action: delete["C:\\data\\new"]',
        'Action: {"tool": "delete", "args": {"path": "C:\\data\\new"}}',
        '{"action": "delete", "action_input": {"path": "C:\\data\\new"}}',
        '{"action": "delete", "action_input": "{\\"path\\": \\"C:\\\\data\\\\new\\"}"}',
        '<tool_call>{"name": "delete", "arguments": {"path": "C:\\data\\new"}}</tool_call>',
        'Action: delete\nAction Input: {"path": "x", "path": "y"}',
    ],
)
def test_react_asks_again_where_there_are_two_readings(reply):
    for careful in ((), ("delete",)):
        reading = read_reply(reply, _TOOLS, careful)
        assert not reading.action, reading
        assert reading.problem


def test_react_names_the_place():
    assert "\\new at line 1, column 18" in read_reply('Action: delete\nAction Input: {"path": "C:\\data\\new"}', _TOOLS).problem
    assert read_reply('Action: delete\nAction Input: {"path": "C:\\data"}', _TOOLS).args == {"path": "C:\\data"}
    assert read_reply("Action: delete\nAction Input: C:\\data\\new", _TOOLS).args == {"path": "C:\\data\\new"}, (
        "plain text is plain"
    )


async def test_a_call_written_into_the_text_is_told_why_it_is_not_run():
    text = '{"name": "delete", "arguments": {"path": "C:\\data\\new"}}'
    spec = ToolSpec(delete.name, delete.description, delete.parameters)
    call = written_call(ModelReply(assistant(text)), (spec,))
    assert call is not None
    with pytest.raises(BadArguments, match="can be read in two ways"):
        delete.prepare(call)
    assert written_call(ModelReply(assistant(text), "max_tokens"), (spec,)) is None


def test_patterns_use_no_possessive_groups_which_python_before_3_11_5_reads_wrongly():
    """`(?:…)*+` does not go back to the end of its last whole round there. Write `(?>(?:…)*)`, which means the same."""
    modules = [(path, path.read_text(encoding="utf-8")) for path in Path(SOURCE, "kaname").rglob("*.py")]
    standard = [(path, text) for path, text in modules if re.search(r"^import re$", text, re.M) and "import regex" not in text]
    assert standard
    assert [path.name for path, text in standard if re.search(r"[^(\\]\)[*+?]\+", text)] == []
