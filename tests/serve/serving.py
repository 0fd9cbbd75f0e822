"""A real server in a process of its own, and small clients for it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests import warm

ROOT = Path(__file__).parents[2]


# What a server loads with the first request over MCP or A2A, for two seconds: `also` of tests that use these protocols.
PROTOCOLS = "a2a.server.routes,fastmcp.server.http,fastmcp.tools.base,mcp.server.request_state,kaname.serve.dialects.a2a"


class Served:
    """`kaname serve` as users start it. `url` is where it listens. `also`: what its process has loaded beside kaname."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        agents: str = "tests/serve/agents.py:agents",
        port: int = 0,
        also: str = "",
        **environment: str,
    ) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "kaname.cli.main", "serve", "-a", str(ROOT / agents), "--port", str(port), *options]
        own = {
            **os.environ,
            "KANAME_TEST_FOLDER": str(folder),
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "LANG": "C.UTF-8",
            **environment,
        }
        own.pop("KANAME_TOKEN", None) if "KANAME_TOKEN" not in environment else None
        self.log = folder / f"server-{time.time_ns()}.log"
        with self.log.open("w") as log:
            self.process = warm.Popen(command, env=own, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, also=also)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"(http://\S+)", line)
        assert found, f"it did not start: {line}{self.log.read_text()}"
        self.url = found[1]
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(60)
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()


@contextmanager
def serving(folder: Path, *options: str, **more: Any) -> Iterator[Served]:
    served = Served(folder, *options, **more)
    try:
        yield served
    finally:
        served.end()


def client(served: Served, token: str = "", **more: Any) -> httpx.Client:
    """Make a client. It verifies no certificates, because reading those of all authorities takes 30 ms."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=served.url, headers=headers, timeout=60, trust_env=False, verify=False, **more)


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events: `id`, `event`, and `data`, which is JSON if it can be."""
    held: dict[str, Any] = {}
    for line in lines:
        if not line:
            if "data" in held:
                yield held
            held = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            held[name] = json.loads(value) if name == "data" and value.startswith(("{", "[")) and value != "[DONE]" else value
