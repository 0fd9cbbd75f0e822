"""Replays call no model: the agent of a frozen run is made without the keys of its providers."""

import os

import pytest

from kaname import Agent, ConfigError, ModelRequest, ScriptedModel, load_config
from kaname.core.messages import user
from kaname.models.compatible import SERVERS
from kaname.models.http.keys import keys_at_first_call
from kaname.models.registry import resolve
from kaname.testing import agent_of, freeze, save_run

NAMES = ["openai/gpt-5.4-mini", "openai/some-model", "anthropic/some-model", "groq/some-model"]
GIVEN = "models: {openai: {api_key: '${OPENAI_API_KEY}', headers: {x-team: '${TEAM_TOKEN}'}}}\n"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in [name for name in os.environ if name.endswith(("_KEY", "_TOKEN", "_BASE_URL"))]:
        monkeypatch.delenv(name)


@pytest.fixture
async def record(tmp_path):
    agent = Agent(ScriptedModel(["hello"]), journal="memory", name="desk")
    result = await agent.run("hi")
    return await save_run(agent.journal, result.run_id, tmp_path / "run.jsonl")


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("more", ["", GIVEN], ids=["in the environment", "named in the file"])
async def test_a_frozen_run_needs_no_key(record, tmp_path, model, more):
    (tmp_path / "kaname.yaml").write_text(f"agents: {{desk: {{model: {model}}}}}\njournal: memory\n{more}")
    freeze(record, lambda: agent_of("kaname.yaml", "desk", tmp_path))()
    if not more:
        freeze(record, lambda: Agent(model, journal="memory", name="desk"))()
    with pytest.raises(ConfigError, match="needs a key|is not set"):
        Agent.from_config(load_config(tmp_path / "kaname.yaml"))


async def test_a_model_made_without_its_key_says_so_when_it_is_called_and_sends_nothing():
    async def emit(*_):
        raise AssertionError("nothing is said")

    for model in [*NAMES, *[f"{provider}/some-model" for provider in SERVERS]]:
        with keys_at_first_call():
            made = resolve(model)
        lacks = not SERVERS[model.partition("/")[0]].key if model.partition("/")[0] in SERVERS else True
        if lacks:
            with pytest.raises(ConfigError, match="needs a key"):
                await made.reply(ModelRequest((user("hi"),)), emit)
