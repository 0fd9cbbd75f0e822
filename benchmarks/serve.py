"""What serving costs: 1,000 open streams on one process. CPU a forwarded chunk (the slope between short and long runs; the rest is
the run's own), memory a stream, time to the first word over the model's, and what readers that do not read cost the others.

    python benchmarks/serve.py                 kaname
    python benchmarks/serve.py bare            an ASGI function that only sends: what the server and the kernel take
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

PACE = 0.1
KANAME = """
from kaname import Agent, ScriptedModel, SqliteJournal
def script(request):
    return "word of " * int(request.messages[-1].text)
agents = [Agent(ScriptedModel(script, pace={pace}), name="desk", journal=SqliteJournal("journal.db"))]
"""
PEER = """
import asyncio, uvicorn
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.routing import Route
async def stream(messages, info):
    for _ in range(int(messages[-1].parts[-1].content)):
        await asyncio.sleep({pace})
        yield "word of "
agent = Agent(FunctionModel(stream_function=stream))
async def run(request):
    return await AGUIAdapter.dispatch_request(request, agent=agent)
app = Starlette(routes=[Route("/", run, methods=["POST"])])
print("http://127.0.0.1:8765", flush=True)
uvicorn.run(app, port=8765, log_level="error", loop="uvloop", http="httptools")
"""
BARE = """
import asyncio, json, uvicorn
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    pieces = int(json.loads((await receive())["body"])["messages"][0]["content"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for number in range(pieces):
        await asyncio.sleep({pace})
        await send({"type": "http.response.body", "body": b'data: {"delta":"word of ","n":%d}\\n\\n' % number, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
print("http://127.0.0.1:8765", flush=True)
uvicorn.run(app, port=8765, log_level="error", loop="uvloop", http="httptools", lifespan="off")
"""
AG_UI = {"threadId": "t", "runId": "r", "tools": [], "context": [], "state": {}, "forwardedProps": {}}


class Server:
    def __init__(self, peer: str, folder: Path) -> None:
        program = {"": KANAME, "bare": BARE}.get(peer, PEER)
        (folder / "served.py").write_text(program.replace("{pace}", str(PACE)))
        own = ["-m", "kaname.cli.main", "serve", "-a", "served.py:agents", "--port", "0", "--log-level", "error"]
        command = [sys.executable, *(["served.py"] if peer else own)]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, preexec_fn=_many_files)
        assert self.process.stdout is not None
        found = re.search(r":(\d+)", self.process.stdout.readline())
        assert found is not None
        self.port, self.peer = int(found[1]), peer
        self.path = "/" if peer else "/api/runs"

    def body(self, pieces: int) -> bytes:
        if not self.peer:
            return json.dumps({"input": str(pieces), "mode": "stream"}).encode()
        return json.dumps({**AG_UI, "messages": [{"id": "1", "role": "user", "content": str(pieces)}]}).encode()

    def cpu(self) -> float:
        held = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(held[11]) + int(held[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """KB."""
        held = Path(f"/proc/{self.process.pid}/status").read_text()
        return float(re.search(r"VmRSS:\s+(\d+)", held)[1])  # type: ignore[index]


async def one(server: Server, pieces: int, *, stuck: bool = False) -> tuple[float, int]:
    """One stream to its end: when the first word came, and how many events."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            break
        except OSError:
            await asyncio.sleep(0.05)
    body = server.body(pieces)
    head = (
        f"POST {server.path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    began = time.perf_counter()
    writer.write(head.encode() + body)
    first, events = 0.0, 0
    if stuck:
        await asyncio.sleep(3600)
    while data := await reader.read(65_536):
        if not first and b"word of" in data:
            first = time.perf_counter() - began
        events += data.count(b"data: ")
        if data.endswith(b"0\r\n\r\n"):
            break
    writer.close()
    return first, events


async def load(server: Server, streams: int, pieces: int, *, stuck: int = 0) -> dict[str, float]:
    before_cpu, before_memory = server.cpu(), server.memory()
    began, peak = time.perf_counter(), 0.0
    hanging = [asyncio.create_task(one(server, pieces, stuck=True)) for _ in range(stuck)]
    working = [asyncio.create_task(one(server, pieces)) for _ in range(streams)]
    while not all(task.done() for task in working):
        await asyncio.sleep(0.2)
        peak = max(peak, server.memory())
    told = await asyncio.gather(*working)
    for task in hanging:
        task.cancel()
    middle = sorted(first for first, _ in told)[len(told) // 2]
    return {
        "streams": streams,
        "stuck readers": stuck,
        "seconds": round(time.perf_counter() - began, 1),
        "events": sum(count for _, count in told),
        "CPU, s": round(server.cpu() - before_cpu, 2),
        "KB a stream": round((peak - before_memory) / streams, 1),
        "first word, ms over the model's": round((middle - PACE) * 1000, 1),
    }


async def following(server: Server, followers: int, runs: int, pieces: int) -> dict[str, float]:
    """Runs that go on by themselves, and streams that only follow them: what a stream costs without a run of its own."""
    ids = [await started(server, pieces) for _ in range(runs)]
    await asyncio.sleep(1)
    before_cpu, before_memory, peak = server.cpu(), server.memory(), 0.0
    reading = [asyncio.create_task(read(server, f"/api/runs/{ids[number % runs]}/events")) for number in range(followers)]
    while not all(task.done() for task in reading):
        await asyncio.sleep(0.2)
        peak = max(peak, server.memory())
    events = sum(await asyncio.gather(*reading))
    cpu = server.cpu() - before_cpu
    return {
        "followers": followers,
        "runs": runs,
        "events": events,
        "CPU, µs an event": round(cpu * 1e6 / events, 1),
        "KB a stream": round((peak - before_memory) / followers, 1),
    }


async def started(server: Server, pieces: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = json.dumps({"input": str(pieces), "mode": "detach"}).encode()
    head = "POST /api/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = (await reader.read()).rpartition(b"\r\n\r\n")[2]
    writer.close()
    return str(json.loads(answer)["run_id"])


async def read(server: Server, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    events = 0
    while data := await reader.read(65_536):
        events += data.count(b"data: ")
        if data.endswith(b"0\r\n\r\n"):
            break
    writer.close()
    return events


def _many_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (8_192, 8_192))


async def main(peer: str) -> None:
    _many_files()
    with tempfile.TemporaryDirectory() as place:
        server = Server(peer, Path(place))
        try:
            await load(server, 5, 5)
            if not peer:
                print(await following(server, 1_000, 10, 60), flush=True)
            measured = []
            for streams, pieces, stuck in ((1, 10, 0), (1_000, 20, 0), (1_000, 220, 0), (100, 50, 0), (100, 50, 50)):
                measured.append(await load(server, streams, pieces, stuck=stuck))
                print(measured[-1], flush=True)
            short, long = measured[1:3]
            slope = (long["CPU, s"] - short["CPU, s"]) / (long["events"] - short["events"]) * 1e6
            print(f"CPU a forwarded chunk: {slope:.1f} µs; a short run with its stream: {short['CPU, s']:.2f} ms")
        finally:
            server.process.kill()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
