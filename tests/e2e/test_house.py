"""The house's own gate: what a translated page lacks is named, functions that are named by a bare participle are counted, and
measures are compared with the baseline."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from rulers import counts, measure, rules, translations

PAGE = """# Serve

Use `--port` with `agent.run`.

```python
desk = Agent(model, name="desk")  # one
```

```sh
kaname serve --port 80   # starts
```
"""
NIHONGO = PAGE.replace("Serve", "提供").replace("Use", "使うのは").replace('"desk"', '"受付"').replace("# one", "# 一つ")


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What the gate says about a page and its translation."""
    monkeypatch.setattr(translations, "DOCS", tmp_path)

    def of(nihongo):
        (tmp_path / "ja").mkdir(exist_ok=True)
        (tmp_path / "serving.md").write_text(PAGE, "utf-8")
        if nihongo is not None:
            (tmp_path / "ja" / "serving.md").write_text(nihongo, "utf-8")
        return "\n".join(translations.translations())

    return of


def test_a_translated_page_is_in_order(told):
    assert told(NIHONGO) == ""


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda page: None, "docs/ja/serving.md is missing"),
        (
            lambda page: page.replace("`--port`", "オプション").replace("--port 80", ""),
            "docs/ja/serving.md does not name --port",
        ),
        (lambda page: page.replace("`agent.run`", "実行"), "docs/ja/serving.md does not name agent.run"),
        (lambda page: page + "\n`--gone` はありません。", "docs/serving.md does not name --gone"),
        (lambda page: page + "\n## 余り\n", "docs/ja/serving.md has other headings"),
        (
            lambda page: page.replace("name=", "title="),
            "code block 1 of docs/ja/serving.md differs from that of docs/serving.md: name, title",
        ),
        (lambda page: page.split("```sh")[0] + "`--port`", "docs/ja/serving.md has 1 code blocks, docs/serving.md has 2"),
    ],
)
def test_what_a_translation_lacks_is_named(told, change, named):
    assert named in told(change(NIHONGO))


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        *[(name, True) for name in ("told", "_checked", "opened", "leaving", "written", "begun")],
        *[(name, False) for name in ("read", "open", "_feed", "set", "thinking", "check_plan", "as_seen", "is_open", "shown")],
        *[(name, False) for name in ("__missing__", "refused_handoff", "data_received")],
    ],
)
def test_a_function_that_is_named_by_a_bare_participle_is_counted(name, counted):
    assert rules.is_participle(name) is counted


def test_too_many_participles_are_listed(tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text("def told(): ...\n\n\ndef tell(): ...\n", "utf-8")
    monkeypatch.setattr(rules, "SOURCE", tmp_path)
    (said,) = rules.words()
    assert "1 of 2 functions are named by a bare participle; the limit is 1%" in said
    assert "one.py:1 told" in said


@pytest.mark.parametrize(
    ("body", "complexity"),
    [
        ("return 1", 1),
        ("return a if b and c or d else e", 4),  # the condition, and two further operands
        ("for x in a:\n  if x: pass\n  elif y: pass\nelse: pass", 5),
        ("try: pass\nexcept A: pass\nexcept B: pass", 3),
        ("return [x for x in a if b if c]", 4),
        ("match a:\n  case 1: pass\n  case 2: pass\n  case _: pass", 3),
        ("def inner():\n  if a: pass\nwhile b: pass", 2),
    ],
)
def test_complexity_is_counted_as_radon_does(body, complexity):
    (function,) = ast.parse("def f():\n" + "\n".join("  " + line for line in body.splitlines())).body
    assert counts.complexity(function) == complexity


def test_only_measures_that_are_worse_than_the_baseline_and_its_slack_fail():
    row, other = (
        next(row for row in measure.ROWS if row.name == name) for name in ("run with one tool: moves", "sentence splitters")
    )
    recorded = {row.name: 100, other.name: 3}
    same = {one.name: 0 for one in measure.ROWS}
    assert not list(measure.worse({**same, row.name: 103, other.name: 3}, recorded))
    (said, also) = measure.worse({**same, row.name: 104, other.name: 4}, recorded)
    assert "run with one tool: moves: 104, the baseline is 100 and at most 103 pass" in said
    assert "sentence splitters: 4" in also
