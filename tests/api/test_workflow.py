"""Workflows written in Python: a task starts when what it waits for is done, and fails as it is told to."""

import asyncio
import time

import pytest

from kaname import Agent, Approve, ConfigError, InvalidState, ScriptedModel, ToolContext, Workflow, tool
from kaname.workflows import draw

LOG = []


@pytest.fixture(autouse=True)
def empty_log():
    LOG.clear()


@tool(effect="pure")
async def add(a: int = 0, b: int = 0) -> int:
    """Add."""
    LOG.append(("add", a, b))
    return a + b


@tool(effect="pure")
async def wait(name: str, seconds: float = 0.0) -> str:
    """Wait."""
    LOG.append(("begin", name))
    await asyncio.sleep(seconds)
    LOG.append(("end", name))
    return name


@tool
async def pay(amount: int) -> str:
    """Pay."""
    LOG.append(("pay", amount))
    return f"paid {amount}"


@tool
async def refund(amount: int, what: str = "") -> str:
    """Pay back."""
    LOG.append(("refund", amount, what))
    return "refunded"


@tool(effect="pure")
async def fail(why: str = "no") -> str:
    """Fail."""
    LOG.append(("fail", why))
    raise RuntimeError(why)


def flow(**more):
    return Workflow("flow", journal="memory", **more)


async def test_task_takes_what_another_gave():
    made = flow(params={"start": 1}, outputs=None)
    first = made.task(add, made.param("start"), 2)
    second = made.task(add, a=first, b=10)
    made.task(add, a=second, b=first)
    result = await made.run({"start": 5})
    assert result.output == 24
    assert result.stop.kind == "completed"
    assert (await made.run()).output == 16


async def test_parts_of_a_result_and_outputs():
    @tool(effect="pure")
    async def rows() -> dict:
        """Rows."""
        return {"rows": [{"n": 3}, {"n": 4}], "total": 7}

    made = flow()
    got = made.task(rows)
    total = made.task(add, a=got["rows"][0]["n"], b=got.total)
    made.promise({"sum": total, "first": got["rows"][0]})
    assert (await made.run()).output == {"sum": 10, "first": {"n": 3}}


async def test_task_starts_the_moment_its_own_dependencies_are_done():
    """No waves: the long one holds nobody up but those that wait for it."""
    made = flow()
    made.options(name="long").task(wait, "long", 0.4)
    short = made.options(name="short").task(wait, "short", 0.01)
    made.options(name="next").task(wait, short, 0.01)
    await made.run()
    assert LOG.index(("end", "short")) < LOG.index(("end", "long"))
    assert [entry for entry in LOG if entry[1] == "short"].count(("begin", "short")) == 2  # the next one began, too
    assert LOG.index(("end", "long")) == len(LOG) - 1


async def test_at_most_so_many_at_once_and_alone():
    running = most = 0

    @tool(effect="pure")
    async def busy(n: int) -> int:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return running

    made = flow(max_parallel=3)
    for n in range(10):
        made.task(busy, n)
    await made.run()
    assert most == 3
    most = 0
    alone = flow()
    for n in range(4):
        alone.task(busy, n)
    alone.options(alone=True, name="alone").task(busy, 9)
    result = await alone.run()
    assert most > 1
    assert result.output["alone"] == 0


async def test_for_each_item():
    made = flow(params={"numbers": [1, 2, 3]})
    doubled = made.options(each=made.param("numbers"), name="doubled").task(add, a=made.item, b=made.item)
    made.task(add, a=doubled[0], b=doubled[2])
    result = await made.run()
    assert result.output == 8
    assert (await made.progress(result.run_id)).nodes["doubled"].output == [2, 4, 6]


async def test_again_until_it_holds():
    made = flow()
    made.options(until="result >= 8", rounds=5, name="grow").task(add, a=made.last | 1, b=made.round)
    assert (await made.run()).output == 11  # 1 + 1, 2 + 2, 4 + 3, 7 + 4
    bounded = flow()
    bounded.options(until="result > 100", rounds=3, name="grow").task(add, a=1, b=1)
    result = await bounded.run()
    assert result.stop.kind == "failed"
    assert "after 3 rounds" in result.stop.detail


async def test_conditions_and_joins():
    made = flow(params={"n": 1})
    n = made.task(add, a=made.param("n"))
    small = made.options(name="small", when=n < 10).task(wait, "small")
    large = made.options(name="large", when=n >= 10).task(wait, "large")
    made.options(name="both", after=[small, large]).task(wait, "both")
    made.options(name="either", after=[small, large], needs=1).task(wait, "either")
    made.options(name="anyway", after=[small, large], when="always").task(wait, "anyway")
    result = await made.run()
    told = (await made.progress(result.run_id)).told()
    assert {name: one["status"] for name, one in told.items()} == {
        "add": "done",
        "small": "done",
        "large": "skipped",
        "both": "skipped",
        "either": "done",
        "anyway": "done",
    }
    assert result.stop.kind == "completed"


async def test_workflow_that_waits_can_be_stopped():
    made = flow()
    made.ask("Send it?", ["yes", "no"])
    result = await made.run()
    assert result.stop.kind == "waiting"
    assert await made.stop(result.run_id, "no longer needed")
    assert not await made.stop(result.run_id), "it is over already"
    assert (await made.agent.result(result.run_id)).stop.kind == "cancelled"


async def test_what_a_tasks_arguments_use_is_waited_for_whatever_it_needs_of_the_others():
    made = flow(params={"n": 1})
    far = made.options(name="far").task(add, a=made.options(name="further").task(add, a=4))
    near = [made.options(name=name).task(add, a=1) for name in ("x", "y")]
    made.options(name="end", needs="any", after=near).task(add, a=far)
    lost = made.options(name="lost", when=made.param("n") > 1).task(add, a=1)
    made.options(name="without", needs="any", after=near).task(add, a=lost)
    assert {"x", "y", "far"} == set(made.graph.waits_for(made.graph.by_name["end"], made.graph.by_name))
    result = await made.check().run()
    assert result.completed, result.stop
    told = (await made.progress(result.run_id)).told()
    assert told["end"]["output"] == 4
    assert told["without"]["status"] == "skipped", "there is nothing to call it with"


@pytest.mark.parametrize(
    ("policy", "kind", "statuses"),
    [
        ("stop", "failed", ["failed", "waiting"]),
        ("skip", "degraded", ["failed", "skipped"]),
        ("continue", "degraded", ["failed", "done"]),
    ],
)
async def test_failure_of_a_task(policy, kind, statuses):
    made = flow()
    broken = made.options(name="broken", on_failure=policy).task(fail, "why not")
    made.options(name="after", after=broken).task(wait, "after")
    result = await made.run()
    assert result.stop.kind == kind
    assert "why not" in result.stop.detail
    told = (await made.progress(result.run_id)).told()
    assert [one["status"] if one["status"] != "skipped" or policy == "skip" else "waiting" for one in told.values()] == statuses


async def test_what_was_done_is_undone_in_reverse():
    made = flow()
    first = made.options(name="first", undo=(refund, {"amount": 1, "what": "first"})).task(pay, 1)
    second = made.options(name="second", undo=(refund, {"amount": 2}), after=first).task(pay, 2)
    made.options(name="third", after=second, on_failure="compensate").task(fail, "sold out")
    result = await made.run()
    assert result.stop.kind == "failed"
    assert [entry for entry in LOG if entry[0] == "refund"] == [("refund", 2, ""), ("refund", 1, "first")]
    progress = await made.progress(result.run_id)
    assert {name: node.status for name, node in progress.nodes.items()} == {
        "first": "undone",
        "second": "undone",
        "third": "failed",
    }
    assert "↶ first: pay" in draw.terminal(made.graph, progress)


async def test_handles_are_worked_out_with():
    made = Workflow("sums", [add], journal="memory")
    one = made.task(add, 1, 2)
    made.promise([one + 1, one - 1, one * 2, one / 2, 1 + one, 2 * one, 5 - one, 6 / one, -one, one // 2, one % 2])
    assert (await made.run()).output == [4, 2, 6, 1.5, 4, 6, 2, 2, -3, 1, 1]


async def test_retries_and_fallback():
    tries = 0

    @tool(effect="pure")
    async def shaky() -> str:
        """Fails twice."""
        nonlocal tries
        tries += 1
        if tries < 3:
            raise RuntimeError("busy")
        return "at last"

    made = flow()
    made.options(retries=2, retry_delay=0.01).task(shaky)
    assert (await made.run()).output == "at last"
    other = flow()
    other.options(fallback=(wait, {"name": "instead"})).task(fail)
    result = await other.run()
    assert (result.output, result.stop.kind) == ("instead", "completed")


async def test_time_limit_of_a_task():
    made = flow()
    made.options(timeout=0.05).task(wait, "slow", 60)
    begun = time.monotonic()
    result = await made.run()
    assert "timed out after 0.05 s" in result.stop.detail
    assert time.monotonic() - begun < 40


async def test_question_is_put_last_and_answered_later():
    made = flow()
    answer = made.ask("Which colour?", ["red", "blue"], name="colour")
    made.options(name="other").task(wait, "other", 0.05)
    made.options(name="use").task(wait, answer)
    result = await made.run()
    assert result.stop.kind == "waiting"
    assert ("end", "other") in LOG
    ((key, asked),) = result.questions.items()
    assert (asked.prompt, asked.options) == ("Which colour?", ("red", "blue"))
    assert (await made.resume(result.run_id, {key: "blue"})).output == {"other": "other", "use": "blue"}


@pytest.mark.parametrize("wrong", ["perhaps", "no, not today", {"args": {}}, 1])
async def test_answer_that_is_none_of_the_options_is_told_and_the_question_stays_open(wrong):
    made = flow()
    answer = made.ask("Sure?", ["yes", "no"], name="sure")
    made.options(name="go", when=answer != "no").task(wait, "go")
    waiting = await made.run()
    with pytest.raises(InvalidState, match='Answer with "yes", "no"'):
        await made.resume(waiting.run_id, dict.fromkeys(waiting.questions, wrong))
    assert ("begin", "go") not in LOG
    done = await made.resume(waiting.run_id, dict.fromkeys(waiting.questions, "No"))
    assert (await made.progress(done.run_id)).told()["go"]["status"] == "skipped"


async def test_what_is_meant_for_a_failure_is_done_and_the_rest_left_out():
    made = flow()
    broken = made.options(name="broken").task(fail, "why")
    made.options(name="alarm", after=broken, when="on_failure").task(wait, "alarm")
    made.options(name="never", after=broken).task(wait, "never")
    result = await made.run()
    assert result.stop.kind == "failed"
    told = (await made.progress(result.run_id)).told()
    assert {name: one["status"] for name, one in told.items()} == {"broken": "failed", "alarm": "done", "never": "skipped"}
    assert ("end", "alarm") in LOG


async def test_run_of_another_workflow_is_not_gone_on_with(tmp_path):
    def made(name):
        again = Workflow("flow", journal=str(tmp_path / "j.db"))
        first = again.options(name=name).task(wait, "x")
        again.options(name="end", after=first).task(wait, "y", 5)
        return again

    run = made("one").run()
    async for chunk in run:
        if chunk.type == "tool_response":
            run.abort()
    with pytest.raises(ConfigError, match=r"calls that this workflow does not make \(one\)"):
        await made("other").resume(run.run_id)


async def test_one_workflow_serves_many_runs_at_once():
    made = flow(params={"n": 0}, max_parallel=2)
    first = [made.options(name=f"t{n}").task(add, made.param("n"), n) for n in range(6)]
    made.promise(first)
    results = await asyncio.gather(*[made.run({"n": n}) for n in range(5)])
    assert [result.output for result in results] == [[n + m for m in range(6)] for n in range(5)]
    assert len(LOG) == 30, "each task once"


async def test_policies_stand_around_tasks_as_around_calls():
    made = flow(policies=[Approve("pay")])
    made.task(pay, 5)
    result = await made.run()
    assert result.stop.kind == "waiting"
    assert LOG == []
    (key,) = result.questions
    assert (await made.resume(result.run_id, {key: "yes"})).output == "paid 5"


async def test_agent_and_workflow_as_tasks():
    inner = flow(params={"n": {"type": "integer"}})
    inner.name = "inner"
    inner.task(add, a=inner.param("n"), b=1)
    made = flow()
    said = made.task(Agent(ScriptedModel(["42"]), name="thinker", journal="memory"), input="What is it?")
    made.options(name="sum").task(inner, n=4)
    made.promise({"said": said, "sum": made.handle("sum")})
    result = await made.run()
    assert result.output == {"said": "42", "sum": 5}


async def test_workflow_that_was_let_go_in_the_middle_goes_on(tmp_path):
    journal = tmp_path / "j.db"

    def made():
        again = Workflow("flow", journal=str(journal))
        first = again.options(name="first").task(wait, "first")
        again.options(name="slow", after=first).task(wait, "slow", 0.3)
        return again

    run = made().run()
    async for chunk in run:
        if chunk.type == "tool_response":
            break
    await run.let_go()
    LOG.clear()
    assert (await made().resume(run.run_id)).output == "slow"
    assert ("begin", "first") not in LOG


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda f: f.task("nothing"), "there is no tool 'nothing'"),
        (lambda f: f.task(add, c=1), "add has no argument 'c'"),
        (lambda f: f.task(add, a="one"), "expected integer"),
        (lambda f: f.task(pay), "pay is missing the required argument 'amount'"),
        (lambda f: f.options(after="nobody").task(add), "there is no task 'nobody'"),
        (lambda f: f.options(name="x", after="x").task(add), "depends on itself"),
        (lambda f: f.options(when="ad > 1").task(add), "there is no 'ad'"),
        (lambda f: f.options(when="1 > 2").task(add), "can never run"),
        (lambda f: f.options(retries=2).task(pay, 1), "is not retried automatically"),
        (lambda f: f.options(name="a[1]").task(add), "cannot be used as a name"),
        (lambda f: f.options(name="x", when="item > 1").task(add), "'item' cannot be used here"),
    ],
)
def test_mistakes_are_told_before_anything_runs(write, told):
    made = flow()
    write(made)
    with pytest.raises(ConfigError, match=told.replace("[", r"\[")):
        made.run()


def test_circle_is_told_as_a_path():
    made = flow()
    made.options(name="a", after="c").task(add)
    made.options(name="b", after="a").task(add)
    made.options(name="c", after="b").task(add)
    (problem,) = made.problems()
    assert "circular dependency" in problem.text
    assert set("abc") <= set(problem.text.partition(":")[2])


def test_mistakes_of_a_program_are_told_where_they_are_made():
    made = flow()
    with pytest.raises(ConfigError, match="unknown option 'retry'"):
        made.options(retry=1).task(add)
    with pytest.raises(ConfigError, match="on_failure must be one of"):
        made.options(on_failure="explode").task(add)
    with pytest.raises(ConfigError, match="is not a valid expression"):
        made.options(when="a >").task(add)
    with pytest.raises(ConfigError, match="cannot call functions"):
        made.options(when="open('x')").task(add)
    for options, told in (
        ({"needs": -1}, "needs must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"retries": "x"}, "retries must be"),
    ):
        with pytest.raises(ConfigError, match=told):
            made.options(**options).task(add)
    with pytest.raises(ConfigError, match="each only once"):
        made.task(add, 1, 2, 3)
    got = made.task(add)
    with pytest.raises(TypeError, match="not known yet"):
        f"{got}"
    with pytest.raises(TypeError, match="not known yet"):
        bool(got)
    with pytest.raises(ConfigError, match="params"):
        flow(params={"n": {"type": "integer"}}).complete_params({"n": "x"})


async def test_compensable_tool_is_undone_by_its_own_means():
    @tool(effect="compensable")
    async def reserve(room: str, context: ToolContext) -> str:  # in threads, either could be first
        """Reserve."""
        LOG.append(("reserve", room, context.idempotency_key))
        return f"R-{room}"

    @reserve.undoes
    def release(room: str, context: ToolContext) -> None:
        LOG.append(("release", room, context.idempotency_key))

    made = Workflow("trip", journal="memory")
    rooms = made.options(each=["A", "B"]).task(reserve, made.item)
    made.options(after=rooms, on_failure="compensate").task(fail, "sold out")
    result = await made.run()
    assert result.stop.detail == "fail failed: RuntimeError: sold out"
    told = [one for one in LOG if one[0] != "fail"]
    assert [one[:2] for one in told] == [("reserve", "A"), ("reserve", "B"), ("release", "B"), ("release", "A")]
    assert [one[2] for one in told[2:]] == [told[1][2], told[0][2]], "the key of what is undone"


def test_compensation_that_would_undo_nothing_is_a_mistake():
    made = Workflow("trip", journal="memory")
    made.options(on_failure="compensate").task(add, 1, 2)
    assert [one.text for one in made.problems()] == [
        "on_failure: compensate has nothing to undo: no step has an undo, and no tool is compensable"
    ]
