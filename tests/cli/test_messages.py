"""English or Japanese: the terminal translates by code what the rooms below say in English."""

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

import kaname
from kaname import Agent, Approve, ScriptedModel, call, max_steps, tool
from kaname.cli.messages import catalogue, say, translated
from kaname.core.codec import decode, encode
from kaname.core.errors import ConfigError, ToolNotFoundError, nearest
from kaname.core.notices import joined, notice
from tests.api import test_workflow_files as workflow_files

SOURCE = Path(kaname.__file__).parent
JAPANESE = re.compile(r"[\u3040-\u30ff]")


@pytest.fixture
def in_japanese(monkeypatch):
    monkeypatch.setenv("KANAME_LANG", "ja")


def notices():
    """Every `notice(code, template, …)` of the source: the code, the template, the names of its values."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "notice":
                code, template = [ast.literal_eval(given) for given in node.args]
                yield code, template, {value.arg for value in node.keywords}


def fields(template):
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def test_every_notice_has_its_japanese():
    found = list(notices())
    assert {code for code, _, _ in found} == set(catalogue()), "each code in the catalogue, and nothing else there"
    assert len({(code, template) for code, template, _ in found}) == len(catalogue()), "one code is one sentence"
    for code, template, values in found:
        assert fields(template) <= values, code
        assert fields(catalogue()[code]) <= values, code


def test_no_japanese_sentence_stands_outside_the_edges():
    allowed = {"strategies", "models"}  # what is said to a model in its user's language
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        if room != "cli" and room not in allowed:
            assert "say(" not in re.sub(r"\.say\(", "", path.read_text("utf-8")), path


def test_mistakes_of_a_workflow_file_are_told_in_japanese(in_japanese, tmp_path):
    english = ("expected integer", "default: n: expected")  # what is wrong with a value is said by the library that checks it
    for text, _, told in workflow_files.WRONG:
        with pytest.raises(ConfigError) as caught:
            workflow_files.read(tmp_path, f"workflow:\n{text}")
        mistakes = translated(caught.value).split("\n")[1:]
        assert told in english or all(JAPANESE.search(line) for line in mistakes), mistakes


def test_the_language_is_the_users(monkeypatch):
    assert say("hello", "こんにちは") == "hello"
    monkeypatch.setenv("KANAME_LANG", "ja_JP.UTF-8")
    assert say("hello", "こんにちは") == "こんにちは"
    monkeypatch.delenv("KANAME_LANG")
    monkeypatch.setenv("LC_ALL", "ja_JP.UTF-8")
    assert say("hello", "こんにちは") == "こんにちは"


def test_an_error_is_english_and_the_terminal_says_it_in_japanese(in_japanese):
    error = ToolNotFoundError("serch", ["search", "add"])
    assert str(error) == "there is no tool named 'serch'; did you mean 'search'?"
    assert translated(error) == "'serch' というツールはありません。'search' のことですか?"


def test_joined_and_added_texts_keep_their_codes(in_japanese):
    told = "kaname.yaml:3: " + nearest("x", []) + "!"
    assert told == "kaname.yaml:3: ; there are none!"
    assert translated(told) == "kaname.yaml:3: 。ひとつも登録されていません!"
    assert translated(ConfigError(joined("\n", [told, "plain"]))).splitlines()[1] == "plain"


def test_a_text_without_a_code_stays_as_it_is(in_japanese):
    assert translated("plain") == "plain"
    assert translated(ValueError("plain")) == "plain"
    assert translated(notice("made.up", "{n} things", n=3)) == "3 things"


@tool(effect="irreversible")
def pay(yen: int) -> str:
    """Pay."""
    return f"{yen} paid"


async def test_a_question_in_the_journal_is_english_and_shown_in_japanese(in_japanese):
    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal="memory")
    result = await agent.run("go")
    written = [encode(event) async for event in agent.journal.read(result.run_id)]
    asked = next(line for line in written if '"Asked"' in line)
    assert '"prompt":"Run pay(' in asked
    assert translated(decode(asked).body.prompt).endswith("を実行しますか?")
    assert not JAPANESE.search("".join(written))


async def test_a_stop_in_the_journal_is_english_and_shown_in_japanese(in_japanese):
    model = ScriptedModel([call("look", path="a"), call("look", path="b"), "done"])

    @tool(effect="pure")
    def look(path: str) -> str:
        """Look."""
        return path

    agent = Agent(model, [look], stops=[max_steps(1)], journal="memory")
    result = await agent.run("go")
    last = [encode(event) async for event in agent.journal.read(result.run_id)][-1]
    assert result.stop.detail == "1 steps, the limit is 1"
    assert translated(decode(last).body.stop.detail) == "ステップ数が上限の 1 に達しました"


def test_a_notice_of_another_kaname_stays_english(in_japanese):
    """A record may have a code, or values, that this one does not know."""
    assert translated(notice("stop.max_steps", "9 of {most} steps", most=9)) == "9 of 9 steps"
    assert translated(notice("stop.max_steps", "{steps} of {limit}", steps="many", limit="few")) == "many of few"
