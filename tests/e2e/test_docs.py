"""The Python in the README and on the docs pages runs as it stands, a page as one program."""

import ast
import asyncio
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.ja.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _with_programs(page):
    """The page. At night: translations, which have the programs of their originals with other texts (see `scripts/house.py`),
    and the pages with crash checks, simulations and large models, of which other tests try something by day."""
    place = str(page.relative_to(ROOT))
    late = "ja/" in place or ".ja." in place or place in ("docs/internals/testing.md", "docs/testing.md", "docs/senses.md")
    return pytest.param(page, id=place, marks=[pytest.mark.nightly] if late else [])


@pytest.mark.parametrize("page", [_with_programs(page) for page in PAGES])
async def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    program = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S))
    code = compile(program, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if not code.co_flags & inspect.CO_COROUTINE:  # a script, as one starts it: no loop is running
        await asyncio.to_thread(exec, code, {"__name__": page.stem})
        return
    outcome = eval(code, {"__name__": page.stem})
    if inspect.isawaitable(outcome):
        await outcome


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page, target)


@pytest.mark.parametrize("page", ["guarantees.md", "ja/guarantees.md", "security.md", "ja/security.md"])
def test_promises_name_tests_that_exist(page):
    named = re.findall(r"(tests/[\w/]+\.py)::(test_\w+)", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert len(named) > 25
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"


def test_the_numbers_of_lines_are_true():
    loop, perform = [len((ROOT / "src/kaname/kernel" / name).read_text().splitlines()) for name in ("loop.py", "perform.py")]
    english, japanese = (ROOT / "README.md").read_text(encoding="utf-8"), (ROOT / "README.ja.md").read_text(encoding="utf-8")
    assert f"The loop is {loop} lines" in english
    figures = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert f"| {loop} (and about {round(perform, -2)} to carry a step out) |" in figures
    assert f"ループは {loop} 行" in japanese
    assert f"`loop` ({loop} lines)" in (ROOT / "docs" / "internals" / "kernel.md").read_text(encoding="utf-8")


def test_every_page_for_users_is_there_in_japanese():
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"benchmarks.md", "synonyms.md"}
    assert pages <= {page.name for page in (ROOT / "docs" / "ja").glob("*.md")}


def test_rows_of_tables_have_the_columns_of_their_head():
    for page in PAGES:
        columns, fenced = 0, False
        for line in page.read_text(encoding="utf-8").splitlines():
            fenced ^= line.startswith("```")
            if fenced or not line.startswith("|"):
                columns = 0
                continue
            here = len(re.findall(r"(?<!\\)\|", line))  # a bar inside a cell is written \|
            columns = columns or here
            assert here == columns, (page, line)
