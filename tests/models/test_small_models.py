"""What helps a small model: numbers from nowhere and forgotten ones are doubted once, arguments are mended, tools say what they know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import Agent, RAGPipeline, ScriptedModel, SearchTool, tool
from kaname.core.messages import ToolResult
from kaname.models.prompted.findings import found_nothing
from kaname.models.prompted.names import named_in
from kaname.models.prompted.numbers import KnownNumbers, forms, numbers, numbers_in_call, plain_signs
from tests.models.test_json_choice import answer, call, run, text_of


@tool(effect="pure")
def price(item: str) -> int:
    """The price of an item."""
    return {"teapot": 4200}[item]


@tool(effect="pure")
def calculate(expression: str) -> str:
    """Work out an expression in ASCII."""
    if not expression.isascii() or "," in expression:
        raise ValueError("only ASCII")
    return f"{eval(expression):g}"


TOOLS = (price, calculate)


def said_last(request):
    return request["messages"][-1]["content"]


async def test_answer_with_a_number_from_nowhere_is_doubted_once():
    script = [call("price", item="teapot"), answer("15 teapots cost 36000 yen."), call("calculate", expression="15*4200")]
    seen, server = await run([*script, answer("63,000 yen")], TOOLS, "What do 15 teapots cost?")
    assert "36000 is neither in the question nor in a result: use a tool to work it out" in said_last(server.requests[2])
    assert "36000" not in text_of(seen), "what is doubted is not shown"
    assert text_of(seen).endswith("63,000 yen")


async def test_answer_that_is_given_again_stands():
    script = [answer("It ended in 1945."), answer("It ended in 1945.")]
    seen, server = await run(script, TOOLS, "When did the war end?")
    assert len(server.requests) == 2
    assert text_of(seen).endswith("It ended in 1945.")


async def test_answer_without_odd_numbers_is_asked_for_once_and_streamed():
    seen, server = await run([call("price", item="teapot"), answer("A teapot costs 4,200 yen, I think.")], TOOLS, "Price?")
    assert len(server.requests) == 2
    assert text_of(seen) == "A teapot costs 4,200 yen, I think."
    assert len([chunk for chunk in seen if chunk.type == "delta"]) > 2


async def test_number_in_an_argument_from_nowhere_is_doubted_once_and_run_if_it_is_meant():
    script = [call("calculate", expression="15*999"), call("calculate", expression="15*999"), answer("14985")]
    seen, server = await run(script, TOOLS, "What do 15 teapots cost?")
    told = said_last(server.requests[1])
    assert "999 is neither in the question nor in a result: look it up first (price), or correct the call." in told
    assert "Question: What do 15 teapots cost?" in told
    assert [chunk.data["content"] for chunk in seen if chunk.type == "tool_response"] == ["14985"]


@pytest.mark.parametrize(
    ("question", "calls", "forgotten"),
    [
        ("What do 15 teapots cost?", [("price", {"item": "teapot"})], "15"),
        ("What do 1,500 teapots cost?", [("calculate", {"expression": "1,500*2"}), ("price", {"item": "teapot"})], "1500"),
        ("What does 1 teapot cost?", [("price", {"item": "teapot"})], ""),
        ("4,200 yen plus 8 % tax?", [("calculate", {"expression": "4200*1.08"})], ""),
        ("4,200 yen less 10 %?", [("calculate", {"expression": "4200*0.9"})], ""),
    ],
)
async def test_number_of_the_question_counts_as_used_when_a_call_with_it_went_well(question, calls, forgotten):
    used = []

    def model(request):
        done = len(used)
        used.append(request)
        return call(calls[done][0], **calls[done][1]) if done < len(calls) else answer("done")

    @tool(effect="pure", name="calculate")
    def broken(expression: str) -> str:
        """Work out."""
        if "," in expression or "1500" in expression:
            raise ValueError("broken")
        return f"{eval(expression):g}"

    _, server = await run(model, (price, broken), question)
    told = "\n".join([said_last(request) for request in server.requests])
    assert (f"Not used yet: {forgotten}." in told) is bool(forgotten)
    assert ("of the question was not used" in told) is bool(forgotten)


async def test_nobody_is_pointed_to_a_tool_with_effects():
    @tool
    def delete(name: str) -> str:
        """Delete a file."""
        return "gone"

    _, server = await run([call("delete", name="a.txt"), answer("done")], (price, delete), "It is 7 pm. Delete a.txt.")
    assert len(server.requests) == 2


async def test_call_that_failed_for_its_signs_is_made_again_in_plain_ones_without_asking():
    script = [call("calculate", expression="１,２００×３"), answer("3600")]
    seen, server = await run(script, TOOLS, "1,200 の 3 倍は?")
    results = [(chunk.data["is_error"], chunk.data["content"]) for chunk in seen if chunk.type == "tool_response"]
    assert results[0][0]
    assert results[1] == (False, "3600")
    assert len(server.requests) == 2


async def test_error_asks_for_other_arguments_first():
    script = [call("price", item="cup"), call("price", item="teapot"), answer("4200")]
    _, server = await run(script, TOOLS, "What is a teapot?")
    assert "Correct the arguments of price. Not tried yet: calculate." in said_last(server.requests[1])


def test_error_that_a_plain_function_returns_is_a_failure():
    def exchange(currency: str) -> str:
        """Exchange."""
        return f"Error: unknown currency {currency!r}"

    from kaname import call as calls

    def told(one):
        result = Agent(ScriptedModel([calls("exchange", currency="yen"), "done"]), [one], journal="memory").run_sync("go")
        return next(iter(result.state.results.values()))

    assert told(exchange).error == "unknown currency 'yen'"
    assert not told(tool(exchange)).is_error, "who decorates it can raise"


def test_search_says_which_documents_it_knows(tmp_path):
    pipeline = RAGPipeline(tmp_path / "index.db")
    assert SearchTool(pipeline).description.startswith("Search the user's documents. Cite")
    pipeline.add_text("late returns.md", "A late bike costs 500 yen.")
    pipeline.add_text("営業時間.md", "水曜日は定休日です。")
    assert "documents (late returns, 営業時間). Cite" in SearchTool(pipeline).description
    for number in range(30):
        pipeline.add_text(f"more {number}.md", f"text {number}")
    assert " and 12 more). Cite" in SearchTool(pipeline).description
    assert SearchTool(tmp_path / "nothing.db").description.startswith("Search the user's documents. Cite")


@given(st.integers(13, 10**9), st.integers(0, 9))
def test_known_numbers_may_be_written_in_any_usual_way(value, digit):
    known = KnownNumbers([f"{value:,} and 7.{digit}5 percent"])
    assert known.unknown(f"{value} {value:,} {value}.0 7.{digit}5 {digit} 100") == []
    assert known.unknown(f"x {value + 2_000_000_000}") == [(2, str(value + 2_000_000_000))]


def test_numbers_are_read_without_commas_and_in_plain_signs():
    assert numbers("1,234 と ５６．５、 7, 8 and 1,23") == ["1234", "56.5", "7", "8", "1", "23"]
    assert plain_signs("１，２００×３ − 4÷2") == "1200*3 - 4/2"
    assert {0.08, 1.08, 0.92} <= forms("8")


def offered(request):
    """The tools, and the answer, that the schema lets it choose."""
    schema = request["response_format"]["json_schema"]["schema"]
    forms = schema.get("anyOf", [schema])
    return [
        form["properties"]["tool"]["const"] if "tool" in form["properties"] else sorted(form["properties"]) for form in forms
    ]


async def test_answer_is_not_on_offer_right_after_a_doubt_and_neither_is_what_has_effects():
    @tool
    def order(item: str) -> str:
        """Order."""
        return "ordered"

    script = [call("price", item="teapot"), answer("15 teapots cost 4200 yen."), call("calculate", expression="15*4200")]
    _, server = await run([*script, answer("63000")], (*TOOLS, order), "What do 15 teapots cost?")
    assert offered(server.requests[1]) == ["price", "calculate", "order", "answer"]
    assert offered(server.requests[2]) == ["price", "calculate"]
    assert offered(server.requests[3]) == ["price", "calculate", "order", "answer"]


async def test_answer_before_any_call_is_only_doubted_in_words():
    _, server = await run([answer("It ended in 1945."), answer("It ended in 1945.")], TOOLS, "When did the war end?")
    assert offered(server.requests[1]) == ["price", "calculate", "answer"]


@tool(effect="pure")
def ask_expert(question: str) -> str:
    """Ask an expert.

    Args:
        question: the question, with all names and numbers that it needs
    """
    return f"expert on: {question}"


async def test_argument_that_only_repeats_its_description_is_asked_for_again():
    copy = "string, the question, with all names and numbers that it needs"
    script = [call("ask_expert", question=copy), call("ask_expert", question="How far is Oita?"), answer("Far.")]
    seen, server = await run(script, (ask_expert,), "How far is Oita?")
    assert "'question' repeats what the argument is for" in said_last(server.requests[1])
    assert [chunk.data["content"] for chunk in seen if chunk.type == "tool_response"] == ["expert on: How far is Oita?"]


# --- remarks of ours ---


async def test_after_a_doubt_about_a_call_only_calls_are_offered():
    @tool
    def order(item: str) -> str:
        """Order."""
        return "ordered"

    script = [call("calculate", expression="15*2023"), call("price", item="teapot"), call("calculate", expression="15*4200")]
    _, server = await run([*script, answer("63000")], (*TOOLS, order), "What do 15 teapots cost?")
    assert offered(server.requests[0]) == ["price", "calculate", "order", "answer"]
    assert offered(server.requests[1]) == ["price", "calculate"], "neither the answer nor what has effects"
    assert offered(server.requests[2]) == ["price", "calculate", "order", "answer"]


async def test_doubted_call_with_effects_can_be_repeated_and_nothing_else_with_effects_is_offered():
    @tool
    def order(item: str, pieces: int) -> str:
        """Order."""
        return "ordered"

    @tool
    def cancel(item: str) -> str:
        """Cancel."""
        return "cancelled"

    again = call("order", item="teapot", pieces=99)
    _, server = await run([again, again, answer("done")], (price, order, cancel), "Order teapots.")
    assert offered(server.requests[1]) == ["price", "order"]


@pytest.mark.parametrize(
    "echo",
    ["2023 is neither in the question nor in a result.", "2023 is not in the question or in a result. Please tell me more."],
)
async def test_remark_of_ours_never_becomes_the_answer(echo):
    script = [answer("It was founded in 2023."), answer(echo), answer(echo)]
    seen, _ = await run(script, TOOLS, "When was the shop founded?")
    assert text_of(seen).endswith("It was founded in 2023."), "its own last answer"
    assert "neither" not in text_of(seen)
    assert "not in the question" not in text_of(seen)


async def test_answer_that_only_repeats_a_remark_is_not_completed():
    script = [call("price", item="teapot"), *[call("price", item="teapot")] * 2, answer("price was already called with these arguments, and gave: 4200")]  # fmt: skip
    seen, _ = await run(script, TOOLS, "What is a teapot?")
    assert text_of(seen) == ""
    assert seen[-1].data["kind"] == "incomplete"


# --- what a look-up found ---


@pytest.mark.parametrize(
    ("output", "nothing"),
    [
        ("", True), ([], True), ({}, True), (None, True), ("[]", True), ({"rows": []}, True), ({"rows": [], "total": 0}, True),
        ("No rows.", True), ("No passage found.", True), ("Nothing matches 'cup'", True), ("none", True),
        ("There are no such records.", True), ("File not found", True), ("0 results found", True),
        ("該当する記録はありません。", True), ("見つかりませんでした", True), ("該当なし", True),
        (0, False), ("0", False), (False, False), ({"count": 0}, False), ([0], False), ("No, theft is not covered.", False),
        ("Norway", False), ("Nonesuch Ltd", False), ("Theft is not covered.", False), ("notes: 3", False),
        ("No. 7 is the red one, which left at noon and comes back in the evening.", False),
        ("No smoking\nNo dogs", False), ("店は4階にあります。", False),
    ],
)  # fmt: skip
def test_look_up_that_says_only_that_there_is_nothing_has_found_nothing(output, nothing):
    assert found_nothing(ToolResult(output, name="look"), frozenset(["look"])) is nothing
    assert not found_nothing(ToolResult(output, name="do"), frozenset(["look"])), "what has effects may have nothing to say"


async def test_answer_is_not_on_offer_right_after_a_look_up_that_found_nothing():
    @tool(effect="pure")
    def find(name: str) -> str:
        """Find a row."""
        return "No rows."

    script = [call("find", name="cup"), call("price", item="teapot"), answer("4200")]
    _, server = await run(script, (find, price), "What is a teapot?")
    assert offered(server.requests[1]) == ["find", "price"]
    assert "find found nothing: No rows." in said_last(server.requests[1])
    assert "Not tried yet: price" in said_last(server.requests[1])


async def test_failed_look_ups_leave_the_prompt_once_a_later_call_helped():
    script = [call("price", item="pot"), call("price", item="tea pot"), call("price", item="teapot"), answer("4200 yen")]
    _, server = await run(script, TOOLS, "What is a teapot?")
    seen = [[message["content"] for message in request["messages"]] for request in server.requests]
    assert "tea pot" in "".join(seen[2])
    assert '"item":"pot"' in "".join(seen[2])
    assert "tea pot" not in "".join(seen[3]), "a small model copies what it sees"
    assert '"item":"pot"' not in "".join(seen[3])
    assert "Result of price: 4200" in seen[3][-1]


async def test_failed_call_with_effects_stays_in_the_prompt():
    @tool
    def order(item: str) -> str:
        """Order."""
        raise ValueError("sold out")

    _, server = await run(
        [call("order", item="cup"), call("price", item="teapot"), answer("4200")], (price, order), "Order a cup."
    )
    assert "order failed: Error: ValueError: sold out" in "".join(
        [message["content"] for message in server.requests[2]["messages"]]
    )


async def test_tool_whose_same_call_failed_twice_is_left_out_of_the_next_offer():
    script = [call("price", item="cup"), call("price", item="cup"), call("calculate", expression="1+1"), answer("2")]
    _, server = await run(script, TOOLS, "What is a cup?")
    assert offered(server.requests[1]) == ["price", "calculate"]
    assert offered(server.requests[2]) == ["calculate"]


# --- numbers and names of the question ---


@pytest.mark.parametrize(
    ("args", "used"),
    [
        ({"query": "bus tour for 45 people"}, []),
        ({"query": "the 45-seat bus"}, []),
        ({"query": "受講料 29人"}, []),
        ({"people": 45}, ["45"]),
        ({"people": "45"}, ["45"]),
        ({"expression": "45 * 64"}, ["45", "64"]),
        ({"expression": "(１，４５０×３４)−5"}, ["1450", "34", "5"]),
        ({"sql": "SELECT price*146 FROM goods WHERE id = 7 LIMIT 3"}, ["146", "7", "3"]),
        ({"of": [3, {"by": 2.5}]}, ["3", "2.500000"]),
    ],
)
def test_number_counts_as_used_beside_an_operator_or_as_an_argument(args, used):
    assert list(numbers_in_call(args)) == used


async def test_number_inside_a_search_query_is_still_to_be_used():
    @tool(effect="pure")
    def search(query: str) -> str:
        """Search."""
        return "A seat costs 64 dollars."

    script = [call("search", query="seats for 45 people"), answer("64 dollars"), call("calculate", expression="45*64")]
    _, server = await run([*script, answer("2880")], (search, calculate), "What do seats for 45 people cost?")
    assert "45 of the question was not used" in said_last(server.requests[2])


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Where does Ada Byron live?", ["Ada Byron"]),
        ("How old is the 'Blue Whale'? Ask Tom's friend.", ["Blue Whale", "Tom"]),
        ("The Falcon has wings.", ["Falcon"]),
        ("「銀の鈴」とサーモスの値段は?", ["銀の鈴", "サーモス"]),
        ("What is it?", []),
    ],
)
def test_names_of_a_question_are_quoted_capitalised_or_in_katakana(question, names):
    assert sorted(named_in(question)) == sorted(names)


async def test_name_of_the_question_that_was_never_looked_up_is_asked_about_before_the_answer():
    @tool(effect="pure")
    def where(name: str) -> str:
        """Tell where a person lives."""
        return f"{name} lives in Leeds"

    script = [call("where", name="the keeper"), answer("In Leeds."), call("where", name="Ada Byron"), answer("In Leeds.")]
    seen, server = await run(script, (where, price), "Where does Ada Byron live?")
    assert "Ada Byron of the question was not looked up" in said_last(server.requests[2])
    assert offered(server.requests[2]) == ["where", "price"]
    assert len(server.requests) == 4
    assert text_of(seen) == "In Leeds."


async def test_name_in_a_call_from_nowhere_is_doubted_once():
    @tool(effect="pure")
    def query(sql: str) -> str:
        """Run a SELECT on people(name, town)."""
        return "No rows."

    script = [call("query", sql="SELECT town FROM people WHERE name = 'Keeper Name'"), call("price", item="teapot")]
    _, server = await run([*script, answer("4200"), answer("4200")], (query, price), "Where does the owner of the teapot live?")
    assert "Keeper Name is neither in the question nor in a result: look it up first (price)" in said_last(server.requests[1])
