"""The names at the top of the package: few are shown, all can be imported, and type checkers know each."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import kaname


def test_the_names_that_most_programs_need_are_about_twenty_five_and_stand_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^from kaname import ([\w, ]+?)(?:  #.*)?$", page, re.M)
    listed = [name for line in lines for name in line.split(", ")]
    assert 20 <= len(listed) <= 28
    assert {*listed} <= {*kaname.__all__}


@pytest.mark.parametrize("package", ["kaname", "kaname.designs", "kaname.models"])
def test_every_public_name_can_be_imported_and_is_listed(package):
    module = import_module(package)
    public: dict[str, object] = {}
    exec(f"from {package} import *", public)
    assert {*module.__all__} == {*public} - {"__builtins__"}
    assert {*module.__all__} <= {*dir(module)}
    with pytest.raises(AttributeError, match="nothing_like_this"):
        module.nothing_like_this  # noqa: B018


def test_two_names_of_one_class():
    assert kaname.Fallback is kaname.FallbackStrategy


def test_an_agent_is_made_from_a_file(tmp_path):
    (tmp_path / "script.json").write_text('["Hello."]')
    (tmp_path / "kaname.yaml").write_text("""
agents:
  first: {model: scripted/script.json, instructions: Be brief.}
  second: {model: scripted/script.json, instructions: Be long.}
""")
    config = kaname.load_config(str(tmp_path / "kaname.yaml"))
    second = kaname.Agent.from_config(config, agent="second", journal="memory")
    assert (second.name, second.recipe.instructions) == ("second", "Be long.")
    assert second.run_sync("hi").output == "Hello."
    assert kaname.Agent.from_config(config, journal="memory").name == "first"
    assert kaname.Agent(config, journal="memory").name == "first"
