"""The file that `kaname init` writes is right as it is, and right with every line uncommented."""

import re

import pytest

from kaname.cli.init import TEMPLATE
from kaname.cli.main import main

TOOLS = '''
from kaname import tool


@tool
def send_mail(to: str) -> str:
    """Send mail."""
    return to
'''


def uncommented(text):
    """As somebody does it who wants everything: the signs of the lines that are settings are taken away."""
    return re.sub(r"^( *)# (?=[ ]*[a-z_]+: ?)(?!yaml-language-server)", r"\1", text, flags=re.M)


@pytest.mark.parametrize("all_of_it", [False, True])
def test_template_is_valid_as_it_is_and_uncommented(all_of_it, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    (tmp_path / "mail.py").write_text(TOOLS)
    assert main(["init"]) == 0
    text = (tmp_path / "kaname.yaml").read_text(encoding="utf-8")
    assert text == TEMPLATE
    if all_of_it:
        text = uncommented(text).replace("tools: []", 'tools: ["mail.py"]')
        assert not re.search(r"^ *# [a-z_]+:(?! \$schema)", text, re.M)
        (tmp_path / "kaname.yaml").write_text(text, encoding="utf-8")
    code = main(["config", "check"])
    assert code == 0, capsys.readouterr()


def test_runs_from_before_the_file_was_there_are_told_of(tmp_path, monkeypatch, capsys):
    from kaname import Agent, ScriptedModel
    from kaname.core import project

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KANAME_JOURNAL", raising=False)
    monkeypatch.setattr(project, "program_folder", lambda: str(tmp_path))
    Agent(ScriptedModel(["hi"])).run_sync("hello")
    assert main(["init"]) == 0
    assert main(["runs"]) == 0
    before = project.path_without_project("journal.db")
    assert f"kaname runs --journal {before}" in capsys.readouterr().err
