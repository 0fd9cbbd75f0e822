"""The house's own gate for translated pages: what is missing is named, and translating texts is enough to satisfy it."""

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
