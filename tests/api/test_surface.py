"""The names at the top of the package: few are shown, all can be imported, and type checkers know each."""

from pathlib import Path

import kaname


def test_the_names_that_most_programs_need_are_about_twenty_four():
    assert len(kaname.__all__) <= 26
    assert kaname.__all__ == sorted(kaname.__all__)
    for name in kaname.__all__:
        assert getattr(kaname, name) is not None


def test_every_other_name_can_be_imported_and_is_known_to_type_checkers():
    source = Path(kaname.__file__).read_text(encoding="utf-8")
    for home, names in kaname._HOMES.items():
        for name in names:
            assert getattr(kaname, name) is not None
            assert f"from .{home} import {name} as {name}" in source, f"{name} is not declared for type checkers"
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
