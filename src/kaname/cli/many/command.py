"""`kaname run --batch FILE.jsonl`: run every line of a file, show the progress, and write one line for each result."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...agent.agent import Agent
from ...core.codec import digest
from ...core.install import this_command
from ...run.many.map import Map, MapInput
from ..agent import agent_from, input_for
from ..main import DONE, FAILED, USAGE, WAITING
from ..messages import config_error, many, say
from ..place import place_options
from ..terminal.screen import Screen, columns, truncate
from ..terminal.signals import run_to_the_end
from .files import Line, Results, check_lines, read_lines

_EVERY = 0.2  # seconds between two drawings of the bar
_UNWRITTEN = ("waiting", "released")  # not the last word of a run


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    if args.task or args.session or args.json:
        screen.tell(
            "with --batch, tasks and sessions stand in the file: leave out the task, --session and --json",
            "--batch ではタスクとセッションをファイルに書きます。タスク、--session、--json は指定できません",
            colour="red",
        )
        return USAGE
    path = Path(args.batch).expanduser().resolve()
    total = check_lines(path)
    out = Path(args.out).expanduser() if args.out else path.with_name(f"{path.stem}.results.jsonl")
    if out.resolve() == path:
        raise config_error("--out is the file of the inputs", "--out に入力ファイルは指定できません")
    return run_to_the_end(lambda ending: _main(args, screen, path, out, total))


async def _main(args: argparse.Namespace, screen: Screen, path: Path, out: Path, total: int) -> int:
    agent = agent_from(args, screen)
    results = Results(out)
    try:
        return await _Batch(args, screen, agent, results, total).run(path)
    finally:
        results.close()
        await agent.close()


class _Batch:
    """The runs of one file."""

    def __init__(self, args: argparse.Namespace, screen: Screen, agent: Agent, results: Results, total: int) -> None:
        self._args, self._screen, self._agent, self._results, self._total = args, screen, agent, results, total
        self._lines: dict[str, Line] = {}  # of the runs under way
        self._ended: Counter[str] = Counter()
        self._waiting: list[str] = []  # runs with questions
        self._done = self._tenth = 0
        self._cost: float | None = 0.0

    async def run(self, path: Path) -> int:
        self._ended.update([self._results.stops[line.id] for line in read_lines(path) if self._results.has(line)])
        self._done = self._ended.total()
        job = f"{path.stem}-{digest(str(path))[:6]}"
        mapped = self._agent.map(self._left(path), job=job, at_once=self._args.at_once, batch=self._args.batch_prices)
        drawing = asyncio.create_task(self._keep_drawing(mapped))
        try:
            async for key, result in mapped:
                line = self._lines.pop(str(key))
                self._ended[result.stop.kind] += 1
                if result.stop.kind in _UNWRITTEN or not result.state.seq:  # a run of another process has no facts here
                    self._waiting += [result.run_id] if result.questions else []
                    continue
                self._results.write(line, result)
                self._done += 1
                cost = result.usage.cost
                self._cost = None if self._cost is None or cost is None else self._cost + cost
        finally:
            await mapped.aclose()
            drawing.cancel()
            with suppress(asyncio.CancelledError):
                await drawing
            self._tell()
        return self._code()

    def _left(self, path: Path) -> Iterator[MapInput]:
        for line in read_lines(path):
            if not self._results.has(line):
                self._lines[line.id] = line
                yield MapInput(self._input(line), line.id, line.session, line.user)

    def _input(self, line: Line) -> Any:
        return input_for(self._args, line.input) if isinstance(line.input, str) else line.input

    async def _keep_drawing(self, mapped: Map[Any]) -> None:
        while True:
            self._draw(mapped)
            await asyncio.sleep(_EVERY)

    def _draw(self, mapped: Map[Any]) -> None:
        percent = self._done * 100 // self._total if self._total else 100
        message = f"{percent:3} %  {self._done}/{self._total}  {self._tally()}"
        if (batches := mapped.batches) is not None and batches.batches:
            message += say(f"; batch: {batches.done}/{batches.of}", f"、バッチ: {batches.done}/{batches.of}")
        if not self._screen.is_plain(self._screen.err):
            self._screen.replace(truncate(f"{'█' * (percent // 4):<25} {message}", columns() - 1))
        elif percent // 10 > self._tenth and not self._args.quiet:
            self._tenth = percent // 10
            self._screen.note(message)

    def _tally(self) -> str:
        failed = sum([count for kind, count in self._ended.items() if kind not in ("completed", "degraded", *_UNWRITTEN)])
        money = "$?" if self._cost is None else f"${self._cost:.4f}"
        return say(f"{failed} failed, {money}", f"失敗 {failed} 件、{money}")

    def _tell(self) -> None:
        """Say how it ended, and what is left to do."""
        if not self._args.quiet:
            done = say(f"{self._done} of {many(self._total, 'result')} in {self._results.path}",
                       f"{self._results.path} に {self._total} 件中 {self._done} 件の結果があります")  # fmt: skip
            self._screen.note(f"[{done}; {self._tally()}]")
        for run in self._waiting[:3]:
            command = f"{this_command()} runs resume {run} --answer …{place_options(self._args)}"
            self._screen.tell(f"a question is open: {command}", f"回答待ちの確認があります: {command}")
        if self._done < self._total:
            left = self._total - self._done
            self._screen.tell(
                f"{left} left; the same command again continues",
                f"残り {left} 件です。同じコマンドをもう一度実行すると続きから再開します",
            )

    def _code(self) -> int:
        failed = self._ended.keys() - {"completed", "degraded", *_UNWRITTEN}
        return FAILED if failed else WAITING if self._done < self._total else DONE
