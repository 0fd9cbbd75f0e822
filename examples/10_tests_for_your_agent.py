"""The checks that kaname uses on itself, for your own agent: kill it everywhere, freeze a run, check your parts.

It needs nothing more; to run the contract as tests, the extra `testing` (`pip install '/path/to/kaname[testing]'`).
"""

import asyncio
import tempfile
from pathlib import Path

from kaname import Agent, MemoryJournal, ScriptedModel, call, tool
from kaname.testing import JournalContract, crash, freeze, save_run


@tool
def pay(yen: int) -> str:
    """Pay."""
    return f"paid {yen}"


def make_agent() -> Agent:
    return Agent(ScriptedModel([call("pay", yen=5), "Paid."]), [pay])


class TestMyJournal(JournalContract):  # pytest finds these tests by itself
    def make(self):
        return MemoryJournal()


if __name__ == "__main__":
    report = crash.check(make_agent, "Pay 5 yen.")
    print(f"{report.kills} kills, {len(report.problems)} problems, asked {report.in_doubt} times instead of paying twice")

    agent = make_agent()
    result = agent.run_sync("Pay 5 yen.")
    with tempfile.TemporaryDirectory() as folder:
        recording = asyncio.run(save_run(agent.journal, result.run_id, Path(folder) / "pay.jsonl"))
        test_pay = freeze(recording, make_agent)  # in a test module, this line is the whole test
        test_pay()
    print("frozen run: the same decisions")

# prints:
#   14 kills, 0 problems, asked
#   frozen run: the same decisions
