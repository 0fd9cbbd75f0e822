"""Markdown in a terminal: whatever the pieces it comes in, it looks the same."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kaname.cli.terminal.markdown import Markdown

TEXT = """# Trip to Kyoto

Two **good** days with `train`:

- temples
  * Kinkaku-ji
- 2 * 3 = 6 and a ** b

| Day | Place   | Yen |
|-----|:--------|----:|
| 1   | **京都** | 500 |
| 2   | Uji     | 1200 |

```python
print("| not | a table |")  # - nor a list
```
Done."""


def shown(text, size=0):
    markdown = Markdown()
    pieces = [text[i : i + size] for i in range(0, len(text), size)] if size else [text]
    return "".join(map(markdown.feed, pieces)) + markdown.end()


def words(text):
    """Without the looks."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_markdown_has_its_looks():
    assert (
        words(shown(TEXT))
        == """Trip to Kyoto

Two good days with train:

• temples
  • Kinkaku-ji
• 2 * 3 = 6 and a ** b

Day │ Place │  Yen
────┼───────┼─────
1   │ 京都  │  500
2   │ Uji   │ 1200

print("| not | a table |")  # - nor a list
Done."""
    )
    assert "\x1b[1;35mTrip to Kyoto\x1b[0m" in shown(TEXT)
    assert "\x1b[1mgood\x1b[0m" in shown(TEXT)
    assert "\x1b[36mtrain\x1b[0m" in shown(TEXT)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_markdown_looks_the_same_in_any_pieces(size):
    assert shown(TEXT, size) == shown(TEXT)


@example(":```a", 1)
@example("-  ", 1)
@given(st.text("a#*`|-: \n京", max_size=60), st.integers(1, 9))
def test_markdown_in_any_pieces_loses_no_word(text, size):
    assert shown(text, size) == shown(text)
    assert re.sub(r"[^a京]", "", words(shown(text))) == re.sub(r"[^a京]", "", re.sub(r"(?m)^[ \t]*```[^\n]*", "```", text))


def test_markdown_leaves_marks_in_code_alone():
    text = "# Head\nplain **bold** and `code **not bold**`\n```python\nx = 1 # **no**\n```\nend *"
    assert shown(text) == (
        "\x1b[1;35mHead\x1b[0m\nplain \x1b[0m\x1b[1mbold\x1b[0m and \x1b[0m\x1b[36mcode **not bold**\x1b[0m\n"
        "\x1b[36mx = 1 # **no**\n\x1b[0mend *"
    )


def test_markdown_shows_a_line_before_it_has_ended():
    markdown = Markdown()
    assert words(markdown.feed("The answer")) == "The answer"
    assert words(markdown.feed(" is\n- fo")) == " is\n• fo"


def test_markdown_rows_without_a_rule_are_left_as_they_are():
    assert shown("| a | b |\nand") == "| a | b |\nand"


def test_markdown_table_that_is_too_wide_is_cut_to_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    table = f"| what | why |\n|---|---|\n| {'long ' * 20} | {'words ' * 20} |\n"
    assert max(map(len, words(shown(table)).splitlines())) <= 40
