"""What type checkers know of a user's program: mypy and pyright, run on real files."""

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.properties import nightly

HERE = Path(__file__).parent
GOOD, BAD = HERE / "typed_program.py", HERE / "typed_mistakes.py"
CHECKERS = ("pyright", *nightly("mypy"))  # the quicker one by day


def check(checker, path):
    """The lines with errors, and what is said of each line."""
    if checker == "mypy":
        # Of what they import, only the signatures: it takes half the time. With other options, the files of the cache are others.
        how = ("--strict", "--follow-imports", "silent", "--cache-dir", ".mypy_cache/typed")
        ran = _run(sys.executable, "-m", "mypy", *how)
        found = [re.match(r".*?:(\d+): (\w+): (.*)", line) for line in ran.splitlines() if path.name in line]
        told = [(int(match[1]), match[2], match[3]) for match in found if match]
    else:
        pyright = shutil.which("basedpyright", path=str(Path(sys.executable).parent)) or pytest.skip("basedpyright is missing")
        ran = json.loads(_run(pyright, "--outputjson", "--pythonpath", sys.executable))["generalDiagnostics"]
        of_file = [one for one in ran if Path(one["file"]).name == path.name]
        told = [(one["range"]["start"]["line"] + 1, one["severity"], one["message"]) for one in of_file]
    return [line for line, kind, _ in told if kind == "error"], told


@cache
def _run(*command):
    """Over both files at once: most of its time goes to what they import."""
    files = [str(GOOD), str(BAD)]
    return subprocess.run([*command, *files], capture_output=True, text=True, timeout=600, cwd=HERE.parent.parent).stdout


def marked(path, word):
    return [number for number, line in enumerate(path.read_text().splitlines(), 1) if re.search(word, line)]


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_typed_agent_gives_typed_results_and_tools_keep_their_signatures(checker):
    errors, told = check(checker, GOOD)
    assert errors == [], told
    for number in marked(GOOD, r"reveal_type.*#"):
        wanted = GOOD.read_text().splitlines()[number - 1].partition("# ")[2]
        (said,) = [
            said for line, _, said in told if (line == number and "ype of" in said) or (line == number and "Revealed" in said)
        ]
        plain = re.sub(
            r"\b(?:builtins|kaname\.agent\.agent|tests\.api\.typed_program|typed_program)\.",
            "",
            re.findall(r'"([^"]*)"', said)[-1],
        )
        assert plain == wanted, said


@pytest.mark.parametrize("checker", CHECKERS)
def test_mistakes_are_found(checker):
    errors, told = check(checker, BAD)
    assert set(marked(BAD, "# mistake")) <= set(errors), told
