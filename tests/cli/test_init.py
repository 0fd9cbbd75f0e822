"""The file that `kaname init` writes is right as it is, and right with every line uncommented."""

import os
import re
import sys

import pytest

from kaname.cli.init import TEMPLATE
from kaname.cli.main import main
from kaname.models.local import weights
from tests import warm
from tests.parts import SOURCE

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


def settings_in(text):
    return [re.sub(r" {2,}# .*", "", line) for line in text.splitlines() if re.match(r" *(# *)?[a-z_]+:", line)]


@pytest.mark.parametrize("language", ["en", "ja"])
@pytest.mark.parametrize("all_of_it", [False, True])
def test_template_is_valid_as_it_is_and_uncommented(all_of_it, language, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KANAME_LANG", language)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("KANAME_CACHE", str(tmp_path))  # a local model that was downloaded: it is not loaded here
    (tmp_path / "models").mkdir()
    with (tmp_path / "models" / weights.FILE).open("wb") as file:
        file.write(b"GGUF")
        file.truncate(weights.SIZE)
    (tmp_path / "mail.py").write_text(TOOLS)
    (tmp_path / "order.yaml").write_text("workflow: {steps: [{name: sure, ask: 'Order it?'}]}")
    assert main(["init"]) == 0
    text = (tmp_path / "kaname.yaml").read_text(encoding="utf-8")
    assert settings_in(text) == settings_in(TEMPLATE), "the languages differ in their remarks alone"
    assert (text == TEMPLATE) == (language == "en")
    if all_of_it:
        text = uncommented(text).replace("tools: []", 'tools: ["mail.py"]')
        assert not re.search(r"^ *# [a-z_]+:(?! \$schema)", text, re.M)
        (tmp_path / "kaname.yaml").write_text(text, encoding="utf-8")
    code = main(["config", "check"])
    assert code == 0, capsys.readouterr()


def test_runs_from_before_the_file_was_there_are_told_of(tmp_path):
    (tmp_path / "program.py").write_text(
        'from kaname import Agent, ScriptedModel\nAgent(ScriptedModel(["hi"])).run_sync("hello")'
    )
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": SOURCE, "KANAME_LANG": "en"}

    def python(*arguments):
        return warm.run([sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)

    python("program.py")
    assert "hello" in python("-m", "kaname.cli.main", "runs").stdout
    python("-m", "kaname.cli.main", "init")
    told = python("-m", "kaname.cli.main", "runs").stderr
    place = told.partition("runs --journal ")[2].strip()
    assert "hello" in python("-m", "kaname.cli.main", "runs", "--journal", place).stdout
