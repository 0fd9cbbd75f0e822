"""What `kaname run` is doing just now: beside the spinner in a terminal, on a line of its own where there is none."""

import asyncio
import io
import tempfile
from base64 import b64encode
from logging import getLogger

import pytest

from kaname import Agent, Guardrails, ModelReply, ScriptedModel, ToolContext, call, tool
from kaname.cli.terminal.chunks import Show
from kaname.cli.terminal.screen import Screen
from kaname.core.chunks import Chunk
from kaname.core.messages import assistant
from kaname.core.notices import notice
from tests.parts import add


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@tool(effect="pure")
async def look(item: str, context: ToolContext) -> str:
    """Look."""
    await context.progress("in the second drawer")
    return "found"


async def doing(screen, model=None, **options):
    """What was said to be going on, in order."""
    show, seen = Show(screen), []
    agent = Agent(model or ScriptedModel([call("look", item="cup"), "It is there."]), [look], journal="memory", **options)
    async for chunk in agent.run("Where?"):
        show.take(chunk)
        seen += [] if seen[-1:] == [screen.doing] else [screen.doing]
    return seen


async def test_spinner_says_what_is_going_on(monkeypatch):
    monkeypatch.setenv("KANAME_LANG", "en")
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen(io.StringIO(), Terminal())
    assert await doing(screen) == ["thinking", 'look(item="cup")', "in the second drawer", "thinking"]
    async with screen.spinner():
        async with asyncio.timeout(60):
            while "s thinking" not in screen.err.getvalue():
                await asyncio.sleep(0.05)


class Slow:
    """A model that has to be loaded first."""

    name = "slow"

    async def reply(self, request, emit):
        await emit(notice("local.loading", "loading the local model {name}", name="slow"), "progress")
        return ModelReply(assistant("hello"))


async def test_loading_is_told_where_there_is_no_spinner_too(monkeypatch):
    monkeypatch.setenv("KANAME_LANG", "ja")
    screen = Screen(io.StringIO(), io.StringIO())
    guarded = Guardrails(blocked_patterns=["password"])
    assert "ローカルモデル slow を読み込んでいます" in await doing(screen, Slow(), policies=[guarded])
    assert "ローカルモデル slow を読み込んでいます …" in screen.err.getvalue()


def test_slip_at_a_question_in_doubt_is_asked_again(monkeypatch):
    from kaname import Result
    from kaname.cli.terminal import questions
    from kaname.core.events import Asked
    from kaname.core.state import State
    from kaname.run.result import result_of

    monkeypatch.setattr("sys.stdin", Terminal('yes\n{"result": "done"}\n'))
    state = State(questions={"in-doubt:c1": Asked("in-doubt:c1", "?", ("retry", "skip"), in_doubt=True)})
    result: Result = result_of("r", state, None)
    screen = Screen(io.StringIO(), io.StringIO())
    assert questions.ask_the_user(result, screen) == {"in-doubt:c1": {"result": "done"}}
    assert "is not clear and was not recorded" in screen.err.getvalue()


async def test_changed_arguments_that_do_not_fit_are_asked_for_once_more(monkeypatch):
    from kaname import Approve
    from kaname.cli.terminal import questions

    agent = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], policies=[Approve("add")], journal="memory")
    waiting = await agent.run("go")
    monkeypatch.setattr("sys.stdin", Terminal('{"args": {"a": "one"}}\n{"args": {"a": 5, "b": 2}}\n'))
    screen = Screen(io.StringIO(), io.StringIO())
    run = await questions.resume_with_answers(agent, waiting, screen, (), asyncio.Event())
    assert run is not None
    assert (await run).steps[0].observation == "7"
    assert "the changed arguments were not accepted" in screen.err.getvalue()


def test_question_is_shown_where_it_is_asked_unless_it_stands_there_already(monkeypatch):
    from kaname.cli.terminal import questions
    from kaname.core.events import Asked
    from kaname.core.state import State
    from kaname.run.result import result_of

    result = result_of("r", State(questions={"approve:c1": Asked("approve:c1", "Pay 88000?", ("yes", "no"))}), None)
    for shown, times in (((), 1), (("Pay 88000?",), 0)):
        monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
        screen = Screen(io.StringIO(), io.StringIO())
        assert questions.ask_the_user(result, screen, shown) == {"approve:c1": "yes"}
        assert screen.err.getvalue().count("Pay 88000?") == times


@pytest.mark.parametrize(("language", "told"), [("en", "a tool of run r1 is"), ("ja", "実行 r1 のツールがまだ動いています")])
async def test_what_is_logged_meanwhile_stands_on_lines_of_its_own_in_the_users_language(monkeypatch, language, told):
    monkeypatch.setenv("KANAME_LANG", language)
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen(io.StringIO(), Terminal())
    log = getLogger("kaname")
    async with screen.spinner():
        screen.replace("⠧ 3 s pay()")
        log.warning("%s", notice("run.at_work", "a tool of run {run} is still running", run="r1"))
        log.warning("%s is %d", "it", 7)
        log.info("not shown")
    before, _, shown = screen.err.getvalue().partition("\r\x1b[2K\x1b[33m")
    assert before.endswith("⠧ 3 s pay()"), "the spinner's line is taken away first"
    assert shown.startswith(told)
    assert "it is 7" in shown
    assert "not shown" not in shown
    assert not [one for one in log.handlers if type(one).__name__ == "_ShownLog"]


def test_a_picture_that_the_model_made_is_saved_and_its_place_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    screen = Screen(io.StringIO(), io.StringIO())
    show = Show(screen)
    data = {"content": "image/png", "mime": "image/png", "name": "", "base64": b64encode(b"picture").decode(), "url": ""}
    show.take(Chunk(0.0, "agent", "media", data))
    show.take(Chunk(0.0, "agent", "media", {**data, "base64": "", "url": "https://example.org/a.png"}))
    show.take(Chunk(0.0, "agent", "media", {**data, "base64": "not base64"}))
    first, second, third = screen.err.getvalue().splitlines()
    (saved,) = tmp_path.iterdir()
    assert (saved.read_bytes(), saved.suffix, saved.stat().st_mode & 0o77) == (b"picture", ".png", 0)
    assert str(saved) in first
    assert "https://example.org/a.png" in second
    assert third.endswith("image/png")
