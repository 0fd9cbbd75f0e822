"""Design B: the configuration, and the interactive session."""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

import pytest

from kaname import Agent, ConfigError, load_config
from kaname.testing import WireServer
from kaname.testing.wire import reply
from tests.mcp_servers.everyday import make


@pytest.mark.requirement("B10")
async def test_config_yaml_as_the_design_shows(tmp_path, monkeypatch):
    async with WireServer([reply("hello")]) as server:
        monkeypatch.setenv("OPENAI_KEY_OF_MINE", "sk-mine")
        path = tmp_path / "config.yaml"
        path.write_text(
            f"llm:\n  provider: openai\n  openai:\n    model: gpt-4\n    api_key: ${{OPENAI_KEY_OF_MINE}}\n    base_url: {server.url}\n"
        )
        async with Agent(load_config(path), journal="memory") as agent:
            assert (await agent.run("hi")).output == "hello"
    assert server.headers[0]["authorization"] == "Bearer sk-mine"
    path.write_text("llm:\n  provider: opnai\n  openai: {modle: gpt-4}\nmcp_servers:\n  files: {args: [x]}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    for told in (
        "config.yaml:2: llm.provider: unknown provider 'opnai'; did you mean 'openai'",
        "llm.openai.modle",
        "mcp_servers.files",
    ):
        assert told in str(caught.value)


@pytest.mark.requirement("D21")
async def test_agents_are_declared_in_a_file(tmp_path):
    (tmp_path / "script.json").write_text('["hi"]')
    (tmp_path / "kaname.yaml").write_text(f"agents: {{greeter: {{model: scripted/{tmp_path}/script.json}}}}")
    agent = Agent(load_config(tmp_path / "kaname.yaml"), journal="memory", mcp_servers={"everyday": make()})
    async with agent:
        assert agent.name == "greeter"
        assert (await agent.run("hello")).output == "hi"


class Terminal:
    """A real one (a pty), with a person at it."""

    def __init__(self, *command, **environment):
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, {**os.environ, "TERM": "xterm", "COLUMNS": "80", **environment})
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        self.seen = ""

    def wait_for(self, text, seconds=30.0):
        end = time.monotonic() + seconds
        while text not in self.plain:
            assert time.monotonic() < end, f"{text!r} did not come:\n{self.plain}"
            if select.select([self._fd], [], [], 0.1)[0]:
                data = os.read(self._fd, 65536)
                if b"\x1b[6n" in data:  # where is the cursor?
                    os.write(self._fd, b"\x1b[1;1R")
                self.seen += data.decode("utf-8", "replace")

    @property
    def plain(self):
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen)

    def type(self, text):
        os.write(self._fd, text.encode())

    def end(self):
        try:
            while os.read(self._fd, 65536):
                pass
        except OSError:
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.requirement("B11")
def test_the_interactive_session(tmp_path):
    (tmp_path / "script.json").write_text(
        '[{"calls": [{"name": "wait", "args": {"seconds": 30}}]}, "まだいます **strong**", {"calls": [{"name": "add", "args": {"a": 1, "b": 2}}]}, "三です"]'
    )
    tools = tmp_path / "sometools.py"
    tools.write_text(
        "import asyncio\nfrom kaname import tool\n\n@tool(effect='pure')\nasync def wait(seconds: float) -> str:\n    'Wait.'\n"
        "    await asyncio.sleep(seconds)\n    return 'waited'\n\n@tool(effect='pure')\ndef add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n"
    )
    here = {"HOME": str(tmp_path), "KANAME_LANG": "en", "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-m", "kaname.cli.main", "chat", "-m", f"scripted/{tmp_path}/script.json", "-t", str(tools)]
    terminal = Terminal(*command, **here)
    terminal.wait_for("quit to leave")
    terminal.wait_for(">")
    terminal.type("please wait\r")
    terminal.wait_for("→ wait(seconds=30)")
    terminal.type("\x03")  # Ctrl-C: the run, not the program
    terminal.wait_for("you can continue the conversation")
    terminal.type("still\x1b\rthere?\r")  # two lines
    terminal.wait_for("まだいます strong")
    terminal.wait_for("[15 tokens")  # what is typed before that is said to the run
    terminal.type("1 + 2?\r")
    terminal.wait_for("← 3")
    terminal.wait_for("三です")
    terminal.wait_for("[30 tokens")
    terminal.type("QUIT\r")  # in any case
    terminal.wait_for("kaname chat --session")
    assert terminal.end() == 0
    assert "still" in (tmp_path / "state" / "kaname" / "history").read_text()
