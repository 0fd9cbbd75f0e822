"""What serving costs: 1,000 open streams on one process. CPU a forwarded chunk, memory a stream, time to the first byte, and what
a reader that does not read costs the others.

    python benchmarks/serve.py                 kaname
    python benchmarks/serve.py pydantic-ai     a peer's AG-UI server, if it is installed here (pydantic-ai-slim[ag-ui])
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PIECES, PACE = 30, 0.1
KANAME = """
from kaname import Agent, ScriptedModel, SqliteJournal
import kaname.models.providers.scripted as scripted
agents = [Agent(ScriptedModel(lambda request: "word of " * {pieces}, pace={pace}), name="desk", journal=SqliteJournal("journal.db"))]
"""
PEER = """
import asyncio, uvicorn
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
async def stream(messages, info):
    for _ in range({pieces}):
        await asyncio.sleep({pace})
        yield "word of "
app = Agent(FunctionModel(stream_function=stream)).to_ag_ui()
if __name__ == "__main__":
    print("http://127.0.0.1:8765", flush=True)
    uvicorn.run(app, port=8765, log_level="error")
"""
AG_UI = {
    "threadId": "t",
    "runId": "r",
    "messages": [{"id": "1", "role": "user", "content": "go"}],
    "tools": [],
    "context": [],
    "state": {},
    "forwardedProps": {},
}


class Server:
    def __init__(self, peer: str, folder: Path) -> None:
        program = (PEER if peer else KANAME).replace("{pieces}", str(PIECES)).replace("{pace}", str(PACE))
        (folder / "served.py").write_text(program)
        own = ["-m", "kaname.cli.main", "serve", "-a", "served.py:agents", "--port", "0", "--log-level", "error"]
        command = [sys.executable, *(["served.py"] if peer else own)]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, preexec_fn=_many_files)
        assert self.process.stdout is not None
        found = re.search(r":(\d+)", self.process.stdout.readline())
        assert found is not None
        self.port = int(found[1])
        self.path = "/" if peer else "/api/runs"
        self.body = AG_UI if peer else {"input": "go", "mode": "stream"}

    def cpu(self) -> float:
        held = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(held[11]) + int(held[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """KB."""
        return float(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1])  # type: ignore[index]


async def one(
    server: Server, opened: list[int], peak: asyncio.Event | None = None, *, stuck: bool = False
) -> tuple[float, int]:
    """One stream to its end: when the first word came, and how many words."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            break
        except OSError:
            await asyncio.sleep(0.05)
    body = json.dumps(server.body).encode()
    head = f"POST {server.path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    began = time.perf_counter()
    writer.write(head.encode() + body)
    first, words = 0.0, 0
    if stuck:
        await asyncio.sleep(3600)
    while data := await reader.read(65_536):
        found = data.count(b"word of") if words or b"delta" in data else 0
        if found and not first:
            first = time.perf_counter() - began
            opened[0] += 1
        words += found
        if b"0\r\n\r\n" in data[-5:]:
            break
    writer.close()
    return first, words


async def load(server: Server, streams: int, *, stuck: int = 0) -> dict[str, float]:
    opened = [0]
    before_cpu, before_memory = server.cpu(), server.memory()
    began = time.perf_counter()
    hanging = [asyncio.create_task(one(server, opened, stuck=True)) for _ in range(stuck)]
    working = [asyncio.create_task(one(server, opened)) for _ in range(streams)]
    peak = 0.0
    while not all(task.done() for task in working):
        await asyncio.sleep(0.2)
        peak = max(peak, server.memory())
    told = await asyncio.gather(*working)
    took = time.perf_counter() - began
    for task in hanging:
        task.cancel()
    words = sum(count for _, count in told)
    return {
        "streams": streams,
        "seconds": round(took, 1),
        "words": words,
        "CPU, µs a chunk": round((server.cpu() - before_cpu) * 1e6 / max(1, words), 1),
        "KB a stream": round((peak - before_memory) / streams, 1),
        "first word, ms (median)": round(sorted(first for first, _ in told)[len(told) // 2] * 1000, 1),
    }


def _many_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (8_192, 8_192))


async def main(peer: str) -> None:
    _many_files()
    with tempfile.TemporaryDirectory() as place:
        server = Server(peer, Path(place))
        try:
            await load(server, 5)
            for streams, stuck in ((1, 0), (100, 0), (1_000, 0), (1_000, 0), (100, 20)):
                told = await load(server, streams, stuck=stuck)
                print({**told, **({"stuck readers": stuck} if stuck else {})})
        finally:
            server.process.kill()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
