"""Worker processes that can be killed and stopped, and the agent that they execute: three looks and one payment."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from kaname import Agent, ScriptedModel, ToolContext, Worker, call, tool
from kaname.core.events import ToolStarted
from kaname.core.messages import ToolResult
from kaname.kernel.stores import Wanted
from kaname.stores.default import choose
from kaname.strategies.stop import max_steps, no_repeats, per_tool
from tests import warm

ROOT = Path(__file__).parents[2]


def paid():
    path = Path(os.environ["FLEET_FOLDER"]) / "paid"
    return path.read_text().split() if path.exists() else []


@tool(effect="pure")
async def look(n: int) -> str:
    """Look."""
    await asyncio.sleep(0.005)
    return f"seen {n}"


async def looked_up(yen: int, context: ToolContext) -> ToolResult | None:
    return ToolResult("paid") if context.idempotency_key in paid() else None


@tool(reconcile=looked_up)
async def pay(yen: int, context: ToolContext) -> str:
    """Pay."""
    descriptor = os.open(Path(os.environ["FLEET_FOLDER"]) / "paid", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{context.idempotency_key}\n".encode())
    os.close(descriptor)
    await asyncio.sleep(0.005)
    return "paid"


class Slow(ScriptedModel):
    async def reply(self, request, emit):
        await asyncio.sleep(float(os.environ.get("FLEET_PACE", "0.03")))
        return await super().reply(request, emit)


SCRIPT = [call("look", n=1), call("look", n=2), call("pay", yen=5), call("look", n=3), "done"]


def answer(request):
    """The next reply of this turn, however many turns the conversation has had."""
    turn = [message.role for message in request.messages]
    return SCRIPT[turn[::-1].index("user") // 2]


def stand_still(event):
    """Stop this process between the fact that announces its first payment, and the payment."""
    if isinstance(event.body, ToolStarted) and event.body.call.name == "pay" and os.environ.pop("FLEET_STANDS_STILL", ""):
        os.kill(os.getpid(), signal.SIGSTOP)


def make_agent(journal):
    rules = [max_steps(100), no_repeats(None), per_tool(None)]
    return Agent(Slow(answer), [look, pay], name="clerk", journal=journal, stops=rules, sinks=[stand_still])


class Fleet:
    def __init__(self, journal, folder, **environment):
        self.environment = {
            **os.environ,
            "FLEET_FOLDER": str(folder),
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            **environment,
        }
        self.journal, self.workers = journal, []
        self.folder = folder

    def start(self, **environment):
        """Start a worker, and return when it works."""
        command = [sys.executable, "-m", "tests.work.fleet", self.journal]
        worker = warm.Popen(
            command,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            also="asyncpg,procrastinate",
        )
        assert worker.stdout.readline().strip() == "up"
        self.workers.append(worker)
        return worker

    def end(self):
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()
            worker.stdout.close()

    def paid(self):
        path = self.folder / "paid"
        return path.read_text().split() if path.exists() else []


async def main():
    agent = make_agent(choose(sys.argv[1]))
    worker = Worker([agent], concurrency=4)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await agent.journal.stores.queue.take(Wanted(()), 1)  # it is in the table of those who live
    print("up", flush=True)
    await worker.work()
    await agent.journal.close()


if __name__ == "__main__":
    asyncio.run(main())
