"""English or Japanese: the terminal translates by code what the rooms below say in English."""

import ast
import gc
import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Annotated, get_args

import pytest

import kaname
from kaname import Agent, Approve, MemoryJournal, ScriptedModel, Workflow, call, deadline, max_steps, tool
from kaname.cli.chat import as_command
from kaname.cli.docs import place_text
from kaname.cli.messages import catalogue, many, say, translate
from kaname.cli.messages.stops import KINDS
from kaname.cli.terminal.chunks import result_text
from kaname.core.codec import decode, encode
from kaname.core.errors import ConfigError, ToolNotFoundError, nearest
from kaname.core.events import ToolFinished
from kaname.core.messages import ToolResult
from kaname.core.notices import join_notices, notice
from kaname.core.openai_shape import result_text as shown_to_model
from kaname.core.runs import UNDER_WAY
from kaname.core.steps import StopKind
from kaname.designs.orchestrator.orchestrator import AgentOrchestrator, TaskPlanner
from kaname.run.replay import Difference, Replay
from kaname.tools.arguments.schema import problems
from tests.api import test_workflow_files as workflow_files

SOURCE = Path(kaname.__file__).parent
JAPANESE = re.compile(r"[\u3040-\u30ff]")


@pytest.fixture
def in_japanese(monkeypatch):
    monkeypatch.setenv("KANAME_LANG", "ja")


@cache
def nodes():
    """Every class, import and call of the source, with its file."""
    kinds = (ast.ClassDef, ast.ImportFrom, ast.Call)
    gc.disable()  # a million nodes, which all stay: looking for garbage among them takes as long as all else
    try:
        trees = [(path, ast.parse(path.read_text("utf-8"))) for path in SOURCE.rglob("*.py")]
        return [(path, node) for path, tree in trees for node in _walk(tree) if isinstance(node, kinds)]
    finally:
        gc.enable()


def _walk(tree):
    """`ast.walk` without names and constants, which are most of the nodes."""
    held = [tree]
    while held:
        node = held.pop()
        yield node
        for value in node.__dict__.values():
            if type(value) is list:
                held += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and type(value) not in _LEAVES:
                held.append(value)


_LEAVES = (ast.Name, ast.Constant, ast.Load, ast.Store)


def notices():
    """Every `notice(code, template, …)` and `X.of(code, template, …)`: the code, the template, the names of its values."""
    for _, node in nodes():
        if isinstance(node, ast.Call) and is_notice(node.func) and isinstance(node.args[0], ast.Constant):
            code, template = [ast.literal_eval(given) for given in node.args]
            yield code, template, {value.arg for value in node.keywords}


def is_notice(function):
    if isinstance(function, ast.Attribute):  # an error class: ConfigError.of(…)
        return function.attr == "of" and isinstance(function.value, ast.Name) and function.value.id in errors()
    return isinstance(function, ast.Name) and function.id == "notice"


@cache
def errors():
    """The names of all classes that derive from AgentError."""
    bases = {node.name: {ast.unparse(base) for base in node.bases} for _, node in nodes() if isinstance(node, ast.ClassDef)}
    found, more = set(), {"AgentError"}
    while more - found:
        found |= more
        more = {name for name, above in bases.items() if above & found}
    return found


def fields(template):
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def test_every_notice_has_its_japanese():
    found = list(notices())
    assert {code for code, _, _ in found} == set(catalogue()), "each code in the catalogue, and nothing else there"
    assert len({(code, template) for code, template, _ in found}) == len(catalogue()), "one code is one sentence"
    for code, template, values in found:
        assert fields(template) <= values, code
        assert fields(catalogue()[code]) <= values, code


def visible_errors():
    """Every call, raised or not, of an error class that people see: file, line, the class and its arguments.

    People see what derives from AgentError: the terminal, the page and the protocols show it. Two classes are for the one who
    mends a program, and stay English: UnexpectedError and ReplayDiverged. Other exceptions do not leave kaname as they are: a
    model reads them (BadArguments, the database's Refused), or Python programmers (TypeError, AttributeError). How a run
    stops, what it asks and what it warns of is seen, too."""
    classes, imported, calls = [], defaultdict(set), []
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            classes.append((path, node.name, {ast.unparse(base) for base in node.bases}))
        elif isinstance(node, ast.ImportFrom):
            imported[path] |= {((node.module or "").rpartition(".")[2], alias.name) for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls.append((path, node.func.id, node))
    seen, more = set(), {("errors", "AgentError")}

    def is_seen(path, name):
        return (path.stem, name) in seen or any((home, name) in seen for home, other in imported[path] if other == name)

    while more - seen:
        seen |= more
        more = {(path.stem, name) for path, name, bases in classes if any(is_seen(path, base) for base in bases)}
    seen -= {("errors", "UnexpectedError"), ("errors", "ReplayDiverged")}
    for path, name, made in calls:
        if is_seen(path, name) or (name in ("Stop", "Suspend", "Warned") and path.parent.name != "testing"):
            yield f"{path.relative_to(SOURCE)}:{made.lineno} {name}", made.args


def is_a_sentence(node, whole=True):
    """True for a text with words that stands there as it is, or that loses a notice's code: f"{name}: {problem}".

    A place in front of a notice is no sentence: f"{file}: " + problem."""
    if isinstance(node, ast.BinOp | ast.IfExp):
        return any(is_a_sentence(one, whole and isinstance(node, ast.IfExp)) for one in ast.iter_child_nodes(node))
    if isinstance(node, ast.JoinedStr):
        words = "".join([one.value for one in node.values if isinstance(one, ast.Constant)])
        return bool(re.search("[a-z]{2}", words)) or (whole and len(node.values) > 1)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(re.search(r"[a-z] [a-z]", node.value))


def test_an_error_or_a_stop_that_a_person_sees_is_a_notice():
    plain = [place for place, args in visible_errors() if any(map(is_a_sentence, args))]
    assert not plain, 'write raise X.of("code", "English {value}", value=…), with its Japanese in cli/messages/ja.json'


def test_no_japanese_sentence_stands_outside_the_edges():
    allowed = {"strategies", "models"}  # what is said to a model in its user's language
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        if room != "cli" and room not in allowed:
            assert "say(" not in re.sub(r"(\.|def |await )say\(", "", path.read_text("utf-8")), (
                path
            )  # to a run, it is no sentence


def test_mistakes_of_a_workflow_file_are_told_in_japanese(in_japanese, tmp_path):
    english = ("default: n: expected",)
    for text, _, told in workflow_files.WRONG:
        with pytest.raises(ConfigError) as caught:
            workflow_files.read(tmp_path, f"workflow:\n{text}")
        mistakes = translate(caught.value).split("\n")[1:]
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
    assert translate(error) == "'serch' というツールはありません。'search' のことですか?"


def test_joined_and_added_texts_keep_their_codes(in_japanese):
    told = "kaname.yaml:3: " + nearest("x", []) + "!"
    assert told == "kaname.yaml:3: ; none are available!"
    assert translate(told) == "kaname.yaml:3: 。使えるものはありません!"
    assert translate(ConfigError(join_notices("\n", [told, "plain"]))).splitlines()[1] == "plain"


def test_a_text_without_a_code_stays_as_it_is(in_japanese):
    assert translate("plain") == "plain"
    assert translate(ValueError("plain")) == "plain"
    assert translate(notice("made.up", "{n} things", n=3)) == "3 things"


@tool(effect="irreversible")
def pay(yen: int) -> str:
    """Pay."""
    return f"{yen} paid"


@tool(effect="pure")
def fetch(path: str) -> str:
    """Fetch a file."""
    return path


async def test_a_question_in_the_journal_is_english_and_shown_in_japanese(in_japanese):
    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal="memory")
    result = await agent.run("go")
    written = [encode(event) async for event in agent.journal.read(result.run_id)]
    asked = next(line for line in written if '"Asked"' in line)
    assert '"prompt":"Run pay(' in asked
    assert translate(decode(asked).body.prompt).endswith("を実行しますか?")
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
    assert result.stop.detail == "the limit of 1 steps was reached"
    assert translate(decode(last).body.stop.detail) == "ステップ数が上限の 1 に達しました"


@pytest.mark.parametrize("difference", [Difference(3, "a", ""), Difference(0, "", "b"), Difference(3, "a", "b", prompt=True)])
@pytest.mark.parametrize("changes", [{}, {"settings": {"temperature": 1}}, {"model": "b", "tools": [fetch]}])
async def test_every_line_of_a_replay_is_told_in_japanese(in_japanese, difference, changes):
    journal = MemoryJournal()

    def agent(model="a", tools=(pay,), settings=None):
        return Agent(ScriptedModel(["done"], name=model), tools, settings=settings, journal=journal)

    result = await agent().run("go")
    replay = await agent(**changes).replay(result.run_id)
    assert len(replay.changes) == {"tools": 3, "settings": 1}.get(next(reversed(changes), ""), 0)
    told = translate(Replay("r1", difference, replay.changes))
    assert all(re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", line) for line in told.splitlines()), told


def test_a_value_of_the_wrong_kind_is_told_in_japanese(in_japanese):
    (told,) = problems({"n": "abc"}, {"properties": {"n": {"type": ["integer", "null"]}}})
    assert told == "arguments.n: expected integer or null, got string 'abc'"
    assert translate(told) == "arguments.n: 整数かnull が必要ですが、文字列 'abc' です"


def test_a_notice_of_another_kaname_stays_english(in_japanese):
    """A record may have a code, or values, that this one does not know."""
    assert translate(notice("stop.max_steps", "9 of {most} steps", most=9)) == "9 of 9 steps"
    assert translate(notice("stop.max_steps", "{steps} of {limit}", steps="many", limit="few")) == "many of few"


PLAN = '{"description": "払う", "steps": [{"name": "a", "tool_name": "pay", "arguments": {"yen": 5}}, ' + (
    '{"name": "b", "tool_name": "pay", "arguments": {"yen": 6}}]}'
)


async def test_a_plans_question_is_shown_in_japanese_as_a_whole(in_japanese):
    planner = TaskPlanner(ScriptedModel([PLAN]), [pay], approve=True)
    made = AgentOrchestrator(planner, None, "memory", stops=[deadline("5h")])
    run = made.run("払って")
    result = await run
    written = [encode(event) async for event in made.agent.journal.read(run.run_id)]
    (asked,) = [decode(line).body.prompt for line in written if '"Asked"' in line]
    assert asked.endswith("\nRun this plan? Answer yes, no, or describe what to change."), "facts are in one language"
    said = translate(asked)
    assert said.splitlines() == [
        "払う",
        '1. a: pay({"yen": 5}) [取り消し不可]',
        '2. b: pay({"yen": 6}) [取り消し不可] (a の後)',
        "全体: 呼び出しは最大 2 回、最大 600 秒。変更を伴うステップ: a (取り消し不可), b (取り消し不可) (タスク全体の上限: 18000 秒または$10)",
        "この計画を実行しますか? はい、いいえ、または変更したい点を入力してください。",
    ]
    refused = await made.resume(result.run_id, dict.fromkeys(result.questions, "いいえ"))
    assert translate(refused.stop.detail) == "計画が承認されませんでした"


async def test_a_hidden_character_of_a_plan_is_shown_in_its_question():
    made = AgentOrchestrator(
        TaskPlanner(ScriptedModel([PLAN.replace("払う", "払\\u202eう")]), [pay], approve=True), None, "memory"
    )
    (question,) = (await made.run("払って")).questions.values()
    assert "払\\u202eう" in question.prompt


@pytest.mark.parametrize("answer", ["いいえ", "高すぎる"])
async def test_a_refused_call_is_shown_in_japanese_live_and_from_the_record(in_japanese, answer):
    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal="memory")
    waits = await agent.run("go")
    chunks = [chunk async for chunk in agent.resume(waits.run_id, dict.fromkeys(waits.questions, answer))]
    (shown,) = [result_text(chunk.data) for chunk in chunks if chunk.type == "tool_response"]
    assert shown == "この呼び出しは承認されませんでした" + (": 高すぎる" if answer == "高すぎる" else "")
    recorded = [decode(encode(event)) async for event in agent.journal.read(waits.run_id)]
    (result,) = [event.body.result for event in recorded if isinstance(event.body, ToolFinished)]
    assert result.error.startswith("the user did not allow this call")
    assert translate(result.error) == shown


@pytest.mark.parametrize(("count", "told"), [(0, "0 memories"), (1, "1 memory"), (2, "2 memories")])
def test_a_number_and_its_noun_agree(count, told):
    assert many(count, "memory", "memories") == told
    assert many(count, "run") == told.replace("memory", "run").replace("memories", "runs")


def test_one_word_for_one_state():
    """As VOICE has them; `status` is the word of the journal, in English as it is."""
    assert [KINDS[kind][1] for kind in ("cancelled", "interrupted", "released")] == ["キャンセル", "中断", "中断"]
    assert {*get_args(StopKind), *UNDER_WAY} == {*KINDS}, "each state has its word"
    assert len({*KINDS.values()}) == len(KINDS) - 1, "no word for two states, but for the two names of `interrupted`"


def test_a_place_in_a_document_is_told_in_the_users_language(monkeypatch):
    places = ["line 3", "page 2", "paragraph 7", "slide 4, notes", "sheet 売上, row 9", "", "chapter"]
    assert list(map(place_text, places)) == places
    monkeypatch.setenv("KANAME_LANG", "ja")
    assert list(map(place_text, places)) == [
        "3 行目",
        "2 ページ",
        "7 段落目",
        "スライド 4、ノート",
        "シート 売上、9 行目",
        "",
        "chapter",
    ]


@pytest.mark.parametrize("line", ["／help", "/ｈｅｌｐ", "／ｈｅｌｐ", "／save　メモ.md", "／SAVE a"])
def test_a_command_is_one_in_full_width(line):
    assert as_command(line).split()[0] in ("/help", "/save", "/SAVE")
    assert as_command("help ／ /") == "help ／ /"
    assert as_command("／save　ＭＥＭＯ.md") == "/save ＭＥＭＯ.md", "a file is called what it is called"


async def test_what_a_model_reads_is_not_escaped():
    @tool(effect="pure")
    def found(n: int = 0) -> str:
        """探す"""
        return json.dumps({"名前": "たろう"})

    seen = []

    def answers(request):
        parts = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
        seen.append("\n".join([shown_to_model(part) for part in parts]))
        return [call("found"), call("found", n="みっつ"), call("found", 見出し="た"), "done"][len(seen) - 1]

    await Agent(ScriptedModel(answers), [found], journal="memory").run("go")
    assert '{"名前": "たろう"}' in seen[-1]
    assert '(got "みっつ")' in seen[-1]
    assert "\\u" not in seen[-1]


async def test_a_planner_reads_its_tools_unescaped():
    @tool(effect="pure")
    def look(word: Annotated[str, "探す言葉"]) -> str:
        """探す"""
        return word

    told = []

    def plans(request):
        told.append(request.messages[0].text)
        return PLAN

    await AgentOrchestrator(TaskPlanner(ScriptedModel(plans), [look, pay], approve=True), None, "memory").run("go")
    assert "探す言葉" in told[0]


async def test_a_workflows_failure_and_its_parameters_are_told_in_japanese(in_japanese):
    flow = Workflow(
        "flow", params={"n": {"type": "integer", "minimum": 3}, "name": {"type": "string", "maxLength": 2, "default": ""}}
    )
    first = flow.options(name="a").task(pay, yen=flow.param("n"))
    flow.options(name="b").task(pay, yen=first["無い"])
    result = await flow.run({"n": 5})
    assert result.stop.detail.startswith("b failed: ")
    assert translate(result.stop.detail).startswith("b が失敗しました: ")
    for params in ({"n": "た"}, {"n": 2}, {"m": 1, "n": 5}, {}, {"n": 5, "name": "長すぎる"}):
        with pytest.raises(ConfigError) as caught:
            flow.complete_params(params)
        assert JAPANESE.search(translate(caught.value)), translate(caught.value)
