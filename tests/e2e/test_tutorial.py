"""The tutorial, as somebody follows it: the file grows, the server answers, is killed in the middle of an order, and goes on."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.slow


@pytest.fixture(params=["tutorial.md", "ja/tutorial.md"])
def desk(request, tmp_path):
    page = (DOCS / request.param).read_text(encoding="utf-8")
    steps = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(steps) == 5
    return Desk(tmp_path, steps)


class Desk:
    """The file of the tutorial, and the server that it becomes."""

    def __init__(self, folder, steps):
        self.folder, self.steps = folder, steps
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "KANAME_LANG": "en"}

    def write(self, upto):
        (self.folder / "desk.py").write_text("\n\n".join(self.steps[:upto]), encoding="utf-8")

    def python(self, *arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=self.folder, env=self.environment)

    def serve(self):
        command = [sys.executable, "-m", "uvicorn", "desk:app", "--port", str(self.port), "--log-level", "error"]
        self.server = subprocess.Popen(command, cwd=self.folder, env=self.environment)
        until(lambda: self.ask("GET", "/runs") is not None)

    def stop(self, how):
        self.server.send_signal(how)
        self.server.wait(20)

    def ask(self, method, path):
        try:
            with urlopen(Request(f"http://127.0.0.1:{self.port}{path}", method=method), timeout=30) as answer:
                return answer.read().decode()
        except OSError:
            return None

    def status(self, run_id):
        return {one["run"]: one["status"] for one in json.loads(self.ask("GET", "/runs"))}[run_id]

    def begin_order(self):
        """An order that a person has said yes to, and that is under way."""
        chunks = [
            json.loads(line[6:]) for line in self.ask("POST", "/ask?text=Order").splitlines() if line.startswith("data: ")
        ]
        run_id = chunks[0]["data"]["run_id"]
        assert self.status(run_id) == "waiting"
        assert json.loads(self.ask("POST", f"/runs/{run_id}/answer?text=yes"))["answered"]
        until(
            lambda: (
                "tool_started"
                in self.python("-m", "kaname.cli.main", "runs", "show", run_id, "--json", "--journal", "desk.db").stdout
            )
        )
        return run_id

    def orders(self):
        book = self.folder / "wholesaler.txt"
        return len(book.read_text().splitlines()) if book.exists() else 0


def until(happens, seconds=30):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_tutorial_from_the_first_step_to_the_last(desk):
    desk.write(1)
    assert "800" in desk.python("desk.py").stdout
    desk.write(3)
    told = desk.python("desk.py")
    assert told.returncode == 0, told.stderr
    assert "waiting" in told.stdout
    assert desk.orders() == 1
    desk.write(4)
    desk.serve()
    try:
        run_id = desk.begin_order()
        desk.stop(signal.SIGKILL)
        desk.serve()
        until(lambda: desk.status(run_id) == "waiting")  # nobody knows whether the order went through
        assert desk.orders() == 1
        desk.stop(signal.SIGTERM)
        desk.write(5)
        desk.serve()
        run_id = desk.begin_order()
        desk.stop(signal.SIGKILL)
        desk.serve()
        until(lambda: desk.status(run_id) == "completed")
        assert desk.orders() == 2
        outcome = json.loads(desk.ask("GET", f"/runs/{run_id}"))
        assert outcome["output"]["yen"] == 1600
        run_id = desk.begin_order()
        desk.stop(signal.SIGTERM)  # in order: what is under way is interrupted, too, and goes on
        desk.serve()
        until(lambda: desk.status(run_id) == "completed")
        assert desk.orders() == 3
    finally:
        desk.stop(signal.SIGKILL)
