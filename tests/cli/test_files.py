"""Files in the terminal: attached to a task or to the next message, and refused when they are not what they claim to be."""

import sqlite3

from kaname import Agent, load_config
from tests.cli.test_commands import terminal as terminal
from tests.senses.test_remote import PNG


def test_file_is_attached_to_a_task_and_stored_next_to_the_journal(terminal):
    (terminal.folder / "photo.png").write_bytes(PNG + bytes(2000))
    done = terminal("run", "What is it?", "--file", "photo.png", "-m", terminal.script("A cat."))
    assert (done.returncode, done.stdout) == (0, "A cat.\n"), done.stderr
    with sqlite3.connect(terminal.folder / "journal.db-media") as database:
        assert database.execute("SELECT mime, name, size FROM uses").fetchall() == [("image/png", "photo.png", len(PNG) + 2000)]
    database.close()
    alone = terminal("run", "-f", "photo.png", "-m", terminal.script("A cat."))
    assert alone.returncode == 0, alone.stderr


def test_file_that_is_missing_or_lies_is_told_before_anything_runs(terminal):
    (terminal.folder / "song.mp3").write_bytes(PNG)
    for name, told in (("song.mp3", "song.mp3 is not what it claims to be"), ("none.png", "none.png does not exist")):
        done = terminal("run", "What is it?", "--file", name, "-m", terminal.script("A cat."))
        assert done.returncode != 0
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_model_is_not_downloaded_without_an_answer_and_files_are_checked_before_that(terminal):
    done = terminal("run", "hi", "-m", "local")
    assert (done.returncode, "KANAME_DOWNLOAD=yes" in done.stderr) == (2, True), done.stderr
    assert not (terminal.folder / "cache").exists()
    done = terminal("run", "hi", "-m", "local", "--file", "none.png", KANAME_DOWNLOAD="yes")
    assert (done.returncode, "none.png does not exist" in done.stderr) == (2, True), done.stderr
    assert not (terminal.folder / "cache").exists()


def test_file_goes_with_the_next_message_of_a_chat(terminal):
    (terminal.folder / "photo.png").write_bytes(PNG)
    said = "/file\n/file nothing.png\n/file photo.png\nlook\nagain\nquit\n"
    done = terminal("chat", "-m", terminal.script("A cat.", "Still a cat."), stdin=said)
    assert "no file is attached" in done.stderr
    assert "nothing.png does not exist" in done.stderr
    assert "attached: photo.png (image/png)" in done.stderr
    assert "Still a cat." in done.stdout


def test_senses_of_the_file_are_checked_and_reach_the_tools(tmp_path):
    (tmp_path / "script.json").write_text('["hi"]')
    (tmp_path / "kaname.yaml").write_text("""
agents:
  clerk: {model: scripted/script.json, tools: ["senses:read_text,transcribe"]}
senses:
  transcribe: [local]
  longest: 30m
  folder: files
""")
    agent = Agent.from_config(load_config(str(tmp_path / "kaname.yaml")), journal="memory")
    assert {tool["name"] for tool in agent.available_tools} == {"read_text", "transcribe"}
