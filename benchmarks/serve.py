"""What serving costs: 1,000 open streams on one process. CPU a forwarded chunk (the slope between short and long runs; the rest is
the run's own), memory a stream, time to the first word over the model's, and what readers that do not read cost the others.

    python benchmarks/serve.py                 kaname
    python benchmarks/serve.py bare            an ASGI function that only sends: what the server and the kernel take
    python benchmarks/serve.py pydantic-ai     a peer's AG-UI server, if it is installed here (pydantic-ai-slim[ag-ui])
    python benchmarks/serve.py fair            how long one user waits while another asks for much: facts, pictures; figures
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
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


LONG, RUNS = 5_000, (300, 3_000)  # facts of the greedy user's run; recorded runs that are counted
BLIND = """
from kaname import Agent, ScriptedModel, SqliteJournal
from kaname.kernel.bases import ModelInfo
class Blind(ScriptedModel):
    def __init__(self):
        super().__init__(lambda request: "seen")
        self.about = ModelInfo(takes=())
agents = [Agent(Blind(), name="desk", journal=SqliteJournal("journal.db"))]
"""


class FairServer(Server):
    """A server with users: `greedy`, who has a long run, `other`, who has a short one, and `boss`, an administrator."""

    def __init__(self, folder: Path, runs: int) -> None:
        from kaname.serve.users import Users

        users = Users(folder / "users.json")
        roles = {"greedy": ["talk"], "other": ["talk"], "boss": ["admin"]}
        self.tokens = {name: users.add(name, own) for name, own in roles.items()}
        asyncio.run(self._fill(folder, runs))
        (folder / "served.py").write_text(BLIND)
        command = [
            sys.executable,
            "-m",
            "kaname.cli.main",
            "serve",
            "-a",
            "served.py:agents",
            "--port",
            "0",
            "--log-level",
            "error",
        ]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, preexec_fn=_many_files)
        assert self.process.stdout is not None
        found = re.search(r":(\d+)", self.process.stdout.readline())
        assert found is not None
        self.port = int(found[1])

    async def _fill(self, folder: Path, runs: int) -> None:
        from kaname import SqliteJournal
        from kaname.core.events import Event, ModelReplied, Opened, Received, Stopped, ToolFinished, ToolStarted
        from kaname.core.messages import ModelReply, ToolCall, ToolResult, Usage, assistant, user
        from kaname.core.steps import CallModel, Stop

        journal = SqliteJournal(folder / "journal.db")
        facts = {"long": ("greedy", LONG), "short": ("other", 10), **{f"run-{number}": ("boss", 40) for number in range(runs)}}
        for run_id, (owner, count) in facts.items():
            lease, now = await journal.claim(run_id), time.time()
            bodies = [Opened(user=owner, recipe={"model": "scripted"}), Received(user("do it"))]
            for number in range((count - 3) // 3):
                call = ToolCall(f"c{number}", f"tool_{number % 7}", {"text": "word " * 40})
                reply = ModelReply(assistant("word " * 40, call), usage=Usage(10, 10, 0, 0.001))
                bodies += [
                    ModelReplied(reply, CallModel()),
                    ToolStarted(call),
                    ToolFinished(ToolResult(call.id, call.name, "word " * 40)),
                ]
            bodies.append(Stopped(Stop("completed")))
            await journal.append([Event(run_id, seq, now, "desk", body) for seq, body in enumerate(bodies, 1)], lease.epoch)
        await journal.close()

    async def ask(self, who: str, path: str, body: object = None, accept: str = "*/*") -> tuple[float, bytes]:
        """Return the seconds until the whole response was there, and its body."""
        began, data = time.perf_counter(), b"" if body is None else json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\nconnection: close\r\n"
        head += (
            f"authorization: Bearer {self.tokens[who]}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        try:
            writer.write(head.encode() + data)
            answer = await reader.read()
        finally:
            writer.transport.abort()
        assert b" 200 " in answer[:20] or b" 201 " in answer[:20], answer[:500]
        return time.perf_counter() - began, answer


async def crowd(server: FairServer, path: str, accept: str) -> dict[str, object]:
    """100 connections of one user, each asking again and again for facts, and what another user's request waits meanwhile."""

    async def insist() -> None:
        while True:
            try:
                await server.ask("greedy", path, accept=accept)
            except AssertionError:  # too many requests
                await asyncio.sleep(1)

    alone = min([(await server.ask("other", "/api/runs/short"))[0] for _ in range(5)])
    greedy = [asyncio.create_task(insist()) for _ in range(100)]
    await asyncio.sleep(3)
    waited, until = [], time.perf_counter() + 20
    while time.perf_counter() < until:
        waited.append((await server.ask("other", "/api/runs/short"))[0])
        await asyncio.sleep(0.2)
    for one in greedy:
        one.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
    began = time.perf_counter()
    await server.ask("other", "/api/runs/short")
    left = time.perf_counter() - began
    middle = sorted(waited)[len(waited) // 2]
    told = {"alone": alone, "with 100": middle, "at most": max(waited), "after they left": left}
    return {"path": path, "accept": accept, "requests": len(waited)} | {
        f"{name}, ms": round(one * 1000, 1) for name, one in told.items()
    }


async def metrics(server: FairServer, runs: int) -> dict[str, object]:
    took = [(await server.ask("boss", "/api/figures"))[0] for _ in range(10)]
    return {
        "runs": runs,
        "first, ms": round(took[0] * 1000),
        "third, ms": round(took[2] * 1000),
        "tenth, ms": round(took[-1] * 1000),
    }


async def pictures(server: FairServer) -> dict[str, object]:
    """Ten dense pictures of one user, and what a small one of another takes: meanwhile, and after the first has left."""
    from base64 import b64encode

    from tests.senses.files import picture

    def message(content: bytes) -> dict[str, object]:
        url = f"data:image/png;base64,{b64encode(content).decode()}"
        return {"input": {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}}

    def dense(number: int) -> bytes:
        lines = [f"{number} {line} " + "the invoice of March was paid on Tuesday " * 4 for line in range(90)]
        return picture(*lines, size=18, width=1900, gap=21)

    first, _ = await server.ask("other", "/api/runs", message(picture("nothing else to do")))
    alone, _ = await server.ask("other", "/api/runs", message(picture("alone")))
    one, _ = await server.ask("greedy", "/api/runs", message(dense(99)))
    greedy = [asyncio.create_task(server.ask("greedy", "/api/runs", message(dense(number)))) for number in range(10)]
    await asyncio.sleep(2)
    meanwhile, _ = await server.ask("other", "/api/runs", message(picture("meanwhile")))
    done = sum(task.done() for task in greedy)
    for task in greedy:
        task.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
    after, _ = await server.ask("greedy", "/api/runs", message(picture("afterwards")))
    told = {
        "first": first,
        "alone": alone,
        "a dense one": one,
        "meanwhile": meanwhile,
        "of the first user, after leaving": after,
    }
    return {"dense ones read meanwhile": done} | {f"{name}, s": round(seconds, 2) for name, seconds in told.items()}


def fairness() -> None:
    for runs in RUNS:
        with tempfile.TemporaryDirectory() as place:
            server = FairServer(Path(place), runs)
            try:
                print(asyncio.run(metrics(server, runs)), flush=True)
                if runs == RUNS[0]:
                    for accept in ("*/*", "text/event-stream"):
                        print(asyncio.run(crowd(server, "/api/runs/long/facts", accept)), flush=True)
                    print(asyncio.run(crowd(server, "/api/runs/long/events", "text/event-stream")), flush=True)
                    print(asyncio.run(pictures(server)), flush=True)
            finally:
                server.process.kill()


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
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    fairness() if what == "fair" else asyncio.run(main(what))
