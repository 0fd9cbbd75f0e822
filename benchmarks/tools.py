"""What guardrails and the calculator cost. `uv run python benchmarks/tools.py`"""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

from kaname import Agent, Guardrails, MemoryJournal, ModelReply, Usage
from kaname.core.messages import Message, Text
from kaname.policies.content.guardrails.patterns import Pattern, Scan
from kaname.tools.calculator.arithmetic import evaluate
from kaname.tools.calculator.exact import Unsolvable
from kaname.tools.calculator.tool import format_number

CORPUS = Path(__file__).parent.parent / "tests" / "corpora"


def expanded(given: Any) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, dict):
        text, times = given["repeat"]
        return text * times
    return "".join([expanded(part) for part in given])


def calculator() -> None:
    slowest, largest, name, count = 0.0, 0, "", 0
    for line in (CORPUS / "calculator_hostile.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        text = expanded(case["input"])
        begun = time.process_time()
        try:
            format_number(evaluate(text))
        except Unsolvable:
            pass
        took = time.process_time() - begun
        if took > slowest:
            slowest, name = took, case["name"]
        tracemalloc.start()
        try:
            format_number(evaluate(text))
        except Unsolvable:
            pass
        largest = max(largest, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        count += 1
    print(f"calculator, {count} hostile inputs: slowest {slowest * 1000:.1f} ms CPU ({name}), largest {largest / 1e6:.1f} MB")


def patterns() -> None:
    text = "The quick brown fox jumps over the lazy dog, 12 times a day. 今日は良い天気です。" * 1500
    for many in (
        [r"(?i)sk-[a-z0-9]{8,}"],
        [r"(?i)sk-[a-z0-9]{8,}", r"(?<!\d)\d{4}-\d{4}(?!\d)", r"(?i)password\s*[:=]", "極秘"],
    ):
        took = scanned([Pattern(one) for one in many], text)
        print(f"{len(many)} patterns: {took / len(text) * 1e9:.0f} ns a character ({len(text) / 1e6 / took:.1f} MB/s)")
    words = [f"{chr(0x4E00 + number)}{chr(0x5000 + number * 7 % 900)}語" for number in range(1_000)]
    japanese = "".join([chr(0x4E00 + number * 13 % 1_500) + "の" for number in range(10_000)])
    took = scanned([Pattern(word) for word in words], japanese)
    print(f"1,000 words over Japanese: {took / len(japanese) * 1e9:.0f} ns a character")
    nasty = Pattern("(a|a)*b")
    begun = time.process_time()
    nasty.search("a" * 100_000)
    print(f"(a|a)*b on 100,000 a: {(time.process_time() - begun) * 1000:.0f} ms CPU")


def scanned(patterns: list[Pattern], text: str) -> float:
    scan = Scan(patterns)
    begun = time.process_time()
    scan.feed(text)
    scan.end()
    return time.process_time() - begun


class Streaming:
    name = "streaming"

    def __init__(self, pieces: list[str]) -> None:
        self.pieces, self.sent = pieces, 0

    async def reply(self, request: Any, emit: Any) -> ModelReply:
        for piece in self.pieces:
            self.sent += len(piece)
            await emit(piece)
        return ModelReply(Message("assistant", (Text("".join(self.pieces)),)), "end_turn", Usage())


async def delay(told: str, rails: Guardrails | None) -> None:
    """How many characters the reader is behind the model at most, and what a piece costs."""
    pieces = ["word " + str(n) + " " for n in range(4_000)]
    model = Streaming(pieces)
    agent = Agent(model, policies=[rails] if rails else [], journal=MemoryJournal())
    behind = arrived = 0
    begun = time.process_time()
    async for chunk in agent.run("go"):
        if chunk.type == "delta":
            arrived += len(chunk["content"])
            behind = max(behind, model.sent - arrived)
    took = time.process_time() - begun
    print(f"{told}: {took / len(pieces) * 1e6:.1f} µs a piece")


async def held(told: str, rails: Guardrails) -> None:
    """The delay itself, at the guard: characters that have come and not gone."""
    from kaname.policies.content.guardrails.gate import Held

    come = gone = most = 0

    async def emit(text: str, kind: str = "text", call_id: str = "") -> None:
        nonlocal gone
        gone += len(text)

    guard = Held(rails, emit, None)  # type: ignore[arg-type]
    for n in range(4_000):
        piece = f"word {n} "
        come += len(piece)
        await guard.take(piece)
        most = max(most, come - gone)
    print(f"{told}: at most {most} characters held back")


async def guarded() -> None:
    blocked = [r"(?i)sk-[a-z0-9]{8,}", r"(?<!\d)\d{4}-\d{4}(?!\d)"]
    limits: dict[str, Any] = {"max_input_tokens": None, "max_output_tokens": None}
    await delay("stream without guardrails", None)
    await delay("stream with two patterns", Guardrails(**limits, blocked_patterns=blocked))
    await delay("stream with a check, window 500", Guardrails(**limits, output_checks=[lambda text: None]))
    await held("two patterns", Guardrails(**limits, blocked_patterns=blocked))
    await held("a check, window 500", Guardrails(**limits, output_checks=[lambda text: None]))


if __name__ == "__main__":
    calculator()
    patterns()
    asyncio.run(guarded())
