"""How long the `kaname` command takes to start: CPU of the process, and time by the clock."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

RUNS, PATIENCE = 50, 60.0  # runs in the journal that is listed; seconds after which a command hangs
LEAST = 7  # samples of each command: they are short, and the first reads files from the disk
_COMMAND = [sys.executable, "-c", "import sys; from kaname.cli.main import main; sys.exit(main())"]  # as the installed script
_FILL = f"""
import asyncio, sys
from kaname import Agent, ScriptedModel

async def fill():
    agent = Agent(ScriptedModel(["An answer."] * {RUNS}), journal=sys.argv[1])
    for number in range({RUNS}):
        await agent.run(f"Question {{number}}")
    await agent.close()

asyncio.run(fill())
"""


@dataclass
class Start:
    """A command: what is measured, how much CPU it takes at most, and the samples in ms."""

    name: str
    wanted: float
    arguments: tuple[str, ...]
    until_asked: bool = False
    cpu: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)


def starts(folder: Path, environment: dict[str, str]) -> list[Start]:
    """Return the commands, with a journal of 50 runs for those that read one."""
    journal = str(folder / "commands.db")
    subprocess.run([sys.executable, "-c", _FILL, journal], env=environment, check=True, timeout=PATIENCE, cwd=folder)
    return [
        Start("`kaname --version`", 90, ("--version",)),
        Start("`kaname runs list`", 150, ("runs", "list", "--journal", journal)),
        Start("`kaname run` until it asks the model", 300, ("run", "hello", "-m", "openai/gate", "--journal", journal), True),
    ]


def take_sample(start: Start, folder: Path, environment: dict[str, str]) -> None:
    """Start the command once, and keep what it took."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        clean = {**environment, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-gate"}
        begun, quiet = time.perf_counter(), subprocess.DEVNULL
        command = [*_COMMAND, *start.arguments]
        with subprocess.Popen(command, env=clean, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet) as process:
            if start.until_asked:
                try:
                    _wait_for_question(server)
                    start.clock.append((time.perf_counter() - begun) * 1000)
                    start.cpu.append(_cpu_of(process.pid) * 1000)
                finally:
                    process.kill()
                return
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"kaname {' '.join(start.arguments)} ended with {process.returncode}")
        start.clock.append((time.perf_counter() - begun) * 1000)
        start.cpu.append((used.ru_utime + used.ru_stime) * 1000)


def _wait_for_question(server: socket.socket) -> None:
    """Wait for the request to the model. It is never answered."""
    while True:
        connection, _ = server.accept()
        connection.settimeout(PATIENCE)
        with connection:
            if b"POST" in connection.recv(65536):  # and not a connection that is only opened in advance
                return


def _cpu_of(process: int) -> float:
    """Return the CPU seconds of a process that is still running, of all its threads (Linux: what `clock_getcpuclockid` gives)."""
    return time.clock_gettime((~process << 3) | 2)
