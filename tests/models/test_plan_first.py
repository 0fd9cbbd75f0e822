"""A model that is held to a schema plans before its first call. The server here plays the model."""

import json
import sys

import pytest

from kaname import Agent, tool
from kaname.core.messages import ToolResult, ToolSpec
from kaname.models import OpenAI
from kaname.models.prompted.choice_schema import reckons
from kaname.models.prompted.findings import as_facts, is_nought
from kaname.models.prompted.plan_first.plan import read_plan
from kaname.testing import WireServer
from kaname.testing.wire import reply
from tests import warm
from tests.models import test_json_choice as plain
from tests.models.test_json_choice import answer, says, text_of


@tool(effect="pure")
def price(item: str) -> dict:
    """Price and maker of an item."""
    return {"lamp": {"price": 23.9, "maker": "Ada Byron"}}.get(item, {})


@tool(effect="pure")
def people(name: str) -> str:
    """Where a person lives."""
    return "name, town\nAda Byron, Leeds" if name == "Ada Byron" else "No person found."


@tool(effect="pure")
def rules(words: str) -> str:
    """Search the rules of the house."""
    if "seat" not in words:
        raise ValueError("too few words")
    return "A seat costs 64 yen."


@tool(effect="pure")
def reckon(sum: str) -> str:
    """Work out, for example 3*(4+5)."""
    return f"{eval(sum):g}"


TOOLS = (price, people, rules, reckon)


def plan(*steps):
    return says(steps=[{"find": find, "tool": name} for name, find in steps])


def call(name, /, **given):
    return says(tool=name, args=given)


async def run(script, question, tools=TOOLS):
    return await plain.run(script, tools, question, plan_first=True)


def forms_of(request):
    schema = request["response_format"]["json_schema"]["schema"]
    return schema.get("anyOf", [schema])


def offered(request):
    return [form["properties"]["tool"]["const"] for form in forms_of(request)]


def asked(request):
    return request["messages"][-1]["content"]


async def test_each_step_is_asked_for_alone_with_what_is_known_so_far():
    script = [
        plan(("price", "the price of the lamp"), ("reckon", "the price of 146 lamps")),
        call("price", item="lamp"),
        call("reckon", sum="146*23.9"),
    ]
    seen, server = await run([*script, answer("3489.4")], "What do 146 lamps cost?")
    first, second, third, last = server.requests
    assert first["response_format"]["json_schema"]["schema"]["properties"]["steps"]["maxItems"] == 3
    assert offered(second) == ["price"]
    assert "the price of the lamp" in asked(second)
    assert "Known so far" not in asked(second)
    assert "- the price of the lamp: price = 23.9, maker = Ada Byron" in asked(third)
    assert "- the price of 146 lamps: 3489.4" in asked(last)
    assert offered(last) == ["answer"]
    assert {len(request["messages"]) for request in server.requests} == {2}, "the conversation does not grow"
    assert len({request["messages"][0]["content"] for request in server.requests}) == 1, "and begins the same, for the cache"
    shown = ["What do 146 lamps cost?" in asked(request) for request in server.requests]
    assert shown == [True, False, True, True], "a look-up makes conditions of all that stands in the question"
    assert text_of(seen) == "3489.4"
    assert [chunk.data["content"] for chunk in seen if chunk.type == "tool_response"] == [
        {"price": 23.9, "maker": "Ada Byron"},
        "3489.4",
    ]


@pytest.mark.parametrize(("question", "example"), [("Where?", "Ann Lee"), ("どこですか。", "山本花子")])
async def test_example_of_a_plan_is_in_the_language_of_the_question_and_has_other_tools(question, example):
    _, server = await run([plan(("answer", "it")), answer("here")], question)
    told = server.requests[0]["messages"][0]["content"]
    assert example in told
    assert sum([name in told for name in ("Ann Lee", "山本花子")]) == 1


async def test_planned_tool_is_a_guess_and_other_look_ups_are_offered_when_it_finds_nothing():
    script = [plan(("people", "the price of a seat"), ("reckon", "45 seats")), call("people", name="seat")]
    script += [call("rules", words="seat"), step("answer", ""), call("reckon", sum="45*64"), answer("2880")]
    _, server = await run(script, "What do 45 seats cost?")
    assert offered(server.requests[2]) == ["price", "rules"], "what only reckons looks nothing up"
    assert "No person found" not in asked(server.requests[2]), "a failed call is not in sight"
    assert "A seat costs 64 yen." in asked(server.requests[3])


async def test_step_before_another_look_up_asks_for_a_name_too():
    script = [plan(("price", "the maker of the lamp"), ("people", "where the maker lives"), ("reckon", "x"))]
    script += [call("price", item="lamp"), call("people", name="Ada Byron"), call("reckon", sum="1+1"), answer("Leeds")]
    _, server = await run(script, "Where does the maker of the lamp live?")
    assert "finds the name of: the maker of the lamp" in asked(server.requests[1])
    assert "finds: where the maker lives" in asked(server.requests[2]), "a sum needs no name"


async def test_passage_that_answers_two_steps_is_shown_once():
    script = [plan(("rules", "the price of a seat"), ("rules", "the fee"), ("reckon", "all"))]
    script += [call("rules", words="seat"), call("rules", words="seat fee"), call("reckon", sum="45*64"), answer("2880")]
    _, server = await run(script, "What do 45 seats cost?")
    assert asked(server.requests[3]).count("A seat costs 64 yen.") == 1


async def test_failed_call_is_corrected_once_with_its_error_in_sight():
    script = [
        plan(("rules", "the price of a seat")),
        call("rules", words="fees"),
        call("rules", words="seat fee"),
        answer("64"),
    ]
    _, server = await run(script, "What does a seat cost?")
    assert offered(server.requests[2]) == ["rules"]
    assert 'rules failed with {"words":"fees"}: ValueError: too few words' in asked(server.requests[2])
    assert "A seat costs 64 yen." in asked(server.requests[3])


async def test_same_failing_call_again_moves_on_to_look_ups_not_tried():
    script = [plan(("rules", "the maker of the lamp")), *[call("rules", words="maker")] * 2, call("price", item="lamp")]
    _, server = await run([*script, step("answer", ""), answer("Ada Byron")], "Who is the maker of the lamp?")
    assert offered(server.requests[3]) == ["price", "people"]
    assert "too few words" not in asked(server.requests[3])


async def test_call_that_helped_before_and_is_proposed_again_settles_its_step():
    script = [plan(("price", "the lamp"), ("price", "its maker")), *[call("price", item="lamp")] * 2, answer("Ada Byron")]
    seen, server = await run(script, "Who is the maker of the lamp?")
    assert offered(server.requests[3]) == ["answer"]
    assert text_of(seen) == "Ada Byron"
    assert len([chunk for chunk in seen if chunk.type == "tool_response"]) == 1


def step(name, find):
    return says(find=find, tool=name)


async def test_what_is_missing_is_said_again_in_known_names_when_another_tool_helped():
    script = [plan(("people", "the town of the maker of the lamp")), call("people", name="maker"), call("price", item="lamp")]
    script += [step("people", "the town of Ada Byron"), call("people", name="Ada Byron"), answer("Leeds")]
    seen, server = await run(script, "In which town is the maker of the lamp?")
    assert "- price found: price = 23.9, maker = Ada Byron" in asked(server.requests[3])
    assert server.requests[3]["response_format"]["json_schema"]["schema"]["properties"]["tool"]["enum"] == ["people", "answer"]
    assert "finds: the town of Ada Byron" in asked(server.requests[4])
    assert offered(server.requests[4]) == ["people"]
    assert "- the town of Ada Byron: name = Ada Byron, town = Leeds" in asked(server.requests[5])
    assert text_of(seen) == "Leeds"


async def test_what_is_missing_is_looked_up_before_it_is_reckoned_with():
    script = [
        plan(("price", "the price of 3 lamps"), ("reckon", "3 lamps")),
        call("price", item="3 lamps"),
        call("rules", words="seat"),
    ]
    script += [step("price", "the price of the lamp"), call("price", item="lamp"), call("reckon", sum="3*23.9"), answer("71.7")]
    seen, server = await run(script, "What do 3 lamps cost?")
    assert "finds: the price of the lamp" in asked(server.requests[4])
    assert offered(server.requests[5]) == ["reckon"], "and then the plan goes on"
    assert text_of(seen) == "71.7"


@pytest.mark.parametrize("rest", [("answer", "nothing"), ("people", "the maker of the lamp"), ("people", "")])
async def test_nothing_is_added_when_nothing_is_missing(rest):
    script = [plan(("people", "the maker of the lamp")), call("people", name="x"), call("price", item="lamp"), step(*rest)]
    seen, server = await run([*script, answer("Ada Byron")], "Who is the maker of the lamp?")
    assert offered(server.requests[4]) == ["answer"]
    assert text_of(seen) == "Ada Byron"


async def test_nothing_can_be_answered_while_a_step_is_open_and_a_look_up_untried():
    script = [plan(("people", "x")), call("people", name="x"), call("price", item="x"), call("rules", words="x")]
    _, server = await run([*script, call("people", name="y"), *[answer("not known")] * 3], "What is x?")
    forms = [offered(request) for request in server.requests[1:]]
    assert forms[:4] == [["people"], ["price", "rules"], ["rules"], ["people"]], "and the planned one once more"
    assert "answer" in forms[4]


async def test_call_for_a_step_uses_only_names_of_the_question_and_of_what_is_known():
    script = [
        plan(("people", "where the maker lives")),
        call("people", name="Grace Hopper"),
        call("people", name="Ada Byron"),
        answer("Leeds"),
    ]
    _, server = await run(script, "Where does the maker Ada Byron live?")
    assert asked(server.requests[2]).endswith("Grace Hopper is not known: leave it out.")
    assert len(server.requests[2]["messages"]) == 2, "the call is not shown: it would be copied"


async def test_calculation_after_a_look_up_takes_digits_only():
    script = [
        plan(("price", "the price"), ("reckon", "all")),
        call("price", item="lamp"),
        call("reckon", sum="3*23.9"),
        answer("71.7"),
    ]
    _, server = await run(script, "What do 3 of the lamp cost?")
    pattern = server.requests[2]["response_format"]["json_schema"]["schema"]["properties"]["args"]["properties"]["sum"][
        "pattern"
    ]
    assert pattern.startswith("^[0-9")


async def test_number_of_the_question_that_no_step_used_is_worked_with_before_the_answer():
    script = [
        plan(("price", "the price of the lamp")),
        call("price", item="lamp"),
        answer("23.9"),
        call("reckon", sum="146*23.9"),
    ]
    seen, server = await run([*script, answer("3489.4")], "What do 146 pieces of the lamp cost?")
    assert "Now write the call that works with 146." in asked(server.requests[3])
    (sums,) = [form for form in forms_of(server.requests[3]) if form["properties"]["tool"]["const"] == "reckon"]
    assert "pattern" in sums["properties"]["args"]["properties"]["sum"], "digits, no names"
    assert "answer" not in offered(server.requests[3])
    assert text_of(seen) == "3489.4"


async def test_doubted_answer_is_not_shown_again_because_it_would_be_copied():
    script = [plan(("price", "the price of the lamp")), call("price", item="lamp"), answer("146 * 23.9 = 3185")]
    seen, server = await run(
        [*script, call("reckon", sum="146*23.9"), answer("3489.4")], "What do 146 pieces of the lamp cost?"
    )
    assert "3185" not in json.dumps(server.requests[3])
    assert text_of(seen).endswith("3489.4")


async def test_plan_pushes_nobody_into_a_tool_with_effects():
    @tool
    def order(item: str) -> str:
        """Order."""
        return "ordered"

    script = [
        plan(("price", "the price of the lamp"), ("order", "the lamp")),
        call("price", item="lamp"),
        call("order", item="lamp"),
    ]
    seen, server = await run([*script, answer("ordered")], "Order a lamp if it costs less than 30.", (*TOOLS, order))
    assert offered(server.requests[1]) == ["price"]
    assert offered(server.requests[2]) == ["price", "people", "rules", "reckon", "order", "answer"]
    assert text_of(seen) == "ordered"


@pytest.mark.parametrize("first", [plan(("answer", "the translation")), reply("no plan at all"), reply("")])
async def test_without_a_step_it_is_asked_as_before(first):
    seen, server = await run([first, answer("Bonjour")], "Say hello in French.")
    assert offered(server.requests[1]) == ["price", "people", "rules", "reckon", "answer"]
    assert text_of(seen) == "Bonjour"


async def test_one_look_up_needs_no_plan():
    _, server = await run([call("price", item="lamp"), answer("23.9")], "What does the lamp cost?", (price,))
    assert len(server.requests) == 2
    assert offered(server.requests[0]) == ["price", "answer"]


async def test_next_turn_has_a_plan_of_its_own():
    def script(body):
        if "steps" in json.dumps(body["response_format"]):
            return plan(("price", "it"))
        return call("price", item="lamp") if "Known so far" not in asked(body) else answer("23.9")

    async with WireServer(script) as server:
        model = OpenAI("small", base_url=server.url, api_key="k", tool_mode="constrained")
        agent = Agent(model, TOOLS, journal="memory")
        for question in ("What does the lamp cost?", "And what did you say it costs?"):
            await agent.run(question, session_id="s")
        await agent.close()
    assert ["steps" in json.dumps(request["response_format"]) for request in server.requests] == [True, False, False] * 2
    assert "What does the lamp cost?" in json.dumps(server.requests[3]["messages"]), "with what was said before"


KILLED = """
import os, sys
from kaname import Agent, tool
from kaname.models import OpenAI

@tool(effect="pure")
def price(item: str) -> int:
    "The price of an item."
    if len(sys.argv) > 3:
        os._exit(9)
    return 64

@tool(effect="pure")
def reckon(sum: str) -> str:
    "Work out, for example 3*(4+5)."
    return str(eval(sum))

model = OpenAI("small", base_url=sys.argv[1], api_key="k", tool_mode="constrained")
agent = Agent(model, [price, reckon], journal=sys.argv[2])
run = agent.run_sync("What do 45 seats cost?", run_id="r") if len(sys.argv) > 3 else agent.resume_sync("r")
print(run.output)
"""


async def test_plan_is_not_asked_for_again_after_the_process_was_killed(tmp_path):
    import asyncio

    def script(body):
        if "steps" in json.dumps(body["response_format"]):
            return plan(("price", "the price of a seat"), ("reckon", "the price of 45 seats"))
        if "the price of 45 seats:" in asked(body):
            return answer("2880")
        return call("reckon", sum="45*64") if "Known so far" in asked(body) else call("price", item="seat")

    async with WireServer(script) as server:
        program = [sys.executable, "-c", KILLED, server.url, str(tmp_path / "app.db")]
        first = await asyncio.to_thread(warm.run, [*program, "die"], capture_output=True, text=True, timeout=120)
        assert first.returncode == 9, first.stderr
        assert len(server.requests) == 2
        again = await asyncio.to_thread(warm.run, program, capture_output=True, text=True, timeout=120)
    assert again.stdout.strip() == "2880", again.stderr
    assert ["steps" in json.dumps(request["response_format"]) for request in server.requests] == [True, False, False, False]
    assert "- the price of a seat: 64" in asked(server.requests[2])


def test_plan_ends_before_a_step_that_is_not_a_look_up_and_leaves_out_what_is_found_by_then():
    tools = [ToolSpec("look", "", {}, "pure"), ToolSpec("pay", "", {})]

    def written(*steps):
        return json.dumps({"steps": [{"find": find, "tool": name} for name, find in steps]})

    assert [step.find for step in read_plan(written(("look", "a"), ("pay", "b"), ("look", "c")), tools)] == ["a"]
    assert [step.find for step in read_plan(written(("look", "the warranty of a"), ("look", "the warranty")), tools)] == [
        "the warranty of a"
    ]
    both = [*tools, ToolSpec("sum", "", {}, "pure")]
    assert len(read_plan(written(("look", "the price of 12 cups"), ("sum", "price of 12")), both)) == 2, "another tool finds it"
    sums = ToolSpec("sum", "For example 3*4.", {"type": "object", "properties": {"a": {"type": "string"}}}, "pure")
    steps = read_plan(written(("look", "the price"), ("sum", "the number of cups"), ("sum", "the total")), [*tools, sums])
    assert [step.find for step in steps] == ["the price", "the total"], "one expression does it"
    assert read_plan(written(("unknown", "a")), tools) == ()
    for odd in ("", "[]", "{}", '{"steps": 3}', '{"steps": [3]}', '{"steps": [{"find": 1, "tool": "look"}]}'):
        assert read_plan(odd, tools) == ()


@pytest.mark.parametrize(
    ("output", "facts"),
    [
        ("price\n23.9", "price = 23.9"),
        ("name, price\nlamp, 23.9", "name = lamp, price = 23.9"),
        ({"name": "lamp", "price": 23.9}, "name = lamp, price = 23.9"),
        ([{"price": 23.9}], "price = 23.9"),
        ({"results": [{"price": 23.9, "maker": "x"}]}, "price = 23.9, maker = x"),
        ('{"price": 23.9}', "price = 23.9"),
        ("name, price\nlamp, 23.9\ncup, 8", "name, price\nlamp, 23.9\ncup, 8"),
        ("A seat costs 64 yen.", "A seat costs 64 yen."),
        ("It rains.\nTake a coat.", "It rains.\nTake a coat."),
        ("name: lamp\nprice: 23.9", "name: lamp\nprice: 23.9"),
        ([1, 2], "[1, 2]"),
        (64, "64"),
    ],
)  # fmt: skip
def test_single_row_is_told_as_name_and_value(output, facts):
    assert as_facts(ToolResult(output)) == facts


def test_row_of_noughts_is_a_look_up_that_found_no_rows():
    assert is_nought(ToolResult("count(*)\n0"))
    assert is_nought(ToolResult([{"sum": None}]))
    assert not is_nought(ToolResult("count(*)\n4"))
    assert not is_nought(ToolResult("0"))


@pytest.mark.parametrize(
    ("description", "argument", "reckoning"),
    [
        ("Evaluate.", "for example 12*(3+4)", True),
        ("Work out.", "Numbers and + - * / ( )", True),
        ("Search the documents.", "A few keywords", False),
        ("Open Mon - Fri, well-known.", "a name", False),
    ],
)
def test_tool_reckons_if_its_text_is_described_by_operators(description, argument, reckoning):
    spec = ToolSpec("x", description, {"type": "object", "properties": {"a": {"type": "string", "description": argument}}})
    assert reckons(spec) is reckoning
