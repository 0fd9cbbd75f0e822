"""A tool whose thread goes on after its run was stopped or released: nobody takes the run up before it has ended."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from kaname import Agent, MemoryJournal, RunBusy, ScriptedModel, SqliteJournal, ToolContext, call, deadline, tool
from kaname.core.record import replace


class Bank:
    """`pay` works in a thread until it is told to go on; then it pays."""

    def __init__(self, effect: Any = "irreversible") -> None:
        self.begun, self.go_on, self.paid = threading.Event(), threading.Event(), []

        @tool(effect=effect)
        def pay() -> str:
            """Pay."""
            self.begun.set()
            self.go_on.wait(60)
            self.paid.append(1)
            return "paid"

        self.pay = pay

    def agent(self, journal: Any, **more: Any) -> Agent[Any]:
        def script(request: Any) -> Any:
            return "done" if request.messages[-1].role == "tool" else call("pay")

        return Agent(ScriptedModel(script), [self.pay], journal=journal, **more)


async def reached(bank: Bank) -> None:
    while not bank.begun.is_set():
        await asyncio.sleep(0.001)


async def freed(journal: Any, agent: Agent[Any], run_id: str) -> Any:
    """What another process gets when it tries again and again."""
    while True:
        try:
            return await agent.resume(run_id)
        except RunBusy:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("how", ["let_go", "abort", "deadline", "cancel"])
@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_run_is_not_taken_up_while_its_thread_is_at_work(tmp_path: Path, kind: str, how: str) -> None:
    bank = Bank()
    here = SqliteJournal(tmp_path / "j.db") if kind == "sqlite" else MemoryJournal()
    there = SqliteJournal(tmp_path / "j.db") if kind == "sqlite" else here
    run = bank.agent(here, stops=deadline(0.2) if how == "deadline" else None).run("go").start()
    await reached(bank)
    if how == "let_go":
        assert (await run.let_go()).stop.kind == "released"
    elif how == "abort":
        run.abort()
        assert (await run).stop.kind == "cancelled"
    elif how == "deadline":
        assert (await run).stop.kind == "deadline"
    else:
        waiting = asyncio.ensure_future(_result(run))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    other = bank.agent(there)
    with pytest.raises(RunBusy, match="being executed"):
        await other.resume(run.run_id)
    bank.go_on.set()
    result = await freed(there, other, run.run_id)
    assert bank.paid == [1]
    assert [one.in_doubt for one in result.questions.values()] == [True]
    done = await other.resume(run.run_id, {key: {"result": "paid"} for key in result.questions})
    assert (done.output, bank.paid) == ("done", [1])
    await here.close()
    if there is not here:
        await there.close()


async def _result(run: Any) -> Any:
    return await run


async def test_journal_that_is_closed_keeps_the_run_until_its_thread_has_ended(tmp_path: Path) -> None:
    bank = Bank()
    here, there = SqliteJournal(tmp_path / "j.db"), SqliteJournal(tmp_path / "j.db")
    run = bank.agent(here).run("go").start()
    await reached(bank)
    await run.let_go()
    await here.close()
    other = bank.agent(there)
    with pytest.raises(RunBusy):
        await other.resume(run.run_id)
    bank.go_on.set()
    result = await freed(there, other, run.run_id)
    assert (bank.paid, len(result.questions)) == ([1], 1)
    await there.close()


async def test_run_that_is_taken_over_from_a_thread_says_that_the_call_may_still_be_going_on(tmp_path: Path) -> None:
    bank = Bank()
    here, there = SqliteJournal(tmp_path / "j.db"), SqliteJournal(tmp_path / "j.db")
    run = bank.agent(here).run("go").start()
    await reached(bank)
    await run.let_go()
    (asked,) = (await bank.agent(there).resume(run.run_id, takeover=True)).questions.values()
    assert "may still be running there" in asked.prompt
    bank.go_on.set()
    await here.close()
    await there.close()


async def test_pure_tool_holds_nothing_up(tmp_path: Path) -> None:
    bank = Bank("pure")
    run = bank.agent("memory").run("go").start()
    await reached(bank)
    await run.let_go()
    bank.go_on.set()


async def test_call_that_timed_out_does_not_keep_a_run_that_has_ended(tmp_path: Path) -> None:
    """Its error is recorded: nobody will be asked to repeat it."""
    bank = Bank()
    journal = MemoryJournal()
    bank.pay.options = replace(bank.pay.options, timeout=0.05)
    result = await bank.agent(journal).run("go")
    assert (result.output, bank.paid) == ("done", [])
    await journal.delete(result.run_id)
    bank.go_on.set()


@pytest.mark.parametrize("how", ["let_go", "abort"])
async def test_parent_is_not_taken_up_while_a_thread_of_its_child_is_at_work(tmp_path: Path, how: str) -> None:
    """Else its model would hear that the child is busy, and have the same done by another."""
    bank = Bank()
    here, there = SqliteJournal(tmp_path / "j.db"), SqliteJournal(tmp_path / "j.db")

    def lead(journal: Any) -> Agent[Any]:
        clerk = bank.agent("memory", name="clerk")

        @tool(effect="pure")
        async def delegate(context: ToolContext) -> str:
            """Have the clerk do it."""
            return (await context.run_child(clerk, "pay")).unwrap()

        def script(request: Any) -> Any:
            last = request.messages[-1]
            return "all done" if last.role == "tool" and last.parts[0].error is None else call("delegate")

        return Agent(ScriptedModel(script), [delegate], journal=journal)

    run = lead(here).run("go").start()
    await reached(bank)
    if how == "let_go":
        await run.let_go()
    else:
        run.abort()
        await run
    other = lead(there)
    with pytest.raises(RunBusy, match="still running"):
        await other.resume(run.run_id)
    bank.go_on.set()
    result = await freed(there, other, run.run_id)
    assert [one.in_doubt for one in result.questions.values()] == [True]
    done = await other.resume(run.run_id, {key: {"result": "paid"} for key in result.questions})
    assert (done.output, bank.paid) == ("all done", [1])
    await here.close()
    await there.close()


async def test_run_that_is_taken_over_after_an_abort_says_that_the_call_may_still_be_going_on(tmp_path: Path) -> None:
    bank = Bank()
    here, there = SqliteJournal(tmp_path / "j.db"), SqliteJournal(tmp_path / "j.db")
    run = bank.agent(here).run("go").start()
    await reached(bank)
    run.abort()
    await run
    (asked,) = (await bank.agent(there).resume(run.run_id, takeover=True)).questions.values()
    assert "may still be running there" in asked.prompt
    bank.go_on.set()
    await here.close()
    await there.close()
