"""Every example runs, on a machine that has nothing of ours, and prints what it says it prints."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.parts import SOURCE

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))


LONG = ("10_", "12_", "13_", "15_", "20_")  # they start several processes, or simulate


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.nightly] * path.name.startswith(LONG)) for path in EXAMPLES],
)
def test_example(path, tmp_path):
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": SOURCE, "KANAME_LANG": "en"}
    environment["PYTHONWARNINGS"] = "error"
    done = warm.run([sys.executable, str(path)], capture_output=True, text=True, timeout=180, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("the tool ")]  # of a tool that fails on purpose
    assert said == []
    promised = re.findall(r"^#   (.+)$", path.read_text(encoding="utf-8").split("# prints:")[1], re.M)
    assert promised
    place = 0
    for line in promised:
        found = done.stdout.find(line, place)
        assert found >= 0, f"{line!r} is not printed (in this order):\n{done.stdout}"
        place = found + 1


def test_they_are_numbered():
    assert [path.name[:2] for path in EXAMPLES] == [f"{n:02}" for n in range(1, len(EXAMPLES) + 1)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_says_which_extras_it_needs(path):
    text = path.read_text(encoding="utf-8")
    needs = {extra for extra, sign in {"mcp": "fastmcp", "search": "RAGPipeline", "duckdb": "duckdb"}.items() if sign in text}
    assert needs <= set(re.findall(r"the extra `(\w+)`", text.split('"""')[1]))
