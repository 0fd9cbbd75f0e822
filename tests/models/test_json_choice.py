"""Tools for models that cannot call any: by JSON that the server holds to a schema. The server here plays the model."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from kaname import Agent, ConfigError, ModelError, tool
from kaname.models import OpenAI
from kaname.models.prompted.answer_stream import AnswerStream
from kaname.models.prompted.choice_schema import choice_schema
from kaname.testing import WireServer
from kaname.testing.wire import reply, status
from kaname.tools.registry import as_action
from tests.parts import add, chunks


def says(**fields):
    return reply(json.dumps(fields, ensure_ascii=False), pieces=7)


def call(name, /, **args):
    return says(tool=name, args=args)


def answer(text):
    return says(tool="answer", text=text)


async def run(script, tools=(add,), question="1 + 2?", **more):
    async with WireServer(script) as server:
        given = {"tool_mode": "constrained", "plan_first": False, **more}
        model = OpenAI("small", base_url=server.url, api_key="k", **given)
        agent = Agent(model, tools, journal="memory", instructions="Be brief.")
        seen = await chunks(agent.run(question))
        await agent.close()
    return seen, server


def text_of(seen):
    return "".join(chunk.data["content"] for chunk in seen if chunk.type == "delta")


async def test_a_call_and_an_answer_and_never_the_json_around_them():
    seen, server = await run([call("add", a=1, b=2), answer('3, "三" \\ 😀\nso')])
    assert text_of(seen) == '3, "三" \\ 😀\nso'
    assert [chunk.data["content"] for chunk in seen if chunk.type == "tool_response"] == [3]
    first, second = server.requests
    assert "tools" not in first
    assert first["response_format"]["json_schema"]["schema"]["anyOf"][0]["properties"]["tool"] == {"const": "add"}
    assert first["messages"][0]["content"].startswith("Be brief.")
    assert "- add: " in first["messages"][0]["content"]
    assert json.loads(second["messages"][2]["content"]) == {"tool": "add", "args": {"a": 1, "b": 2}}
    assert second["messages"][3]["content"].startswith("Result of add: 3")
    assert "1 + 2?" in second["messages"][3]["content"], "the question is put again"


async def test_the_same_call_is_not_made_twice():
    ran = []

    @tool(effect="pure")
    def look(name: str) -> str:
        """Look."""
        ran.append(name)
        return "a cat"

    seen, server = await run([call("look", name="x"), call("look", name="x"), answer("a cat"), answer("a cat")], [look])
    assert ran == ["x"]
    assert text_of(seen) == "a cat"
    assert "already called" in server.requests[2]["messages"][-1]["content"]


async def test_after_a_failure_there_is_no_answer_to_choose_and_the_untried_are_named():
    @tool(effect="pure")
    def broken(x: int) -> str:
        """Broken."""
        raise ValueError("out of order")

    _, server = await run([call("broken", x=1), call("broken", x=2), call("add", a=1, b=2), answer("3")], [broken, add])

    def names(request):
        schema = request["response_format"]["json_schema"]["schema"]
        return [form["properties"]["tool"]["const"] for form in schema.get("anyOf", [schema])]

    assert names(server.requests[0]) == ["broken", "add", "answer"]
    assert names(server.requests[1]) == ["broken", "add"]
    assert names(server.requests[2]) == ["add", "answer"], "what failed twice is left out for once"
    assert names(server.requests[3]) == ["broken", "add", "answer"]
    told = server.requests[1]["messages"][-1]["content"]
    assert "out of order" in told
    assert "Not tried yet: add" in told


async def test_nothing_can_be_a_success():
    """A tool that gives nothing back has done its work: nobody is forced to do it again."""
    deleted = []

    @tool
    def delete(name: str) -> None:
        """Delete a file."""
        deleted.append(name)

    seen, server = await run([call("delete", name="a.txt"), answer("done")], [delete])
    forms = server.requests[1]["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [form["properties"]["tool"]["const"] for form in forms] == ["delete", "answer"]
    assert deleted == ["a.txt"]
    assert text_of(seen) == "done"


async def test_earlier_result_is_never_sent_as_the_answer_when_a_model_insists_on_its_call():
    ran = []

    @tool(effect="pure")
    def look(at: str) -> str:
        """Look."""
        ran.append(at)
        return "a cat"

    seen, _ = await run([call("look", at="x")] * 4, [look])
    assert ran == ["x"]
    assert text_of(seen) == ""
    end = seen[-1]
    assert (end.data["kind"], end.data["output"]) == ("incomplete", None)


async def test_last_answer_of_the_model_itself_is_sent_when_it_then_insists_on_a_call():
    @tool(effect="pure")
    def look(at: str) -> str:
        """Look."""
        return "a cat"

    again = call("look", at="x")
    seen, _ = await run([again, answer("It has 77 legs."), again, again], [look], "What is at x?")
    assert text_of(seen) == "It has 77 legs."
    assert seen[-1].data["kind"] == "completed"


@pytest.mark.parametrize(
    ("written", "finish", "shown"),
    [
        ('{"tool": "add", "args": {"a', "length", ""),
        ('{"tool":"answer","args":{"text":"3"}}', "stop", "3"),
        ('{"tool":"answer","text":"3"', "stop", "3"),
        ('{"tool":"answer","text": 3}', "stop", "3"),
    ],
)
async def test_json_is_never_shown_as_an_answer(written, finish, shown):
    seen, _ = await run(lambda _: reply(written, finish=finish))
    assert text_of(seen) == shown


async def test_it_ends():
    """Whatever the model does, it cannot go on for ever: with the last step that the user allows only the answer is left."""
    count = 0

    def script(body):
        nonlocal count
        count += 1
        schema = body["response_format"]["json_schema"]["schema"]
        forms = [form["properties"]["tool"]["const"] for form in schema.get("anyOf", [schema])]
        return call("add", a=count, b=1) if "add" in forms else answer("enough")

    async with WireServer(script) as server:
        model = OpenAI("small", base_url=server.url, api_key="k", tool_mode="constrained")
        from kaname import max_steps, no_repeats, per_tool

        result = await Agent(model, [add], stops=max_steps(30) | no_repeats(None) | per_tool(None), journal="memory").run("go")
        await model.close()
    assert result.output == "enough"
    assert len(server.requests) == 30, "no limit but the user's"


async def test_words_that_are_no_json_are_asked_for_again_and_then_taken():
    seen, server = await run([reply("Well, it is 3."), answer("3")])
    assert text_of(seen) == "3"
    assert '"tool": NAME' in server.requests[1]["messages"][-1]["content"]
    seen, _ = await run(lambda _: reply("It is 3."))
    assert text_of(seen) == "It is 3."


async def test_an_answer_that_was_cut_off_is_kept():
    seen, _ = await run([reply('{"tool": "answer", "text": "a long ans', finish="length")])
    assert text_of(seen) == "a long ans"


async def test_the_mode_is_found_out():
    def script(body):
        if "tools" in body:
            return status(400, "registry.ollama.ai/library/small does not support tools")
        return answer("3") if len(body["messages"]) > 2 else call("add", a=1, b=2)

    seen, server = await run(script, tool_mode="auto")
    assert text_of(seen) == "3"
    assert ["tools" in request for request in server.requests] == [True, False, False], "and it is remembered"

    def neither(body):
        refused = {
            "tools": "tools param requires --jinja flag",
            "response_format": "response_format json_schema is not supported",
        }
        for name, words in refused.items():
            if name in body:
                return status(500 if name == "tools" else 400, words)
        return answer("3") if len(body["messages"]) > 2 else call("add", a=1, b=2)

    seen, _ = await run(neither, tool_mode="auto")
    assert text_of(seen) == "3"
    for words in (
        "'parallel_tool_calls' is not supported with this model",
        "tools[0].function.parameters: the keyword 'oneOf' is not supported",
        "temperature is not supported",
    ):
        with pytest.raises(ModelError, match="not supported"):
            await run(lambda _, words=words: status(400, words), tool_mode="auto")
    with pytest.raises(ModelError, match="paid plan"):
        await run(lambda _: status(401, "tools param requires a paid plan"), tool_mode="auto")
    with pytest.raises(ModelError, match="something else"):
        await run(lambda _: status(400, "something else"), tool_mode="auto")
    with pytest.raises(ConfigError, match="tool_mode must be one of"):
        OpenAI("x", base_url="http://h", tool_mode="magic")


async def test_a_tool_may_be_named_answer():
    @tool(effect="pure", name="answer")
    def reply_to(letter: str) -> str:
        """Answer a letter."""
        return f"sent to {letter}"

    seen, _ = await run([call("answer", letter="Ann"), *[says(tool="final_answer", text="done")] * 2], [reply_to])
    assert text_of(seen) == "done"


def test_definitions_move_to_the_root():
    class Inner(BaseModel):
        kind: str

    @tool(effect="pure")
    def one(item: Inner) -> str:
        """One."""
        return item.kind

    @tool(effect="pure")
    def two(item: list[Inner]) -> str:
        """Two."""
        return ""

    schema = choice_schema((as_action(one), as_action(two)), "answer")
    assert set(schema["$defs"]) == {"one.Inner", "two.Inner"}
    text = json.dumps(schema)
    assert text.count('"#/$defs/one.Inner"') == text.count('"#/$defs/two.Inner"') == 1
    assert all("$defs" not in form["properties"].get("args", {}) for form in schema["anyOf"])


def test_a_schema_that_refers_to_itself_still_does():
    from jsonschema import Draft202012Validator

    from kaname.core.messages import ToolSpec

    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "child": {"$ref": "#"}, "other": {"$ref": "#/properties/name"}},
    }
    schema = choice_schema((ToolSpec("grow", "Grow.", tree),), "answer")
    check = Draft202012Validator(schema).is_valid
    assert check({"tool": "grow", "args": {"name": "a", "child": {"name": "b"}, "other": "c"}})
    assert not check({"tool": "grow", "args": {"name": "a", "child": {"name": 1}}})
    assert not check({"tool": "grow", "args": {"other": 1}})


@given(st.text(), st.lists(st.integers(0, 400), max_size=20), st.booleans())
def test_the_text_of_an_answer_in_any_slices(text, cuts, ascii_only):
    written = json.dumps({"tool": "answer", "text": text}, ensure_ascii=ascii_only)
    stream, shown, start = AnswerStream(), "", 0
    for cut in [*sorted(min(cut, len(written)) for cut in cuts), len(written)]:
        shown += stream.feed(written[start:cut])
        start = cut
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert shown == (whole if whole.strip() else ""), "nothing but spaces is no answer"
    assert stream.feed(' and {"more": "of it"}') == ""


@given(st.text(alphabet='{}"\\toolansweru0: ,é'))
def test_nothing_else_is_shown(text):
    stream = AnswerStream()
    assert "".join([stream.feed(char) for char in text]) == "" or '"answer"' in text
