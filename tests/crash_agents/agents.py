"""Agents that the crash tests kill: parallel tools, timeouts, approvals, every class of effect."""

import asyncio
import json
import os
import re
import sqlite3
import time
from pathlib import Path

from pydantic import BaseModel

from kaname import (
    Agent,
    AgentOrchestrator,
    Approve,
    Compact,
    EvaluationResult,
    ExecutionPlan,
    ExecutionStep,
    ScriptedModel,
    TaskPlanner,
    ToolContext,
    Workflow,
    call,
    per_tool,
    tool,
)
from kaname.core.errors import ModelUnavailable


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    time.sleep(0.002)
    return a + b


@tool(effect="idempotent")
async def put(key: str, context: ToolContext) -> str:
    """Put."""
    await asyncio.sleep(0.002)
    return f"put {key} as {context.idempotency_key.split(':')[1]}"


@tool
async def pay(yen: int) -> str:
    """Pay."""
    await asyncio.sleep(0.003)
    return f"paid {yen}"


@tool(timeout=0.05, effect="pure")
async def slow() -> str:
    """Never in time."""
    await asyncio.sleep(30)
    return "late"


class Answer(BaseModel):
    total: int


def parallel() -> Agent:
    script = [
        [call("add", a=1, b=2), call("pay", yen=5), call("put", key="x")],
        [call("pay", yen=6), call("add", a=3, b=4)],
        "all done",
    ]
    return Agent(ScriptedModel(script), [add, pay, put], name="parallel")


def at_a_limit() -> Agent:
    script = [
        [call("add", a=1, b=2), call("pay", yen=5)],
        [call("pay", yen=6), call("add", a=3, b=4)],
        [call("pay", yen=7), call("pay", yen=8)],
        "paid 5 and 6; 7 and 8 are still to be paid",
    ]
    return Agent(ScriptedModel(script), [add, pay], stops=per_tool(2), name="at_a_limit")


def approvals() -> Agent:
    script = [[call("pay", yen=1), call("add", a=1, b=1)], call("pay", yen=2), '{"total": 3}', '{"total": 3}']
    return Agent(ScriptedModel(script), [pay, add], policies=[Approve("pay")], output=Answer, name="approvals")


def timeouts() -> Agent:
    script = [[call("slow"), call("pay", yen=9)], call("nothing_of_the_kind"), call("add", a="one", b=2), "gave up on it"]
    return Agent(ScriptedModel(script), [slow, pay, add], name="timeouts")


class BreaksOff(ScriptedModel):
    """Fails after its first words at every other step."""

    async def reply(self, request, emit):
        if not sum([message.role == "assistant" for message in request.messages]) % 2:
            await emit("half a ")
            raise ModelUnavailable("broke off")
        return await super().reply(request, emit)


def several_models() -> Agent:
    """The two models answer in turns; whoever continues must not repeat what the other has done."""
    script = [
        [call("pay", yen=1), call("add", a=1, b=2)],
        [call("pay", yen=2), call("put", key="x")],
        call("pay", yen=3),
        "paid",
    ]
    models = [BreaksOff(script, name="first"), ScriptedModel(script, name="second")]
    return Agent(models, [add, pay, put], name="several_models")


def shorter_than_at_first() -> Agent:
    """The run that is left in peace has facts that no other has."""
    peaceful = Path(os.environ["KANAME_CRASH_FOLDER"]).name == "peaceful"
    calls = [call("add", a=1, b=2)] * (2 if peaceful else 1)
    return Agent(ScriptedModel([calls, "3"]), [add], name="shorter")


@tool(effect="idempotent")
async def read_page(page: int) -> str:
    """Read a page."""
    await asyncio.sleep(0.002)
    return f"page {page} " + "of the long report " * 20


def compacting() -> Agent:
    """Summed up again and again inside one turn; the summary says how far it is."""

    def read_so_far(request) -> int:
        return max([0, *map(int, re.findall(r"page (\d+)", "\n".join([m.text + repr(m.parts) for m in request.messages])))])

    def answer(request):
        page = read_so_far(request)
        return "all read" if page == 6 else call("read_page", page=page + 1)

    summary = ScriptedModel(lambda request: f"Read up to page {read_so_far(request)}.")
    return Agent(ScriptedModel(answer), [read_page, pay], context=Compact(400, 150, model=summary), name="compacting")


def undecodable_at_first() -> Agent:
    script = [call("add", a=1, b=2), "3", "not json", '{"total": "three"}', '{"total": 3}']
    return Agent(ScriptedModel(script), [add], output=Answer, name="decoder")


def with_a_bank() -> Agent:
    """A bank that can be asked whether a payment was made, and hotel rooms that can be given back."""
    folder = Path(os.environ["KANAME_CRASH_FOLDER"]) / "bank.db"

    def bank() -> sqlite3.Connection:
        connection = sqlite3.connect(folder, isolation_level=None, timeout=30)
        connection.execute("CREATE TABLE IF NOT EXISTS payments (key TEXT, yen INTEGER)")
        connection.execute("CREATE TABLE IF NOT EXISTS rooms (key TEXT)")
        return connection

    @tool
    async def transfer(yen: int, context: ToolContext) -> str:
        """Transfer money."""
        bank().execute("INSERT INTO payments VALUES (?, ?)", (context.idempotency_key, yen))
        await asyncio.sleep(0.002)
        return f"transferred {yen}"

    @transfer.reconciles
    async def find(yen: int, context: ToolContext) -> str | None:
        row = bank().execute("SELECT yen FROM payments WHERE key = ?", (context.idempotency_key,)).fetchone()
        return f"transferred {row[0]}" if row else None

    @tool(effect="compensable")
    async def book(context: ToolContext) -> str:
        """Book a room."""
        bank().execute("INSERT INTO rooms VALUES (?)", (context.idempotency_key,))
        await asyncio.sleep(0.002)
        return f"rooms: {bank().execute('SELECT count(*) FROM rooms').fetchone()[0]}"

    @book.undoes
    def give_back(context: ToolContext) -> None:
        bank().execute("DELETE FROM rooms WHERE key = ?", (context.idempotency_key,))

    return Agent(ScriptedModel([[call("transfer", yen=7), call("book")], "booked and paid"]), [transfer, book], name="bank")


def team() -> Agent:
    """Two delegates at once, one of which pays; then the conversation is handed over to a third."""

    @tool
    async def pay(yen: int) -> str:
        """Pay."""
        await asyncio.sleep(0.002)
        return f"paid {yen}"

    clerk = Agent(ScriptedModel([call("pay", yen=3), "it is paid"]), [pay], name="clerk")
    looker = Agent(ScriptedModel(["I have looked"]), name="looker")
    closer = Agent(ScriptedModel(lambda request: "closed"), name="closer")
    work = [call("delegate_to_agent", agent=name, task="do it") for name in ("clerk", "looker")]
    script = [work, call("transfer_to_agent", agent="closer", reason="all is done")]
    return Agent(ScriptedModel(script), name="lead", team=[clerk, looker, closer])


def broken() -> Agent:
    """Claims that its payments can be repeated, which is not true: the check must notice."""

    @tool(effect="irreversible", name="pay")
    async def careless(yen: int) -> str:
        await asyncio.sleep(0.002)
        return "paid"

    careless.reconciles(lambda: None)  # "it never happened", without looking
    return Agent(ScriptedModel([call("pay", yen=1), "ok"]), [careless], name="broken")


async def _wipe_server(journal) -> str:
    import asyncpg

    connection = await asyncpg.connect(journal._address.url)
    schema = journal._address.schema
    run = await connection.fetchval(f"SELECT run FROM {schema}.runs WHERE status = 'completed' LIMIT 1")
    for table in ("facts", "runs"):
        await connection.execute(f"DELETE FROM {schema}.{table} WHERE run = $1", run)
    await connection.close()
    return "wiped"


def vandal() -> Agent:
    """Takes finished runs out of the journal behind its back: the shared check must notice."""

    @tool(effect="pure")
    def wipe(context: ToolContext) -> str:
        """Wipe."""
        if not (file := Path(os.environ["KANAME_CRASH_FOLDER"]) / "journal.db").exists():
            return asyncio.run(_wipe_server(context.journal._journal))
        connection = sqlite3.connect(file, timeout=30)
        with connection:
            done = connection.execute("SELECT run FROM runs WHERE status = 'completed' LIMIT 1").fetchone() or ("",)
            for table in ("facts", "runs"):
                connection.execute(f"DELETE FROM {table} WHERE run = ?", done)
        connection.close()
        return "wiped"

    return Agent(ScriptedModel([call("wipe"), "done"]), [wipe], name="vandal")


def hanging() -> Agent:
    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.sleep(1000)
        return ""

    return Agent(ScriptedModel([call("hang"), "never"]), [hang], name="hanging")


def leaving() -> Agent:
    @tool
    def leave() -> str:
        """Leave."""
        os._exit(7)

    return Agent(ScriptedModel([call("leave"), "never"]), [leave], name="leaving")


@tool
async def refund(yen: int) -> str:
    """Pay back."""
    await asyncio.sleep(0.002)
    return f"refunded {yen}"


@tool(effect="pure")
async def sold_out(n: int) -> str:
    """Never there."""
    raise RuntimeError("sold out")


def workflow() -> Agent:
    """Twenty tasks: parallel ones, a question to a person, a failure, and what was paid is paid back in reverse."""
    flow = Workflow("shop", max_parallel=6)
    sums = [flow.options(name=f"sum{n}").task(add, n, 1) for n in range(8)]
    puts = [flow.options(name=f"put{n}").task(put, key=f"k{n}") for n in range(4)]
    sure = flow.ask("Buy them?", ["yes", "no"], name="sure")
    paid = [
        flow.options(name=f"pay{n}", after=[sums[n], sums[n + 1], sure], undo=(refund, {"yen": n})).task(pay, n)
        for n in range(4)
    ]
    total = flow.options(name="total").task(add, sums[6], sums[7])
    flow.options(name="late", after=[*puts, total]).task(add, total, 1)
    flow.options(name="broken", after=paid, on_failure="compensate").task(sold_out, 1)
    return flow.agent


def orchestrated() -> Agent:
    """A bad plan, a plan whose step fails, one that is carried out and refused, and one that is good."""

    def plan(*steps: tuple[str, str, dict[str, object]]) -> str:
        listed = [{"name": name, "tool_name": tool, "arguments": args} for name, tool, args in steps]
        return json.dumps({"description": "buy", "steps": listed})

    def verdict(ok: bool) -> str:
        return json.dumps({"is_successful": ok, "should_retry": True, "feedback": "more", "reason": "", "answer": "bought"})

    good = (("a", "add", {"a": 1, "b": 2}), ("b", "put", {"key": "k${a}"}))
    script = [
        plan(("x", "nothing", {})),
        plan(("x", "sold_out", {"n": 1})),
        plan(*good),
        verdict(False),
        plan(*good, ("c", "put", {"key": "k9"})),
        verdict(True),
    ]
    planner = TaskPlanner(ScriptedModel(script), [add, put, sold_out], max_revisions=5)
    return AgentOrchestrator(planner).agent


def own_parts() -> Agent:
    """A planner that asks the built-in one, and a monitor and a state manager of the user's own: three plans, the last good."""
    folder = Path(os.environ["KANAME_CRASH_FOLDER"])

    class Planner(TaskPlanner):
        async def generate_plan(self, context):
            tried = len(context.execution_history)
            made = await super().generate_plan(context)  # a child run
            return ExecutionPlan(
                f"{made.description}, after {context.feedback_history}", [*made.steps, ExecutionStep("pay", {"yen": tried})]
            )

    class Monitor:
        async def evaluate_result(self, result, context):
            tried = len(context.execution_history)
            if tried < 3:
                return EvaluationResult(should_retry=True, feedback=f"{tried}: {sorted(result.steps)}")
            return EvaluationResult(is_successful=True, answer=result.plan.description)

    def script(request):
        key = f"k{len(request.messages[-1].text.splitlines())}"
        return json.dumps({"description": key, "steps": [{"name": "a", "tool_name": "put", "arguments": {"key": key}}]})

    class Keeper:
        async def save(self, context):
            (folder / "saved").write_text(context.phase)

    return AgentOrchestrator(Planner(ScriptedModel(script)), Monitor(), Keeper(), tools=[pay, put]).agent
