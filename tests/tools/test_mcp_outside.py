"""MCP servers as they are outside: restarted, with too much to say, with pictures in their data, with words for the model."""

import asyncio
import base64
import json
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest

from kaname import Agent, ScriptedModel, call
from kaname.core.messages import ToolCall
from kaname.tools.arguments.prepare import fitting_arguments
from kaname.tools.mcp.results import to_result
from tests.parts import Later

fastmcp = Later("fastmcp")
mcp_types = Later("mcp_types")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256))).decode()
PICTURE = base64.b64encode(bytes(range(256)) * 2).decode()


def agent(script, servers, **more):
    return Agent(ScriptedModel(script), mcp_servers=servers, journal="memory", **more)


async def answers(made):
    return list((await made.run("go")).state.results.values())


# Over HTTP, written by hand: a server of 2025 that keeps sessions


class OldServer:
    """`forgets`: how it answers a session that it does not know, as (status, content type, body)."""

    def __init__(self, forgets=(404, "text/plain", b"Not Found"), large=0, silent=False):
        self.forgets, self.large, self.session, self.calls = forgets, large, 1, []
        self.silent, self.writers, self.to_get = silent, [], 405

    async def __aenter__(self):
        self.listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.listening.sockets[0].getsockname()[1]}/mcp"
        return self

    async def __aexit__(self, *_):
        self.listening.close()

    async def _serve(self, reader, writer):
        self.writers.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                status, kind, answer = await self._answer(lines[0].split()[0], headers, json.loads(body or b"{}"))
                named = f"mcp-session-id: {self.session}\r\n"
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{named}content-length: {len(answer)}\r\n\r\n".encode()
                )
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, verb, headers, message):
        if verb != "post":
            return self.to_get, "text/plain", b""
        method = message.get("method")
        if method == "server/discover" and self.silent:
            await asyncio.sleep(60)
        if method == "initialize":
            self.client = message["params"]
            about = {"name": "old", "version": "1"}
            able = {"tools": {}, "resources": {}, "prompts": {}}
            return self._result(message, {"protocolVersion": "2025-06-18", "capabilities": able, "serverInfo": about})
        if headers.get("mcp-session-id") != str(self.session):
            return self.forgets
        if method == "tools/list":
            return self._result(message, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
        if method in ("resources/list", "prompts/list"):
            kind = method.partition("/")[0]
            one = {"name": "note", "uri": "file:///note"} if kind == "resources" else {"name": "hello"}
            return self._result(message, {kind: [one]})
        if method != "tools/call" and "id" in message:
            error = {"code": -32601, "message": "Method not found"}
            return 200, "application/json", json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
        if method != "tools/call":
            return 202, "text/plain", b""
        args = message["params"].get("arguments", {})
        self.calls.append(args)
        if args.get("fails"):
            return 500, "text/plain", b"after it was done"
        if args.get("slow"):
            await asyncio.sleep(1)
        return self._result(message, {"content": [{"type": "text", "text": "x" * self.large if args.get("large") else "fine"}]})

    @staticmethod
    def _result(message, result):
        whole = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return 200, "text/event-stream", f"event: message\ndata: {whole}\n\n".encode()


def refusal(**more):
    return json.dumps({"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: who are you?"}, **more}).encode()


@pytest.mark.parametrize(
    "forgets",
    [
        (404, "text/plain", b"Not Found"),
        (400, "text/plain", b"Bad Request"),
        (400, "application/json", refusal()),
        (400, "application/json", refusal(id=None)),
        (404, "application/json", refusal(id="server-error")),
        (410, "text/html", b"<p>gone"),
    ],
    ids=["404", "400-text", "400-no-id", "400-null-id", "404-other-id", "410"],
)
async def test_restarted_http_server_is_met_again_however_it_says_so(forgets):
    async with (
        OldServer(forgets) as server,
        agent([call("t", n=1), call("t", n=2), "ok"], {"old": {"url": server.url}}) as made,
    ):
        assert (await made.tools["t"].act({"n": 0}, context())).output == "fine"
        server.session += 1
        one, two = await answers(made)
    assert (one.output, two.output) == ("fine", "fine")
    assert [given["n"] for given in server.calls] == [0, 1, 2]  # once each


async def test_call_that_fails_after_its_effect_is_not_sent_again_for_what_befell_another_request():
    async with OldServer() as server:
        server.to_get = 400  # it takes no GET, and says so as if it did not know us
        async with agent([call("t", fails=True), "ok"], {"old": {"url": server.url}}) as made:
            await asyncio.sleep(0.2)
            (failed,) = await answers(made)
    assert failed.is_error
    assert server.calls == [{"fails": True}]


async def test_too_large_answer_fails_that_call_only(monkeypatch):
    monkeypatch.setattr("kaname.tools.mcp.transports._LARGEST", 1 << 20)
    script = [[call("t", large=True), call("t", slow=True)], "ok"]
    async with OldServer(large=20_000_000) as server, agent(script, {"old": {"url": server.url}}) as made:
        large, slow = await answers(made)
        assert made.servers.servers[0].connected
    assert "whether the call took effect is not known" in large.error
    assert slow.output == "fine"


def context():
    async def progress(text):
        pass

    return SimpleNamespace(progress=progress)


async def test_large_answer_of_an_older_server_is_taken():
    async with OldServer(large=5_000_000) as server, agent([call("t", large=True), "ok"], {"old": {"url": server.url}}) as made:
        (large,) = await answers(made)
    assert large.error is None


async def test_call_that_nobody_took_was_not_sent():
    async with OldServer() as server, agent([call("t", n=1), "ok"], {"old": {"url": server.url, "start_timeout": 3}}) as made:
        server.listening.close()
        for writer in server.writers:
            writer.transport.abort()
        await asyncio.sleep(0.1)
        (gone,) = await answers(made)
    assert "was not sent" in gone.error
    assert server.calls == []


async def test_server_over_http_that_is_silent_to_what_it_does_not_know_starts():
    async with (
        OldServer(silent=True) as server,
        agent([call("t"), "ok"], {"old": {"url": server.url, "start_timeout": 8}}) as made,
    ):
        (fine,) = await answers(made)
    assert fine.output == "fine"


async def test_server_of_another_protocol_is_told_as_such():
    error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["2027-01-01"], "requested": "x"}}

    async def serve(reader, writer):
        with closing(writer), suppress(asyncio.IncompleteReadError):  # the client has left
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
                message = json.loads(await reader.readexactly(int(size[0]) if size else 0) or b"{}")
                body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": error}).encode()
                head = f"HTTP/1.1 400 X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        async with agent(["x"], {"new": {"url": url}}) as made:
            assert "it supports only the protocol versions 2027-01-01" in made.servers.problems["new"]


# Results


def result(*content, **more):
    return to_result(mcp_types.CallToolResult(content=list(content), **more))


def text(words):
    return mcp_types.TextContent(type="text", text=words)


def test_media_in_structured_data_are_not_text():
    picture = mcp_types.ImageContent(type="image", data=PICTURE, mime_type="image/png")
    held = {"picture": {"mimeType": "image/png", "data": PICTURE}, "name": "a"}
    for made in (
        result(picture, structured_content=held),
        result(text(json.dumps(held)), structured_content=held),
        result(text(f"here: data:image/png;base64,{PICTURE}")),
        result(text(PNG)),
        result(text("{}"), structured_content={"image_base64": PNG, "content_type": "image/png"}),
        result(picture, text(f"the same: {PICTURE}")),
    ):
        assert PICTURE not in json.dumps(made.output)
        assert PNG not in json.dumps(made.output)
        assert "[image/png]" in json.dumps(made.output)
        assert [one.data for one in made.media] in ([PICTURE], [PNG])


def test_blob_that_is_text_is_read():
    blob = base64.b64encode('{"要": 1}'.encode()).decode()
    held = mcp_types.BlobResourceContents(uri="file:///a.json", mime_type="application/json", blob=blob)
    made = result(mcp_types.EmbeddedResource(type="resource", resource=held))
    assert '{"要": 1}' in made.output
    assert not made.media


@pytest.mark.parametrize(
    ("words", "data", "output"),
    [
        (["hello"], {"content": "hello"}, "hello"),
        (["hello"], {"result": "hello", "n": 1}, {"result": "hello", "n": 1}),
        (["1", "2"], {"result": ["1", "2"]}, {"result": ["1", "2"]}),
        (['{\n  "a": 1\n}'], {"a": 1}, {"a": 1}),
        (["two things"], {"a": 1}, {"text": "two things", "data": {"a": 1}}),
    ],
)
def test_text_that_stands_twice_is_sent_once(words, data, output):
    assert result(*[text(one) for one in words], structured_content=data).output == output


# Arguments


def test_null_of_an_optional_argument_is_absent():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": ["string", "null"]}},
        "required": ["a"],
    }
    given = fitting_arguments(ToolCall("1", "t", {"a": "x", "b": None, "c": None}), "t", schema)
    assert given == {"a": "x", "c": None}


# What servers say and ask


async def test_instructions_of_a_server_reach_the_model():
    seen = []

    def script(request):
        seen.append(request.messages[0])
        return call("t") if len(seen) == 1 else "ok"

    served = fastmcp.FastMCP("shop", instructions="Prices are in yen.")
    served.tool(lambda: "1", name="t")
    quiet = fastmcp.FastMCP("quiet")
    quiet.tool(lambda: "1", name="u")
    async with agent(script, {"shop": served, "quiet": quiet}, instructions="Be short.") as made:
        run = await made.run("go")
        assert (await made.replay(run.run_id)).same
    assert seen[0].role == "system"
    assert seen[0].text == "Be short.\n\nAbout the tools of the server 'shop', it says:\nPrices are in yen."
    assert seen[0] is seen[1]


async def test_server_without_templates_keeps_its_prompts():
    async with OldServer() as server, agent(["x"], {"old": {"url": server.url}}) as made:
        held = await made.servers.library()
    assert [(one.kind, one.name) for one in held] == [("resource", "note"), ("prompt", "hello")]


def asking():
    """A server of 2026: its tool gives back what it wants to know, and is called again with the answers."""
    served = fastmcp.FastMCP("asking")

    @served.tool
    async def book(ctx: fastmcp.Context) -> str:
        if (held := ctx.input_responses) is None:
            wanted = {"type": "object", "properties": {"name": {"type": "string"}, "seats": {"type": "integer", "default": 2}}}
            ask = mcp_types.ElicitRequestFormParams(message="For whom?", requested_schema=wanted)
            return mcp_types.InputRequiredResult(input_requests={"q": mcp_types.ElicitRequest(params=ask)})
        return f"{held['q'].action} {held['q'].content}"

    @served.tool
    async def think(ctx: fastmcp.Context) -> str:
        if (held := ctx.input_responses) is None:
            said = mcp_types.SamplingMessage(role="user", content=text("Name a colour."))
            ask = mcp_types.CreateMessageRequestParams(messages=[said], max_tokens=20, system_prompt="One word.")
            return mcp_types.InputRequiredResult(input_requests={"q": mcp_types.CreateMessageRequest(params=ask)})
        return f"{held['q'].model}: {held['q'].content.text}"

    @served.tool
    async def folders(ctx: fastmcp.Context) -> str:
        if (held := ctx.input_responses) is None:
            return mcp_types.InputRequiredResult(input_requests={"q": mcp_types.ListRootsRequest()})
        return " ".join(str(root.uri) for root in held["q"].roots)

    return served


async def test_form_of_the_newest_protocol_is_answered_with_its_defaults():
    async def elicit(server, question, schema):
        return {"name": "Ann"}

    async with agent([call("book"), "ok"], {"s": asking()}, elicit=elicit) as made:
        (booked,) = await answers(made)
    assert booked.output == "accept {'seats': 2, 'name': 'Ann'}"


async def test_form_is_not_offered_where_nobody_answers():
    async with agent([call("book"), "ok"], {"s": asking()}) as made:
        (booked,) = await answers(made)
    assert booked.is_error


@pytest.mark.parametrize("answers_it", [False, True])
async def test_server_is_told_whether_somebody_answers_forms(answers_it):
    async def elicit(server, question, schema):
        return {}

    async with OldServer() as server, agent(["x"], {"old": {"url": server.url}}, elicit=elicit if answers_it else None) as made:
        await made.run("go")
    assert ("elicitation" in server.client["capabilities"]) == answers_it


async def test_older_way_to_ask_gets_advice():
    served = fastmcp.FastMCP("s")

    @served.tool
    async def ask(ctx: fastmcp.Context) -> str:
        return str(await ctx.elicit("Who?", str))

    async with agent([call("ask"), "ok"], {"s": served}) as made:
        (asked,) = await answers(made)
    assert "put `protocol: legacy` into the entry of 's'" in asked.error


async def test_sampling_is_a_child_run_whose_cost_counts():
    def script(request):
        if request.messages[0].text == "One word.":
            assert [m.text for m in request.messages[1:]] == ["Name a colour."]
            assert request.settings["max_tokens"] == 20
            assert not request.tools
            return "Indigo"
        return "ok" if request.messages[-1].role == "tool" else call("think")

    async with agent(script, {"s": {"server": asking(), "sampling": True}}) as made:
        result = await made.run("go")
        (thought,) = result.state.results.values()
        assert thought.output == "scripted: Indigo"
        assert thought.usage.total > 0
        alone = sum(m.usage.total for m in [thought])
        assert result.usage.total > alone
        (child,) = [run for run in await made.journal.runs() if run.run_id != result.run_id]
        assert child.run_id.endswith("/s-asks-1")
        assert (await made.result(child.run_id)).output == "Indigo"


async def test_sampling_is_off_unless_allowed():
    async with agent([call("think"), "ok"], {"s": asking()}) as made:
        (thought,) = await answers(made)
    assert thought.is_error


async def test_roots_are_told(tmp_path):
    async with agent([call("folders"), "ok"], {"s": {"server": asking(), "roots": [str(tmp_path)]}}) as made:
        (told,) = await answers(made)
    assert told.output == tmp_path.as_uri()


async def test_tools_of_an_entry_are_those_that_it_names():
    async with agent(["x"], {"s": {"server": asking(), "tools": ["book", "think"], "exclude_tools": ["think"]}}) as made:
        assert list(made.tools) == ["book"]
