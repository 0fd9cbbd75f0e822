"""`kaname memory` and `kaname sessions`, as somebody types them."""

import json

import pytest

from kaname.cli.main import main


@pytest.fixture
def kaname(tmp_path, monkeypatch, capsys):
    """In this process: the encoder is loaded once."""
    (tmp_path / "kaname.yaml").write_text(
        "agents: {helper: {model: scripted/s.json, memory: rules, compact: 4000, project: true}}\n"
    )
    (tmp_path / "s.json").write_text(json.dumps(["I see."] * 5))
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code=0, language="en"):
        monkeypatch.setenv("KANAME_LANG", language)
        done = main(list(arguments))
        told = capsys.readouterr()
        assert done == code, told.err
        return told.out + told.err

    return run


def test_memories_are_learnt_listed_corrected_and_forgotten(kaname, tmp_path):
    assert "no memories yet" in kaname("memory")
    kaname("run", "-q", "I keep bees on the roof. What do they eat?")
    assert "said: I keep bees on the roof." in kaname("memory")
    assert "発言: I keep bees on the roof." in kaname("memory", language="ja")
    kaname("memory", "add", "Ken lives in Leeds.", "--about", "home")
    kaname("memory", "add", "Ken lives in York.", "--about", "home")
    assert "Leeds" not in kaname("memory", "list")
    assert "Leeds" in kaname("memory", "list", "--all")
    assert kaname("memory", "search", "where is home").splitlines()[0].endswith("Ken lives in York.")
    assert [line.split()[0] for line in kaname("memory", "history", "3").splitlines()] == ["3", "2"]
    assert "Ken lives in Bath." in kaname("memory", "correct", "3", "Ken lives in Bath.")
    assert "2 deleted" in kaname("memory", "forget", "3")
    assert [json.loads(line)["text"] for line in kaname("memory", "export").splitlines()] == ["I keep bees on the roof."]
    assert (tmp_path / ".kaname" / "memory").is_dir()


def test_a_profile_is_set_shown_and_taken_back(kaname):
    assert "language: 日本語" in kaname("memory", "profile", "language=日本語", "style=brief")
    assert kaname("memory", "profile", "style=").split() == ["language:", "日本語"]
    assert "write NAME=VALUE" in kaname("memory", "profile", "style", code=2)


def test_what_is_typed_wrong_is_told(kaname):
    assert "give the numbers" in kaname("memory", "forget", "bees", code=2)
    assert "there is no memory with the number 7" in kaname("memory", "forget", "7", code=2)
    assert "番号 7 の記憶はありません" in kaname("memory", "forget", "7", code=2, language="ja")
    kaname("memory", "add", "Ken lives in York.")
    assert "write the date as 2026-03-01" in kaname("memory", "search", "x", "--at", "soon", code=2)
    assert "no memories yet" in kaname("memory", "search", "x", "--user", "nobody", code=1)


def test_sessions_are_listed_renamed_searched_shown_and_deleted(kaname):
    kaname("run", "-q", "-s", "bees", "Tell me about bees.")
    kaname("run", "-q", "-s", "ants", "Tell me about ants.")
    assert [line.split()[0] for line in kaname("sessions").splitlines()[:2]] == ["ants", "bees"]
    kaname("sessions", "rename", "bees", "All about bees")
    assert "All about bees" in kaname("sessions", "search", "bees")
    assert "helper: I see." in kaname("sessions", "show", "All about")
    assert json.loads(kaname("sessions", "export", "ants"))["messages"][0]["content"] == "Tell me about ants."
    assert "deleted ants (1 run)" in kaname("sessions", "delete", "ants", "-y")
    assert "ants" not in kaname("sessions")
    assert "there is no session 'ants'" in kaname("sessions", "show", "ants", code=2)
    assert "name a session" in kaname("sessions", "delete", code=2)


def test_options_may_stand_between_and_deleting_much_wants_a_yes(kaname):
    kaname("memory", "add", "--user", "ken", "Ken likes tea.")
    kaname("memory", "add", "Ken likes cake.", "--user", "ken")
    assert "likes tea" in kaname("memory", "search", "--user", "ken", "tea")
    assert "exactly one of" in kaname("memory", "forget", "1", "--all", "--user", "ken", code=2)
    assert "there is no terminal to ask in" in kaname("memory", "forget", "--all", "--user", "ken", code=1)
    assert "there is no terminal to ask in" in kaname("memory", "forget", "--older", "0.001s", "--user", "ken", code=1)
    assert "2 deleted" in kaname("memory", "forget", "--all", "-y", "--user", "ken")
    kaname("run", "-q", "-s", "bees", "Tell me about bees.")
    assert json.loads(kaname("sessions", "search", "bees", "--json"))["said"][0]["text"] == "Tell me about bees."
    assert "there is no terminal to ask in" in kaname("sessions", "delete", "bees", code=1)


@pytest.mark.parametrize(
    ("line", "told"), [("compact: -3", "tokens must be an integer"), ("project: nowhere", "is not a folder")]
)
def test_a_wrong_part_of_the_context_is_told_with_its_line(kaname, tmp_path, line, told):
    (tmp_path / "kaname.yaml").write_text(f"agents:\n  helper:\n    model: scripted/s.json\n    {line}\n")
    answer = kaname("config", "check", code=2)
    assert told in answer
    assert ":4" in answer
