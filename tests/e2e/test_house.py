"""The house's own gate: what a translated page lacks is named, and functions that are named by a bare participle are counted."""

import runpy
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[2] / "scripts" / "house.py"
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
def told(tmp_path):
    """What the gate says about a page and its translation."""
    house = runpy.run_path(str(HOUSE))

    def of(nihongo):
        (tmp_path / "ja").mkdir(exist_ok=True)
        (tmp_path / "serving.md").write_text(PAGE, "utf-8")
        if nihongo is not None:
            (tmp_path / "ja" / "serving.md").write_text(nihongo, "utf-8")
        house["translations"].__globals__["DOCS"] = tmp_path
        return "\n".join(house["translations"]())

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
    assert runpy.run_path(str(HOUSE))["is_participle"](name) is counted


def test_too_many_participles_are_listed(tmp_path):
    house = runpy.run_path(str(HOUSE))
    (tmp_path / "one.py").write_text("def told(): ...\n\n\ndef tell(): ...\n", "utf-8")
    house["words"].__globals__["SOURCE"] = tmp_path
    (said,) = house["words"]()
    assert "1 of 2 functions are named by a bare participle; the limit is 1%" in said
    assert "one.py:1 told" in said
