"""The performance gate: what a step costs in counts has not grown, and what makes it grow is named."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads((ROOT / "benchmarks" / "gate" / "recorded.json").read_text("utf-8"))
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

pytestmark = [
    pytest.mark.skipif(VERSION not in RECORDED, reason=f"no counts are recorded for Python {VERSION}"),
    pytest.mark.skipif(sys.platform != "linux", reason="the counts are recorded on Linux"),
]

COSTLY = """

def costly_habit():
    pass


def _with_habit(self, *args, _append=MemoryJournal.append, **options):
    for _ in range(100):
        costly_habit()
    return _append(self, *args, **options)


MemoryJournal.append = _with_habit
"""


def gate(root, *options):
    command = [sys.executable, root / "benchmarks" / "gate.py", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_no_count_has_slipped():
    done = gate(ROOT, "--counts")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "function calls per step" in done.stdout


def test_call_that_is_added_to_each_step_is_named(tmp_path):
    # With the compiled files, but without those that another process is writing.
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.pyc.*"))
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "gate.py", tmp_path / "benchmarks")
    shutil.copytree(ROOT / "benchmarks" / "gate", tmp_path / "benchmarks" / "gate")
    with (tmp_path / "src" / "kaname" / "stores" / "memory.py").open("a", encoding="utf-8") as changed:
        changed.write(COSTLY)
    done = gate(tmp_path, "--counts", "calls")
    assert done.returncode == 1, done.stdout + done.stderr
    slipped, _, grown = done.stdout.partition("function calls per step, grew most:")
    assert "SLIPPED" in slipped
    assert "kaname/stores/memory.py costly_habit" in grown.splitlines()[1]
