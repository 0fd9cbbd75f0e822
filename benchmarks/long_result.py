"""Does the local model find a line in the middle of a result of 2.7 MB with `read_result`? One run a question; it takes minutes.

python benchmarks/long_result.py [number of questions]
"""

from __future__ import annotations

import asyncio
import sys
from time import monotonic

from kaname import Agent, LargeResults, max_steps, tool
from kaname.models import Local

LINE = "{:06d} the quick brown fox jumps over the lazy dog, again {}"
NEEDLES = {22_500: "CODE heron-42", 31_007: "ERROR disk sda7 is full"}
QUESTIONS = (
    ("Fetch the log. What is the CODE in it?", "heron-42"),
    ("Fetch the log. Which disk is full?", "sda7"),
    ("ログを取得してください。CODE は何ですか。", "heron-42"),
)


@tool(effect="pure")
def fetch_log() -> str:
    """Fetch the log of the server."""
    return "\n".join([LINE.format(number, NEEDLES.get(number, "and")) for number in range(45_000)])


async def main() -> None:
    model, right = Local(context=8192), 0
    asked = QUESTIONS[: int(sys.argv[1])] if sys.argv[1:] else QUESTIONS
    for question, wanted in asked:
        agent = Agent(model, [fetch_log], context=LargeResults(shown=1_500), stops=max_steps(8), journal="memory")
        begun = monotonic()
        result = await agent.run(question)
        calls = [f"{call.name}({call.args})" for message in result.history for call in message.calls]
        right += wanted in str(result.output)
        print(f"{question}\n  {'right' if wanted in str(result.output) else 'WRONG'}: {result.output!r:.200}")
        print(f"  {' -> '.join(calls)}\n  {result.stop.kind}, {result.usage.total} tokens, {monotonic() - begun:.0f} s")
        await agent.close()
    print(f"{right} of {len(asked)} right")


asyncio.run(main())
