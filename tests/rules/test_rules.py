"""Rules for which a deliberate fault once passed the fast tests, each with a fast test that notices it. The faults are R1 to R19 in
`tests/designs/mutations/rules.toml`; `scripts/mutations.py R4` puts in those of one rule."""

import asyncio
import sqlite3

import pytest

from kaname import (
    Agent,
    AgentState,
    Approve,
    ConfigError,
    Keep,
    Memory,
    MemoryJournal,
    Message,
    Retry,
    ScriptedModel,
    call,
    max_steps,
    merge,
    tool,
)
from kaname.context.window import Window
from kaname.core.chunks import Chunk
from kaname.core.durations import seconds
from kaname.core.errors import ModelError, ModelTimeout
from kaname.core.messages import Text, ToolCall, ToolResult, user
from kaname.core.people.visible import visible
from kaname.kernel.results import fit_result
from kaname.run.figures import figures, rate
from kaname.run.handoffs.handoff import refused_handoff
from kaname.serve.stream import Frames
from kaname.tools.calculator.arithmetic import evaluate
from kaname.tools.calculator.exact import Unsolvable
from kaname.tools.database.engines.base import QueryFailed, QueryLimits
from kaname.tools.database.engines.sqlite import SqliteEngine
from kaname.tools.database.tool import DatabaseTool
from kaname.tools.mcp.names import Names
from tests.parts import add

LIMITS = QueryLimits(rows=10, characters=10_000, seconds=10.0)


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE sales (id INTEGER)")
        connection.executemany("INSERT INTO sales VALUES (?)", [(number,) for number in range(250)])
    connection.close()
    return path


# --- the faults that a review found ---


@pytest.mark.requirement("R1")
@pytest.mark.parametrize(("most", "kept"), [(2, ["q3"]), (3, ["q3"]), (5, ["q2", "q3"])])
def test_system_messages_stay_and_count_when_a_history_is_cut(most, kept):
    state = AgentState(max_history=most)
    for number in (1, 2, 3):
        state.add_message("system", f"s{number}")
    for number in (1, 2, 3):
        state.add_message("user", f"q{number}")
    assert [message["content"] for message in state.get_messages()] == ["s1", "s2", "s3", *kept]


@pytest.mark.requirement("R2")
async def test_model_is_told_that_a_table_has_more_rows(database):
    shown = DatabaseTool(database, max_rows=5)
    whole = await shown.execute("SELECT id FROM sales WHERE id < 5")
    cut = await shown.execute("SELECT id FROM sales")
    assert (len(whole.output["rows"]), "note" in whole.output) == (5, False)
    assert (len(cut.output["rows"]), cut.output["note"]) == (5, "only the first 5 rows are shown; there are more")


@pytest.mark.requirement("R3")
@pytest.mark.parametrize(
    "sql", ["PRAGMA table_info(sales)", "SELECT * FROM pragma_database_list", "ATTACH ':memory:' AS other", "BEGIN"]
)
def test_sqlite_itself_allows_only_reading(database, sql):
    engine = SqliteEngine(database)
    assert engine.run("SELECT count(*) AS n FROM sales", LIMITS).rows == [{"n": 250}]
    with pytest.raises(QueryFailed, match="not authorized|prohibited"):
        engine.run(sql, LIMITS)


@pytest.mark.requirement("R4")
def test_names_of_tools_have_at_most_64_characters_and_stay_apart():
    names = Names()
    wanted = [("a", "x" * 90), ("b", "x" * 90), ("c" * 70, "y" * 60), ("d", "y" * 60), ("e", "x" * 90 + "z")]
    given = names.give(wanted, own=())
    assert all(len(name) <= 64 for name in given.values()), given
    assert len(set(given.values())) == len(wanted)


@pytest.mark.requirement("R5")
async def test_run_that_reached_a_limit_does_not_vote():
    def agent(answer, *script, **options):
        return Agent(ScriptedModel([*script, answer]), [add], journal="memory", **options)

    stopped = [await agent("wrong", call("add", a=1, b=2), stops=max_steps(1)).run("go") for _ in range(2)]
    assert {one.stop.kind for one in stopped} == {"max_steps"}
    done = await agent("right").run("go")
    merged = await merge({"one": stopped[0], "two": stopped[1], "three": done}, "majority")
    assert (merged.value, sorted(merged.failed)) == ("right", ["one", "two"])


@pytest.mark.requirement("R6")
def test_reader_that_comes_back_within_a_fact_gets_the_rest_of_it_and_nothing_twice():
    def chunks():
        return [Chunk(0.0, "a", "tool_call", {"fact": 7, "n": number}) for number in (1, 2)] + [
            Chunk(0.0, "a", "usage", {"fact": 7})
        ]

    def numbers(frames):
        text = b"".join(bytes(part) for part in frames.take(chunks())).decode()
        return [line for line in text.splitlines() if line.startswith("id:")]

    assert numbers(Frames()) == ["id: 7.1", "id: 7.2", "id: 7"]
    assert (Frames("7.1").after, numbers(Frames("7.1"))) == (6, ["id: 7.2", "id: 7"])
    assert Frames("7").after == 7


@pytest.mark.requirement("R7")
async def test_bad_ratings_are_counted_and_the_last_one_counts():
    journal = MemoryJournal()
    agent = Agent(ScriptedModel(["1", "2", "3"]), journal=journal)
    for ratings in (["bad"], ["good"], ["good", "bad"]):
        run_id = (await agent.run("go")).run_id
        for one in ratings:
            await rate(journal, run_id, one)
    counted = await figures(journal)
    assert (counted.good, counted.bad) == (1, 2)
    assert counted.satisfaction == pytest.approx(1 / 3)


class Silent:
    name = "silent"
    patience = 0.05

    async def reply(self, request, emit):
        await asyncio.Event().wait()


@pytest.mark.requirement("R8")
async def test_model_call_ends_after_the_time_that_the_model_needs_without_a_timeout_of_the_user():
    with pytest.raises(ModelTimeout, match=r"no reply within 0\.05 s"):
        async with asyncio.timeout(30):
            await Agent(Silent(), journal="memory").run("go")


@pytest.mark.requirement("R9")
def test_calculator_refuses_what_takes_too_much_work_however_small_the_result():
    once = "(9**6000) % 7"
    assert evaluate(once) == pow(9, 6000, 7)
    with pytest.raises(Unsolvable, match="too much work"):
        evaluate(" + ".join([once] * 9))


# --- others ---


@pytest.mark.requirement("R10")
def test_window_begins_with_the_user_and_never_with_half_an_exchange():
    said = [Message(role, (Text(str(number)),)) for number, role in enumerate(["user", "assistant"] * 3)]
    for most in range(1, 7):
        kept = Window(most).cut([*said, user("last")])
        assert kept[0].role == "user", most


@pytest.mark.requirement("R11")
@pytest.mark.parametrize("time", ["5m", "59m", "90", 90, "0d", "1d 2", "-3d"])
def test_time_to_keep_runs_that_looks_like_a_slip_is_refused(time):
    with pytest.raises(ConfigError):
        Keep(time)
    assert Keep("1h").seconds("a", "completed") == 3_600.0


@pytest.mark.requirement("R12")
async def test_what_one_user_says_is_recalled_for_no_other(tmp_path):
    seen = []

    def answer(request):
        seen.append("\n".join(message.text for message in request.messages))
        return "ok"

    memory = Memory(tmp_path, learn="nothing")
    memory.of("ann").add("The code of my locker is 5538.")
    agent = Agent(ScriptedModel(answer), journal="memory", context=[memory])
    for who in ("ann", "zoe", ""):
        await agent.run("What is the code of my locker?", user_id=who)
    memory.close()
    assert ["5538" in one for one in seen] == [True, False, False]


@pytest.mark.requirement("R13")
@pytest.mark.parametrize(("wait", "tries"), [(0.02, 3), (0.2, 1)])
async def test_provider_that_asks_for_a_longer_pause_than_allowed_is_not_waited_for(wait, tries):
    calls = []

    class Busy:
        name = "busy"

        async def reply(self, request, emit):
            calls.append(1)
            error = ModelError("busy", retry_after=wait)
            error.retryable = True
            raise error

    with pytest.raises(ModelError):
        await Agent(Busy(), policies=[Retry(tries=3, longest_wait=0.1)], journal="memory").run("go")
    assert len(calls) == tries


@pytest.mark.requirement("R14")
def test_name_of_a_servers_tool_is_never_given_to_another():
    names = Names()
    first = names.give([("shop", "pay")], own=())
    later = names.give([("bank", "pay")], own=())  # the first server is away
    again = names.give([("shop", "pay"), ("bank", "pay")], own=())
    assert first["shop", "pay"] == again["shop", "pay"] == "pay"
    assert later["bank", "pay"] == again["bank", "pay"] != "pay"


@pytest.mark.requirement("R15")
def test_model_reads_the_beginning_and_end_of_a_huge_result_and_the_journal_keeps_it():
    text = "begin " + "x" * 400_000 + " end"
    result = fit_result(ToolResult(text), ToolCall("c1", "read", {}))
    assert result.output == text
    assert result.shown is not None
    assert len(result.shown) < len(text) / 2
    assert result.shown.startswith("begin")


@pytest.mark.requirement("R16")
@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\u2066", "\x1b", "\u3164"])
def test_person_sees_characters_that_hide_others(hidden):
    assert hidden not in visible(f"pay{hidden} 100")
    assert visible("払う 100円\n") == "払う 100円\n"


@pytest.mark.requirement("R17")
@pytest.mark.parametrize("text", ["1h30", "5 m m", "h", "", "0s", "inf", "-5m", "1h 30 minutes?"])
def test_half_a_duration_is_not_read(text):
    with pytest.raises(ConfigError):
        seconds(text)
    assert seconds("1h30m") == 5_400.0


@pytest.mark.requirement("R18")
def test_work_goes_neither_in_a_circle_nor_on_for_ever():
    assert refused_handoff("writer", ["lead", "researcher"], 5) == ""
    assert "has already worked on this" in refused_handoff("lead", ["lead", "writer"], 5)
    assert "which is the limit" in refused_handoff("f", ["a", "b", "c", "d"], 3)
    assert refused_handoff("e", ["a", "b", "c"], 3) == ""


@pytest.mark.requirement("R19")
async def test_approval_of_a_call_is_asked_for_each_call():
    paid = []

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    agent = Agent(
        ScriptedModel([call("pay", yen=1), call("pay", yen=1), "done"]), [pay], policies=[Approve()], journal="memory"
    )
    result = await agent.run("go")
    result = await agent.resume(result.run_id, dict.fromkeys(result.questions, "yes"))
    assert (result.stop.kind, paid) == ("waiting", [1])
    result = await agent.resume(result.run_id, dict.fromkeys(result.questions, "yes?"))
    assert paid == [1]
