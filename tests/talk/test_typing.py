"""A user types in the terminal while the agent works."""

import os
import sys

from tests.parts import typed_into

AGENT = '''
from kaname import Agent, ScriptedModel, ToolContext, call, tool

@tool
async def look(context: ToolContext) -> str:
    """Look until the user says something."""
    await context.journal.stores.inbox.letters(context.run_id, wait=True)
    return "seen"

def reply(request):
    said = [message.text for message in request.messages if message.role == "user"]
    return "heard " + " and ".join(said) if any(message.role == "tool" for message in request.messages) else call("look")

agent = Agent(ScriptedModel(reply), [look], journal="journal.db")
'''


def test_a_line_that_is_typed_while_the_agent_works_is_seen_by_the_model(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    environment = {**os.environ, "TERM": "xterm", "LANG": "en_US.UTF-8", "PROMPT_TOOLKIT_NO_CPR": "1", "HOME": str(tmp_path)}
    feed = [("quit to leave", "How much?\r"), ("→ look()", "in yen\n"), ("heard How much? and in yen", "quit\r")]
    command = [sys.executable, "-m", "kaname.cli.main", "chat", "--agent", "agent.py:agent"]
    code, shown = typed_into(command, environment, tmp_path, feed)
    assert "heard How much? and in yen" in shown
    assert code == 0
