"""What makes the local model quicker: kept prefixes, JSON in one spelling, as many threads as the host has free."""

import json

import pytest

from kaname import Agent, tool
from kaname.models import Local
from kaname.models.local import model as local
from kaname.models.local import prefix
from kaname.testing import WireServer
from kaname.testing.wire import Answer, reply

pytest.importorskip("xllamacpp")
LONG = "Answer from the tools. " * 60


@tool(effect="pure")
def look(place: str) -> str:
    """Look."""
    return "a cat"


class Llama:
    """Plays llama.cpp's server: it keeps its state in files, and loses it with the process."""

    def __init__(self, folder, *, broken=False):
        self.folder, self.broken, self.did = folder, broken, []

    def __call__(self, body):
        if "filename" not in body:
            alone = body["max_tokens"] == 1
            self.did.append("reads the instructions" if alone else "answers")
            return (
                Answer(body=b"{}", headers=(("content-type", "application/json"),))
                if alone
                else reply('{"tool":"answer","text":"done"}')
            )
        path = self.folder / body["filename"]
        self.did.append("restores" if path.exists() else "saves")
        if self.broken:
            return Answer(status=500, body=b"{}")
        path.write_bytes(b"state")
        return Answer(body=b"{}", headers=(("content-type", "application/json"),))


async def ask(server, instructions=LONG, schema=None):
    model = local._Served("small", base_url=server.url, api_key="k", settings={"max_tokens": 100}, tool_mode="constrained")
    model.runs = "weights"
    agent = Agent(model, [look], instructions=instructions, journal="memory")
    result = await agent.run("What is there?")
    await agent.close()
    return result


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("KANAME_CACHE", str(tmp_path))
    prefix.folder().mkdir(parents=True)
    return prefix.folder()


async def test_state_after_the_instructions_is_saved_once_and_restored_by_the_next_process(kept):
    llama = Llama(kept)
    async with WireServer(llama) as server:
        await ask(server)
        assert llama.did == ["reads the instructions", "saves", "answers"]
        assert all("What is there?" not in json.dumps(request) for request in server.requests[:2]), "nothing of the question"
        assert len(list(kept.glob("*.state"))) == len(list(kept.iterdir())) == 1
        await ask(server)
        assert llama.did[3:] == ["answers"], "the server has it by itself"
    llama.did.clear()
    async with WireServer(llama) as server:  # a new process has a server of its own
        await ask(server)
        assert llama.did == ["restores", "answers"]
    llama.did.clear()
    async with WireServer(llama) as server:
        await ask(server, LONG + "Be brief.")
        assert llama.did == ["reads the instructions", "saves", "answers"], "other instructions, another state"


async def test_state_that_cannot_be_restored_or_saved_costs_no_answer(kept):
    llama = Llama(kept)
    async with WireServer(llama) as server:
        await ask(server)
    llama.broken = True
    async with WireServer(llama) as server:
        assert (await ask(server)).output
    assert not list(kept.glob("*.part"))


async def test_short_instructions_are_not_kept(kept):
    llama = Llama(kept)
    async with WireServer(llama) as server:
        await ask(server, "Be brief.")
    assert llama.did == ["answers"]


async def test_only_the_newest_states_are_kept(kept):
    llama = Llama(kept)
    for number in range(10):
        async with WireServer(llama) as server:
            await ask(server, f"{LONG} {number}")
    assert len(list(kept.iterdir())) == 8


async def test_json_of_the_local_model_is_held_to_one_spelling(kept):
    async with WireServer(Llama(kept)) as server:
        await ask(server, "Be brief.")
        (request,) = server.requests
    assert "response_format" not in request
    schema = json.loads(request["grammar"].partition("%json ")[2])
    assert schema["x-guidance"] == {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
    assert [form["properties"]["tool"]["const"] for form in schema["anyOf"]] == ["look", "answer"]


@pytest.mark.parametrize(
    ("cores", "load", "threads"),
    [(2, 0.1, 0), (2, 0.9, 1), (2, 11.0, 1), (4, 1.2, 3), (16, 2.0, 8), (16, 12.4, 4), (1, 3.0, 1)],
)
def test_threads_are_as_many_as_the_host_has_free(cores, load, threads):
    assert local.free_threads(cores, load) == threads


def test_threads_that_are_given_count_and_else_are_decided_when_the_model_is_loaded(monkeypatch, tmp_path):
    (tmp_path / "small.gguf").write_bytes(b"GGUF and no more")
    monkeypatch.setenv("KANAME_THREADS", "3")
    assert Local(tmp_path / "small.gguf").plan.threads == 3
    assert Local(tmp_path / "small.gguf", threads=2).plan.threads == 2
    monkeypatch.delenv("KANAME_THREADS")
    assert Local(tmp_path / "small.gguf").plan.threads is None


def test_grammar_leaves_room_for_no_property_that_the_schema_does_not_name():
    """By JSON Schema an object may have any others, and a small model writes them until its last token."""
    inner = {"type": "object", "properties": {"properties": {"type": "string", "default": {"properties": 1}}}}
    free = {"type": "object", "additionalProperties": {"type": "integer"}}
    schema = {"type": "object", "properties": {"one": {"$ref": "#/$defs/inner"}, "any": free}, "$defs": {"inner": inner}}
    _, _, told = local.compact_grammar(schema).partition("%json ")
    held = json.loads(told)
    assert held["additionalProperties"] is held["$defs"]["inner"]["additionalProperties"] is False
    assert held["properties"]["any"] == free, "an object that says so itself stays open"
    assert held["$defs"]["inner"]["properties"] == inner["properties"]
