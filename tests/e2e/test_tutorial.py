"""The tutorial, as somebody follows it: the file grows, the server answers, is killed in the middle of an order, and goes on."""

import ast
import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests import warm
from tests.parts import SOURCE

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.slow


def follow(page, tmp_path):
    page = (DOCS / page).read_text(encoding="utf-8")
    steps = re.findall(r"```python\n(.*?)```", page, re.S)
    trials = re.findall(r"```python try_it.py\n(.*?)```", page, re.S)
    assert (len(steps), len(trials)) == (5, 2)
    return Desk(tmp_path, steps, trials)


class Desk:
    """The file of the tutorial, and the server that it becomes."""

    def __init__(self, folder, steps, trials):
        self.folder, self.steps, self.trials = folder, steps, trials
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONPATH": SOURCE, "KANAME_LANG": "en"}

    def write(self, upto, seconds=2):
        """Write the program. `seconds`: how long the wholesaler takes."""
        program = "\n\n".join(self.steps[:upto]).replace("asyncio.sleep(2)", f"asyncio.sleep({seconds})")
        (self.folder / "desk.py").write_text(program, encoding="utf-8")

    def try_it(self, trial):
        (self.folder / "try_it.py").write_text(self.trials[trial], encoding="utf-8")
        done = self.python("try_it.py")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def python(self, *arguments):
        command = [sys.executable, *arguments]
        return warm.run(command, capture_output=True, text=True, timeout=180, cwd=self.folder, env=self.environment)

    def serve(self):
        command = [sys.executable, "-m", "uvicorn", "desk:app", "--port", str(self.port), "--log-level", "error"]
        self.server = warm.Popen(command, cwd=self.folder, env=self.environment)
        until(lambda: self.ask("GET", "/runs") is not None)

    def stop(self, how):
        self.server.send_signal(how)
        self.server.wait(60)

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://127.0.0.1:{self.port}{path}", data, {"content-type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=30) as answer:
                return answer.read().decode()
        except HTTPError as refused:
            return f"{refused.code} {refused.read().decode()}"
        except OSError:
            return None

    def answer(self, run_id, answer):
        return self.ask("POST", f"/runs/{run_id}/answer", {"answer": answer})

    def status(self, run_id):
        return {one["run"]: one["status"] for one in json.loads(self.ask("GET", "/runs"))}[run_id]

    def begin_order(self):
        """An order that a person has said yes to, and that is under way."""
        chunks = [
            json.loads(line[6:]) for line in self.ask("POST", "/ask?text=Order").splitlines() if line.startswith("data: ")
        ]
        run_id = chunks[0]["data"]["run_id"]
        assert self.status(run_id) == "waiting"
        assert "404" in self.answer("nobody", "yes")
        assert json.loads(self.answer(run_id, "yes"))["answered"]
        assert "409" in self.answer(run_id, "no"), "it is answered, and under way"
        assert json.loads(self.ask("GET", f"/runs/{run_id}"))["status"] == "running"
        until(
            lambda: (
                "tool_started"
                in self.python("-m", "kaname.cli.main", "runs", "show", run_id, "--json", "--journal", "desk.db").stdout
            )
        )
        return run_id

    def interrupt_order(self, upto, how):
        """Stop the server in the middle of an order, and start it again. The wholesaler is slow enough for a busy machine."""
        self.write(upto, seconds=60)
        self.serve()
        run_id = self.begin_order()
        self.stop(how)
        self.write(upto)
        self.serve()
        return run_id

    def orders(self):
        book = self.folder / "wholesaler.txt"
        return len(book.read_text().splitlines()) if book.exists() else 0


def until(happens, seconds=120):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.05)


def try_the_first_steps(desk):
    desk.write(1)
    assert "800" in desk.try_it(0)
    desk.write(2)
    assert desk.try_it(1).startswith("waiting")
    desk.write(3)
    assert "yen=1600" in desk.try_it(1)
    (desk.folder / "wholesaler.txt").unlink()


@pytest.mark.nightly
def test_japanese_tutorial_has_the_same_first_steps_and_the_same_server(tmp_path):
    japanese, english = follow("ja/tutorial.md", tmp_path), follow("tutorial.md", tmp_path)
    try_the_first_steps(japanese)
    assert [ast.dump(without_words(step)) for step in japanese.steps] == [
        ast.dump(without_words(step)) for step in english.steps
    ]


def without_words(program):
    """The program, whatever its texts say."""

    class Blank(ast.NodeTransformer):
        def visit_Constant(self, node):
            return ast.Constant("") if isinstance(node.value, str) else node

        def visit_JoinedStr(self, node):
            return ast.Constant("")

    return Blank().visit(ast.parse(program))


@pytest.mark.nightly
def test_tutorial_from_the_first_step_to_the_last(tmp_path):
    desk = follow("tutorial.md", tmp_path)
    try_the_first_steps(desk)
    run_id = desk.interrupt_order(4, signal.SIGKILL)
    try:
        until(lambda: desk.status(run_id) == "waiting")  # nobody knows whether the order went through
        assert "retry" in desk.ask("GET", f"/runs/{run_id}")
        assert "409" in desk.answer(run_id, "maybe")
        assert desk.answer(run_id, {"result": "by telephone"}).startswith("{")
        until(lambda: desk.status(run_id) == "completed")
        assert desk.orders() == 0
        desk.stop(signal.SIGTERM)
        run_id = desk.interrupt_order(5, signal.SIGKILL)
        until(lambda: desk.status(run_id) == "completed")
        assert desk.orders() == 1
        outcome = json.loads(desk.ask("GET", f"/runs/{run_id}"))
        assert outcome["output"]["yen"] == 1600
        desk.stop(signal.SIGTERM)
        run_id = desk.interrupt_order(5, signal.SIGTERM)  # in order: what is under way is interrupted, too, and goes on
        until(lambda: desk.status(run_id) == "completed")
        assert desk.orders() == 2
        desk.stop(signal.SIGTERM)
        desk.write(5, seconds=60)
        desk.serve()
        run_id = desk.begin_order()
        stop = ("-m", "kaname.cli.main", "runs", "stop", run_id, "--journal", "desk.db")
        assert desk.python(*stop).returncode == 0
        until(lambda: desk.status(run_id) == "cancelled")
        assert json.loads(desk.ask("GET", f"/runs/{run_id}"))["status"] == "cancelled", "to look executes nothing"
        assert desk.status(run_id) == "cancelled"
    finally:
        desk.stop(signal.SIGKILL)
