"""Questions at the terminal."""

import io

from kaname import Agent, Approve, ScriptedModel, call, tool
from kaname.cli.terminal import questions
from kaname.cli.terminal.screen import Screen


@tool
def pay(yen: int) -> str:
    """Pay."""
    return f"paid {yen}"


def test_empty_line_is_no_answer_and_the_end_of_input_leaves_it_open(monkeypatch):
    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal="memory")
    waiting = agent.run_sync("Pay.")
    lines = iter(["", "  ", "yes"])
    monkeypatch.setattr(questions, "somebody_is_there", lambda: True)
    monkeypatch.setattr("builtins.input", lambda: next(lines))
    shown = io.StringIO()
    assert list(questions.ask_the_user(waiting, Screen(shown, shown)).values()) == ["yes"]

    def ends():
        raise EOFError

    monkeypatch.setattr("builtins.input", ends)
    assert questions.ask_the_user(waiting, Screen(shown, shown)) == {}
