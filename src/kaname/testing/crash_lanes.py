"""The process of the shared crash check: lanes of processes that run agents on one journal and are killed at random times."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ..core.codec import encode
from ..core.errors import RunNotFound
from ..core.events import Event
from ..kernel.ports import Journal
from ..stores.default import choose
from ..stores.places import is_file
from .crash_life import WrappedJournal, read_lines, watch, write_line
from .crash_places import drop_schemas, in_child, place_for, when_free
from .crash_worker import load, repeated_effects

_LIVES_TO_THE_END = 50


class NotingJournal(WrappedJournal):
    """A journal that also writes every acknowledged fact to a log file outside of the journal."""

    def __init__(self, journal: Journal, log: Path) -> None:
        super().__init__(journal)
        self._log = log

    async def append(self, events: Sequence[Event], epoch: int, **more: Any) -> None:
        await super().append(events, epoch, **more)
        for event in events:
            write_line(self._log, ["fact", event.run_id, event.seq, _print(event)])


def _print(event: Event) -> int:
    return zlib.crc32(encode(event).encode())


class Lane:
    """A sequence of processes.

    Each is forked when the one before has ended. All lanes write to one journal, but have runs of their own.
    """

    def __init__(self, order: dict[str, Any], make_agent: Callable[[], Any], number: int) -> None:
        self.order, self.make_agent, self.number = order, make_agent, number
        self.folder = Path(order["folder"])
        self.log = self.folder / f"lane-{number}.log"
        self.lives = self.kills = self.child = 0
        self.killed_at = 0.0

    def begin(self, *, peaceful: bool = False) -> None:
        self.lives += 1
        chance = random.Random(f"{self.order['seed']} {self.number} {self.lives}")
        self.killed_at = time.monotonic() + (self.order["life"] if peaceful else chance.random() * self.order["longest"])
        if (child := os.fork()) == 0:
            os.environ["KANAME_CRASH_FOLDER"] = str(self.folder)
            try:
                asyncio.run(self._live(chance, turns=0 if peaceful else chance.randint(1, 5)))
            except BaseException:  # noqa: BLE001  a child process ends here, whatever happened in it
                write_line(self.log, ["problem", f"lane {self.number}: {traceback.format_exc()[-600:]}"])
            os._exit(0)
        self.child = child

    def look(self) -> bool:
        """Kill the process if its time has come. Return True if it has ended."""
        if time.monotonic() > self.killed_at:
            os.kill(self.child, signal.SIGKILL)
            _, status = os.waitpid(self.child, 0)
            self.kills += os.WIFSIGNALED(status)
            return True
        return os.waitpid(self.child, os.WNOHANG)[0] != 0

    async def _live(self, chance: random.Random, turns: int) -> None:
        agent = self.make_agent()
        agent.journal = journal = NotingJournal(choose(place_for(self.order, self.folder)), self.log)
        watch(agent, self.folder / "effects.log")
        log = read_lines(self.log)
        ended = {line[1] for line in log if line[0] == "end"}
        for run in dict.fromkeys([line[1] for line in log if line[0] == "begin"]):
            if run not in ended:
                write_line(self.log, ["again", run])
                await self._finish(agent, run, again=True, known=any(line[:2] == ["fact", run] for line in log))
        for turn in range(turns):
            if chance.random() < 0.5:  # as `kaname runs` does beside a running program
                for card in await journal.runs(limit=3):
                    assert [event.seq async for event in journal.read(card.run_id)]
            run = f"lane-{self.number}-{self.lives}-{turn}"
            write_line(self.log, ["begin", run])
            await self._finish(agent, run, again=False, known=False)
        await journal.close()  # cleanly: the last one to leave tidies the file up

    async def _finish(self, agent: Any, run_id: str, *, again: bool, known: bool) -> None:
        """Run or resume a run to its end. `again`: it was started before. `known`: the journal has acknowledged facts of it."""
        try:
            place = place_for(self.order, self.folder)
            given = self.order["input"]
            result = await when_free(place, lambda: agent.resume(run_id) if again else agent.start_or_resume(run_id, given))
        except RunNotFound:
            if not known:
                return await self._finish(agent, run_id, again=False, known=False)
            write_line(self.log, ["problem", f"run {run_id} is lost"])
            return write_line(self.log, ["end", run_id, "lost", ""])
        while result.questions:
            answers = {key: self._answer(key) for key in result.questions}
            write_line(self.log, ["asked", run_id, list(answers)])
            result = await agent.resume(run_id, answers)
        return write_line(self.log, ["end", run_id, result.stop.kind, repr(result.output)])

    def _answer(self, key: str) -> Any:
        return next((answer for start, answer in self.order["answers"].items() if key.startswith(start)), "yes")


def _drive(lanes: list[Lane], kills: int) -> None:
    """Restart every lane until so many processes were killed; then let each lane finish undisturbed."""
    for lane in lanes:
        lane.begin()
    while sum(lane.kills for lane in lanes) < kills:
        for lane in lanes:
            if lane.look():
                lane.begin()
        time.sleep(0.001)
    for lane in lanes:
        while not lane.look():
            time.sleep(0.001)
        for _ in range(_LIVES_TO_THE_END):
            before = len(read_lines(lane.log))
            lane.begin(peaceful=True)
            while not lane.look():
                time.sleep(0.002)
            if len(read_lines(lane.log)) == before:
                break


def _judge(order: dict[str, Any], log: list[Any]) -> Iterator[str]:
    """Yield the differences between the journal and the acknowledged facts, and between the effects and the recorded calls."""

    folder = Path(order["folder"])
    place = place_for(order, folder)

    async def read() -> dict[str, dict[int, int]]:
        journal = choose(place)
        try:
            runs = dict.fromkeys([line[1] for line in log if line[0] == "fact"])
            return {run: {event.seq: _print(event) async for event in journal.read(run)} for run in runs}
        finally:
            await journal.close()

    def intact() -> str:
        with closing(sqlite3.connect(place)) as connection:
            return str(connection.execute("PRAGMA integrity_check").fetchone()[0])

    recorded = in_child(lambda: asyncio.run(read()))
    for kind, run, *rest in log:
        if kind == "fact" and recorded[run].get(str(rest[0])) != rest[1]:
            yield f"fact {rest[0]} of {run} was acknowledged and is {'another' if str(rest[0]) in recorded[run] else 'lost'}"
        elif kind == "problem":
            yield run
    begun = dict.fromkeys([line[1] for line in log if line[0] == "begin"])
    ended = {line[1]: tuple(line[2:]) for line in log if line[0] == "end"}
    for run in begun:
        if run not in ended:
            yield f"{run} never ended"
    yield from repeated_effects(read_lines(folder / "effects.log"))
    if is_file(place) and (told := in_child(intact)) != "ok":
        yield f"the file is damaged: {told}"


def sweep(order: dict[str, Any]) -> dict[str, Any]:
    lanes = [Lane(order, load(order["target"]), number) for number in range(order["lanes"])]
    _drive(lanes, order["kills"])
    log = [line for lane in lanes for line in read_lines(lane.log)]
    return {
        "kills": sum(lane.kills for lane in lanes),
        "runs": len({line[1] for line in log if line[0] == "begin"}),
        "facts": sum(line[0] == "fact" for line in log),
        "resumed": sum(line[0] == "again" for line in log),
        "in_doubt": sum(key.startswith("in-doubt:") for line in log if line[0] == "asked" for key in line[2]),
        "reconciled": sum(line[0].startswith("reconcile") for line in read_lines(Path(order["folder"]) / "effects.log")),
        "problems": list(_judge(order, log)),
    }


def main() -> None:
    order = json.loads(sys.stdin.read())
    sys.path[:] = order["path"]
    __import__("pydantic")  # once, for all the lives to come
    report = sweep(order)
    drop_schemas(order)
    (Path(order["folder"]) / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
