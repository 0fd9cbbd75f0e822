"""`kaname chat` at a real terminal: what a person sees while a tool works, and after the program was killed."""

import os
import signal
import sys

import pytest

from tests.parts import typed_into

AGENT = '''
import asyncio
from pathlib import Path
from kaname import Agent, ScriptedModel, ToolContext, call, tool

@tool(effect="pure")
async def count(context: ToolContext) -> str:
    """Count the pages."""
    await context.progress("page 1 of 6")
    if not Path("released").exists():
        await asyncio.Event().wait()
    return "six"

def reply(request):
    return "There are six pages." if any(one.role == "tool" for one in request.messages) else call("count")

agent = Agent(ScriptedModel(reply), [count], journal="journal.db")
'''


@pytest.fixture
def chat(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)

    def typed(*feed, language="en"):
        environment = {**os.environ, "TERM": "xterm", "LANG": "C.UTF-8", "PROMPT_TOOLKIT_NO_CPR": "1", "KANAME_LANG": language}
        command = [sys.executable, "-m", "kaname.cli.main", "chat", "--agent", "agent.py:agent", "--session", "s"]
        return typed_into(command, environment, tmp_path, feed)

    typed.folder = tmp_path
    return typed


@pytest.mark.parametrize(
    ("language", "leave", "offer"),
    [
        ("en", "quit to leave", "The last turn was interrupted. Continue it? [Y/n]"),
        ("ja", "quit で終了", "直前の回答が中断されました。続けますか? [Y/n]"),
    ],
)
def test_turn_that_was_killed_is_offered_and_continued(chat, language, leave, offer):
    code, shown = chat((leave, "How many?\r"), ("page 1 of 6", signal.SIGKILL), language=language)
    assert (code, "There are six" in shown) == (-signal.SIGKILL, False)
    (chat.folder / "released").write_text("")
    code, shown = chat((offer, "\r"), ("There are six pages.", "quit\r"), language=language)
    assert (code, shown.count("There are six pages.")) == (0, 1)
    code, shown = chat((leave, "quit\r"), language=language)
    assert (code, offer in shown) == (0, False), "it is offered once"


def test_turn_that_was_killed_can_be_left_as_it_is(chat):
    chat(("quit to leave", "How many?\r"), ("page 1 of 6", signal.SIGKILL))
    code, shown = chat(("Continue it? [Y/n]", "n\r"), ("runs resume", "quit\r"))
    assert code == 0
    assert "the last turn is not finished; to continue it: " in shown


def test_progress_of_a_tool_is_shown(chat):
    _, shown = chat(("quit to leave", "How many?\r"), ("page 1 of 6", signal.SIGKILL))
    assert "page 1 of 6" in shown
