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


def known_in(path, tree, seen):
    """The names of a file that are among the classes `seen`: its own and those it imports."""
    names = {name for stem, name in seen if stem == path.stem}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            home = (node.module or "").rpartition(".")[2]
            names |= {alias.asname or alias.name for alias in node.names if (home, alias.name) in seen}
    return names


def visible_errors():
    """Every call, raised or not, of an error class that people see: file, line, the class and its arguments.

    People see what derives from AgentError: the terminal, the page and the protocols show it. Two classes are for the one who
    mends a program, and stay English: UnexpectedError and ReplayDiverged. Other exceptions do not leave kaname as they are: a
    model reads them (BadArguments, the database's Refused), or Python programmers (TypeError, AttributeError)."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}
    classes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    seen, more, for_programmers = set(), {("errors", "AgentError")}, {"UnexpectedError", "ReplayDiverged"}
    while more - seen:
        seen |= more
        known = {path: known_in(path, tree, seen) for path, tree in trees.items()}
        more = {(path.stem, one.name) for path, one in classes if {ast.unparse(base) for base in one.bases} & known[path]}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known[path] - for_programmers:
                yield f"{path.relative_to(SOURCE)}:{node.lineno} {node.func.id}", node.args


def is_a_sentence(node, whole=True):
    """True for a text with words that stands there as it is, or that loses a notice's code: f"{name}: {problem}".

    A place in front of a notice is no sentence: f"{file}: " + problem."""
    if isinstance(node, ast.BinOp | ast.IfExp):
        return any(is_a_sentence(one, whole and isinstance(node, ast.IfExp)) for one in ast.iter_child_nodes(node))
    if isinstance(node, ast.JoinedStr):
        words = "".join([one.value for one in node.values if isinstance(one, ast.Constant)])
        return bool(re.search("[a-z]{2}", words)) or (whole and len(node.values) > 1)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(re.search(r"[a-z] [a-z]", node.value))


def test_an_error_that_a_person_sees_is_a_notice():
    plain = [place for place, args in visible_errors() if any(map(is_a_sentence, args))]
    assert not plain, 'write raise X(notice("code", "English {value}", value=…)), with its Japanese in cli/messages/ja.json'


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
