"""What encryption costs: a step of an agent, a fact read, a search of memories; plain, encrypted, and with a key for each user.

Times are processor times of the whole process, which other programs disturb less than the clock; waiting for the disk is not in
them. Each is the median of the rounds, with the smallest and the largest beside it.

python benchmarks/encryption.py [FOLDER]      the folder decides about the disk (default: a temporary folder)
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kaname import Agent, ScriptedModel, SqliteJournal, call, max_steps, per_tool, tool, use_key
from kaname.core.encryption.keys import create_key_file, forget_keys
from kaname.core.encryption.user_keys import UserKeys
from kaname.core.events import ModelReplied
from kaname.memory.files import MemoryFiles

STEPS, RUNS, ROUNDS = 20, 10, 9


@tool(effect="pure")
def look(number: int) -> str:
    """Return about a kilobyte of text."""
    return f"{number} " + "The quick brown fox jumps over the lazy dog. " * 22


async def step_time(folder: Path, user: str) -> tuple[float, float]:
    """Return the seconds of a step (a model's reply with its tool call) and of reading a fact."""
    journal = SqliteJournal(folder / "journal.db")
    script: list[Any] = [call("look", number=number) for number in range(STEPS - 1)]
    agent = Agent(ScriptedModel([*script, "done"]), [look], journal=journal, stops=[max_steps(STEPS * 2), per_tool(None)])
    await agent.run("warm up", user_id=user)
    began = time.process_time()
    results = [await agent.run(f"run {number}", user_id=user) for number in range(RUNS)]
    took = time.process_time() - began
    assert [result.output for result in results] == ["done"] * RUNS, "a run did not make all its steps"
    began, facts, replies = time.process_time(), 0, 0
    for result in results:
        async for event in journal.read(result.run_id):
            facts += 1
            replies += isinstance(event.body, ModelReplied)
    reading = (time.process_time() - began) / facts
    assert replies == RUNS * STEPS
    await journal.close()
    return took / replies, reading


def search_time(folder: Path) -> float:
    files = MemoryFiles(folder / "memory")
    store = files.of("ken")
    for number in range(100):
        store.add(f"fact {number}: the train to York leaves at {number} past nine")
    took = median(lambda: store.search("when does the train leave?"), 50)
    files.close()
    return took


def median(work: Callable[[], Any], times: int) -> float:
    took = []
    for _ in range(times):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return statistics.median(took)


def _told(times: list[float]) -> str:
    return f"{statistics.median(times):7.0f} ({times[0]:.0f} to {times[-1]:.0f})"


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as base:
        create_key_file(Path(base, "key"))
        kinds = {"plain": "", "encrypted, no user": "", "encrypted, key of a user": "ken"}
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        for number in range(ROUNDS):  # in turns, so that a busy machine troubles all of them alike
            for name, user in kinds.items():
                folder = Path(base, f"{name} {number}")
                folder.mkdir()
                if name != "plain":
                    use_key(Path(base, "key"), places=[folder])
                taken[name].append(asyncio.run(step_time(folder, user)))
        for name, times in taken.items():
            steps, reading = (sorted([one * 1e6 for one in column]) for column in zip(*times, strict=True))
            print(f"{name:<26} {_told(steps)} µs a step   {_told(reading)} µs a fact read")
        for name in ("plain", "encrypted"):
            folder = Path(base, f"memory {name}")
            folder.mkdir()
            if name != "plain":
                use_key(Path(base, "key"), places=[folder])
            print(f"search of 100 memories, {name:<10} {search_time(folder) * 1e3:8.2f} ms")
        key = UserKeys(Path(base, "memory encrypted", "journal.db")).of("ken")
        text = "x" * 1024
        sealed = key.seal(text, "place")
        print(f"AES-GCM of 1 KB: {median(lambda: key.seal(text, 'place'), 2000) * 1e6:.1f} µs to encrypt, ", end="")
        print(f"{median(lambda: key.unseal(sealed, 'place'), 2000) * 1e6:.1f} µs to decrypt")
        forget_keys()


if __name__ == "__main__":
    main()
