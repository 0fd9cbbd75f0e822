"""The words: records, codec, fold, values. Properties that hold for any of them."""

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname.core import events as facts
from kaname.core.chunks import chunks_of
from kaname.core.codec import decode, decode_body, dump, encode, encode_body
from kaname.core.durations import backoff, dollars, read_count, retry_after, seconds
from kaname.core.errors import ConfigError, JournalCorrupt
from kaname.core.events import Event
from kaname.core.messages import Media, Message, ModelReply, Provided, Text, Thinking, ToolCall, ToolResult, Usage
from kaname.core.openai_shape import from_openai, to_openai
from kaname.core.record import field, record, replace
from kaname.core.runs import RunInfo, index
from kaname.core.state import State, evolve
from kaname.core.steps import CallModel, Stop
from kaname.core.tokens import estimate_tokens, quarter_tokens
from kaname.core.values import identity, read_json, unescape_json
from kaname.testing import samples
from tests.parts import assert_valid_history
from tests.properties import tries

words = st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(words, json_values, max_size=3)
usages = st.builds(Usage, st.integers(0, 99), st.integers(0, 99), st.integers(0, 9), st.none() | st.floats(0, 9))
calls = st.builds(ToolCall, words, words, objects | words)
media = st.builds(Media, words, words, words, words)
results = st.builds(
    ToolResult,
    json_values,
    st.none() | words,
    words,
    words,
    st.none() | words,
    st.lists(media, max_size=2).map(tuple),
    words,
    usages,
)
provided = st.builds(Provided, words, objects)
parts = provided | st.builds(Text, words) | media | st.builds(Thinking, words, words) | calls | results
messages = st.builds(Message, st.sampled_from(["user", "assistant", "system", "tool"]), st.lists(parts, max_size=4).map(tuple))
replies = st.builds(ModelReply, messages, st.sampled_from(["tool_use", "end_turn", None]), usages, words)
asks = st.builds(CallModel, st.booleans(), st.none() | objects, words)
stops = st.builds(Stop, st.sampled_from(["completed", "failed"]), words, words)
bodies = (
    st.builds(facts.Opened, words, words, st.none() | st.tuples(words, st.integers(1, 9)), objects)
    | st.builds(facts.Resumed, st.integers(1, 9), st.booleans())
    | st.builds(facts.Received, messages)
    | st.builds(facts.Noted, messages)
    | st.builds(facts.ModelReplied, replies, asks, words)
    | st.builds(facts.ToolStarted, calls, st.sampled_from(["pure", "irreversible"]), words, st.integers(1, 9))
    | st.builds(facts.ToolFinished, results)
    | st.builds(facts.Asked, words, words, st.lists(words, max_size=2).map(tuple), words, st.booleans())
    | st.builds(facts.Answered, words, json_values)
    | st.builds(facts.HandedOff, words)
    | st.builds(facts.Warned, words, words)
    | st.builds(facts.Stopped, stops, json_values)
    | st.builds(facts.Unknown, words.filter(lambda name: name not in dir(facts)), json_values)
)


@given(bodies)
def test_a_fact_survives_the_codec(body):
    assert decode_body(*encode_body(body)) == body
    event = Event("run", 7, 1.5, "agent", body)
    line = encode(event)
    assert "\n" not in line
    assert decode(line) == event
    line.encode("utf-8")


def test_half_a_surrogate_pair_can_be_stored():
    body = facts.Warned("x", "broken \ud83d emoji")
    line = encode(Event("r", 1, 1.0, "a", body))
    line.encode("utf-8")
    assert decode(line).body == body


def test_a_fact_from_the_future_survives_and_changes_nothing():
    line = '{"v":9,"run":"r","seq":3,"time":1.0,"agent":"a","type":"Dreamed","body":{"of":["sheep"]}}'
    event = decode(line)
    assert event.body == facts.Unknown("Dreamed", {"of": ["sheep"]})
    assert json.loads(encode(event))["body"] == {"of": ["sheep"]}
    state = evolve(State(), event)
    assert (state.messages, state.seq) == ([], 3)
    assert chunks_of(event)[0]["status"] == "unknown"


def test_an_unknown_field_is_ignored_and_a_missing_one_has_its_default():
    body = decode_body("ToolStarted", '{"call": {"id": "c", "name": "n", "mood": "good"}, "since": 5}')
    assert body == facts.ToolStarted(ToolCall("c", "n", {}))


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '{"message": 5}', '{"message": {"role": "user", "parts": [{"type": "hologram"}]}}']
)
def test_what_cannot_be_read_is_said_to_be_damaged(text):
    with pytest.raises(JournalCorrupt, match="Received"):
        decode_body("Received", text)
    with pytest.raises(JournalCorrupt):
        decode(text or "x")


def test_every_fact_has_a_chunk():
    for event in samples.events():
        made = chunks_of(event)
        assert made
        for chunk in made:
            json.dumps(dict(chunk))
            assert isinstance(event.body, facts.Delta) or chunk["data"]["fact"] == event.seq
    assert {type(body) for body in samples.bodies()} == set(facts.Body.__args__), "the samples leave a fact out"


@given(st.lists(bodies, max_size=30))
@tries(250)
def test_the_fold_is_total_and_the_history_is_always_valid(sequence):
    """Whatever is folded, nothing raises, and the fold of a prefix is a prefix of the fold."""
    state, card = State(), RunInfo("r")
    sizes = []
    for number, body in enumerate(sequence, 1):
        event = Event("r", number, float(number), "agent", body)
        evolve(state, event)
        index(card, [event])
        sizes.append(len(state.messages))
        _ = state.history, state.pending, state.waiting
    assert sizes == sorted(sizes)
    assert (state.seq, card.seq) == (len(sequence), len(sequence))


reply_calls = st.lists(st.lists(st.sampled_from(["finish", "start", "leave"]), max_size=3), min_size=1, max_size=6)


@given(reply_calls, st.booleans())
def test_whatever_was_left_unfinished_the_next_turn_begins_with_a_valid_history(turns, stop):
    state, seq = State(), 0

    def fold(body):
        nonlocal seq
        seq += 1
        evolve(state, Event("r", seq, float(seq), "agent", body))

    for number, ends in enumerate(turns):
        fold(facts.Received(Message("user", (Text("go"),))))
        made = [ToolCall(f"c{number}_{place}", "t", {}) for place in range(len(ends))]
        fold(facts.ModelReplied(ModelReply(Message("assistant", (Text("ok"), *made)), "tool_use"), CallModel()))
        for made_call, end in reversed(list(zip(made, ends, strict=True))):
            if end != "leave":
                fold(facts.ToolStarted(made_call))
            if end == "finish":
                fold(facts.ToolFinished(ToolResult("done", call_id=made_call.id, name="t")))
        assert_valid_history(state.history)
        if stop:
            fold(facts.Stopped(Stop("cancelled")))
        assert_valid_history(state.history)


def test_working_time_leaves_out_the_waiting():
    state = State()
    times = [
        (0.0, facts.Opened()),
        (1.0, facts.Received(Message("user", ()))),
        (3.0, facts.Warned("x", "y")),
        (4.0, facts.Asked("k", "?")),
        (100.0, facts.Answered("k", "yes")),
        (101.0, facts.Warned("x", "y")),
        (900.0, facts.Resumed(2)),
        (901.5, facts.Warned("x", "y")),
    ]
    for number, (time, body) in enumerate(times, 1):
        evolve(state, Event("r", number, time, "a", body))
    assert state.spent.seconds == 3 + 1 + 1.5


@given(json_values)
def test_identity_is_equality_by_value(value):
    respelled = json.loads(json.dumps(value, sort_keys=True, indent=3))
    assert identity(value) == identity(respelled)
    hash(identity(value))


def test_identity_tells_apart_what_is_different():
    values = [1, True, "1", [1], {"a": 1}, None, 0, False, "", [], {}, {"a": True}, [[1]], "None"]
    assert len({identity(value) for value in values}) == len(values)
    assert identity({"a": 1, "b": 2.0}) == identity({"b": 2, "a": 1.0})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ("{'a': 'it is', 'b': True, 'c': None}", {"a": "it is", "b": True, "c": None}),
        ('{"a": [1, 2,], }', {"a": [1, 2]}),
        ('{"a": "keep, }this"}', {"a": "keep, }this"}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```\n{"a": "```"}\n```', {"a": "```"}),
        ('"just text"', "just text"),
        ('{"town": "京都",}', {"town": "京都"}),
    ],
)
def test_what_models_write_is_read_where_there_is_one_reading(text, value):
    assert read_json(text) == value


@pytest.mark.parametrize(
    "text", ["", "{", "{a: 1}", '{"a": 1} {"b": 2}', "__import__('os')", "{1, 2}", "[" * 100_000, "('a',)"]
)
def test_what_has_no_single_reading_is_refused(text):
    with pytest.raises(ValueError, match=r"not valid JSON|nested"):
        read_json(text)


@given(st.text(alphabet="{}[]\",':01 \\\n`ntrue", max_size=60))
def test_reading_raises_nothing_but_value_errors(text):
    try:
        json.dumps(read_json(text))
    except ValueError:
        return


@given(st.builds(Message, st.just("user"), st.lists(st.builds(Text, words.filter(bool)), min_size=1, max_size=1).map(tuple)))
def test_openai_shapes_go_both_ways(message):
    assert from_openai(to_openai(message)) == message


def test_pictures_in_the_openai_shape():
    message = Message("user", (Text("what is it?"), Media("image/png", data="aGk=")))
    assert from_openai(to_openai(message)) == message
    with pytest.raises(ConfigError, match="not supported"):
        from_openai({"role": "user", "content": [{"type": "smell"}]})


def test_records_are_values():
    @record
    class Point:
        x: int
        tags: dict = field(factory=dict)

    one, other = Point(1), Point(x=1)
    assert one == other
    assert one.tags is not other.tags
    assert repr(one).endswith("Point(x=1, tags={})")
    assert replace(one, x=2) == Point(2)
    assert Point(1) != Point(2)
    assert one != (1, {})
    with pytest.raises(AttributeError, match="cannot be changed"):
        one.x = 5
    with pytest.raises(AttributeError):
        one.y = 5
    with pytest.raises(TypeError):
        Point()
    usage = Usage(1, 2, 3, None)
    assert pickle.loads(pickle.dumps(usage)) == copy.deepcopy(usage) == usage
    assert hash(usage) == hash(Usage(1, 2, 3, None))


def test_unknown_cost_stays_unknown():
    assert (Usage(1, 1, 0, 0.5) + Usage(1, 1, 0, None)).cost is None
    assert (Usage(1, 2, 3, 0.5) + Usage(1, 1, 0, 0.25)) == Usage(2, 3, 3, 0.75)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90.0),
        ("0", None),
        (90, 90.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("1.5 s", 1.5),
        ("5 min", 300.0),
        ("1 hour 30 minutes", 5400.0),
        ("2 moons", None),
        ("", None),
        (0, None),
        ("-5s", None),
    ],
)
def test_durations(text, value):
    if value is None:
        with pytest.raises(ConfigError, match="is not a (valid )?duration"):
            seconds(text)
    else:
        assert seconds(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("100", 100), ("1,000", 1000), ("1_000", 1000), ("1.5k", 1500), ("2M", 2e6), ("5,00", None), ("1.5.2", None), ("k", None)],
)
def test_counts(text, value):
    assert read_count(text) == value


def test_pauses_grow_up_to_the_longest():
    assert [backoff(failures, 0.5, 3.0) for failures in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff(10_000, 0.5) == 0.5 * 2.0**60
    assert all(0.75 <= backoff(1, 1.0, jitter=0.25) <= 1.0 for _ in range(100))


def test_retry_after():
    assert retry_after({"retry-after": "2", "retry-after-ms": "1500"}) == 1.5
    assert retry_after({"retry-after": "Thu, 01 Jan 2015 00:00:00 GMT"}) == 0.0
    assert retry_after({"retry-after": "nan"}) is None
    assert retry_after({}) is None


def test_tokens_of_pieces_add_up():
    assert [estimate_tokens(text) for text in ("", "a", "abcd", "abcde", "ab日本", "é")] == [0, 1, 1, 2, 3, 1]
    assert sum(map(quarter_tokens, ("ab", "日", "cé"))) == quarter_tokens("ab日cé") == 8


def test_money():
    assert (dollars("$1"), dollars("$0.25"), dollars(3), dollars("2 USD")) == (1.0, 0.25, 3.0, 2.0)
    for wrong in ("1€", "much", -1, True):
        with pytest.raises(ConfigError):
            dollars(wrong)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{'a': 'it''s'}", "two strings stand side by side"),
        ("{'sql': 'SELECT * FROM t WHERE name = ''Ken'''}", "two strings stand side by side"),
        ("{'a':\n 'x'\n 'y'}", "two strings stand side by side"),
        ('{"n": 1} # {"n": 2}', "is not part of it"),
        ("{'n': 1,  # one\n 'm': 2}", "is not part of it"),
    ],
)
def test_read_json_does_not_choose_between_two_readings(written, told):
    with pytest.raises(ValueError, match=told):
        read_json(written)


def test_a_chunk_is_json_and_an_event_of_a_stream():
    import json

    from kaname.core.chunks import Chunk

    chunk = Chunk(0.0, "guide", "tool_call", {"name": "add", "fact": 7}, 2)
    plain = {"time": "1970-01-01T00:00:00.000Z", "agent": "guide", "type": "tool_call", "data": chunk.data, "seq": 2}
    assert json.loads(json.dumps(chunk)) == dict(chunk) == {**chunk} == plain == chunk
    assert (chunk["name"], chunk.get("nothing"), "name" in chunk, "nothing" in chunk) == ("add", None, True, False)
    assert chunk.to_sse() == f"event: tool_call\ndata: {json.dumps(plain)}\n\n", "its fact is not over with it"
    assert Chunk(0.0, "guide", "usage", {"fact": 7}, 3).to_sse().startswith("id: 7\nevent: usage\n")
    with pytest.raises(TypeError, match="cannot be changed"):
        chunk["seq"] = 3


@given(
    st.recursive(
        st.text(max_size=8) | st.floats(allow_nan=False) | st.none(),
        lambda held: st.lists(held) | st.dictionaries(st.text(max_size=4), held),
    )
)
def test_json_without_escapes_says_the_same(value):
    written = json.dumps(value)
    read = unescape_json(written)
    assert json.loads(read) == value
    if (text := json.dumps(value, ensure_ascii=False)).isprintable() and "\\" not in text:
        assert read == text


def test_a_text_that_is_no_json_keeps_its_escapes():
    for text in (r"see \u305f", r"C:\users\u305f", r'{"a": "\\u305f"}', r'{"a": "\u0022\u0000\ud83d"}'):
        assert unescape_json(text) is text or unescape_json(text) == text
    assert unescape_json(r'{"a": "\\\u305f"}') == '{"a": "\\\\た"}'


@given(st.text(st.characters(), max_size=10))
def test_half_a_character_does_not_escape_the_others(text):
    assert json.loads(dump([text, "た\ud83d"])) == json.loads(json.dumps([text, "た\ud83d"]))
    assert "た" in dump([text, "た\ud83d"])
