"""Traces: console, file and a real OTLP receiver; one tree, nothing twice, completed after a crash."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from kaname import Agent, ConfigError, Retry, ScriptedModel, ToolContext, Worker, call, load_config, max_steps, tool
from kaname.core.errors import ModelUnavailable
from kaname.core.tracing import current, parse_traceparent
from kaname.kernel.stores import QueuedRun
from kaname.models import OpenAI
from kaname.sinks import Console, JsonLines, OpenTelemetry
from kaname.sinks.spans import Span, Spans
from kaname.testing import WireServer
from kaname.testing.wire import Answer, reply
from tests.parts import Later, add, adding, fail, wait_until
from tests.serve.serving import client, events, serving

fastmcp = Later("fastmcp")


class Receiver:
    """An OTLP receiver: spans and metrics as they came over HTTP."""

    def __init__(self) -> None:
        self.spans, self.metrics = [], []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
                receiver.take(self.path, body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *told: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for held in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.spans += [span for scope in held.scope_spans for span in scope.spans]
        else:
            for held in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics += [metric for scope in held.scope_metrics for metric in scope.metrics]

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *of: object) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    def tree(self) -> dict[str, str]:
        """The names of the spans, each with its parent's."""
        names = {span.span_id: span.name for span in self.spans}
        assert len(names) == len(self.spans), "a span came twice"
        return {span.name: names.get(span.parent_span_id, "") for span in self.spans}


def attributes(span) -> dict[str, object]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.fixture
def receiver():
    with Receiver() as made:
        yield made


def team(journal, sinks) -> Agent:
    child = Agent(ScriptedModel([call("add", a=1, b=2), "three"]), [add], name="child", sinks=sinks, journal=journal)

    @tool(effect="idempotent")
    async def ask_child(context: ToolContext) -> str:
        """Ask the child."""
        result = await context.run_child(child, "add")
        return result.output

    return Agent(ScriptedModel([call("ask_child"), "done"]), [ask_child], name="lead", sinks=sinks, journal=journal)


async def test_worker_sends_the_length_of_the_queue_as_a_gauge(receiver, tmp_path):
    sink = OpenTelemetry(receiver.url)
    agent = Agent(ScriptedModel([]), name="clerk", journal=tmp_path / "j.db", sinks=[sink])
    await agent.journal.stores.queue.put([QueuedRun("a", "nobody"), QueuedRun("b", "nobody")])
    worker = Worker([agent])
    working = asyncio.create_task(worker.work())
    found = {}
    async with asyncio.timeout(60):
        while found.get("waiting") != 2:
            await asyncio.to_thread(sink.flush)
            gauges = [metric.gauge for metric in receiver.metrics if metric.name == "kaname.queue.runs"]
            found = {point.attributes[0].value.string_value: point.as_int for one in gauges for point in one.data_points}
            await asyncio.sleep(0.02)
    assert found == {"waiting": 2, "delayed": 0, "taken": 0, "set_aside": 0}
    worker.stop()
    await working
    await asyncio.to_thread(sink.close)
    await agent.journal.close()


@pytest.mark.requirement("D5")
async def test_trace_is_one_tree_with_tokens_and_no_content(receiver, tmp_path):
    sink = OpenTelemetry(receiver.url)
    agent = team(tmp_path / "j.db", [sink])
    result = await agent.run("a secret question", session_id="s", user_id="ann")
    sink.close()
    tree = receiver.tree()
    assert tree.pop("chat scripted") in ("invoke_agent lead", "invoke_agent child")
    assert tree == {
        "invoke_agent lead": "",
        "execute_tool ask_child": "invoke_agent lead",
        "invoke_agent child": "execute_tool ask_child",
        "execute_tool add": "invoke_agent child",
    }
    assert len(receiver.spans) == 8
    assert len({span.trace_id for span in receiver.spans}) == 1
    root = next(span for span in receiver.spans if span.name == "invoke_agent lead")
    told = attributes(root)
    assert (told["kaname.run.id"], told["gen_ai.conversation.id"], told["enduser.id"]) == (result.run_id, "s", "ann")
    assert told["gen_ai.usage.input_tokens"] == result.usage.input
    assert "secret" not in str(receiver.spans)
    assert {metric.name for metric in receiver.metrics} >= {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"}
    for span in receiver.spans:
        assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= root.end_time_unix_nano


@pytest.mark.requirement("D5")
def test_trace_of_a_run_that_was_killed_is_completed_by_whoever_goes_on_with_it(receiver, tmp_path):
    trace = ("--trace", f"otel={receiver.url}")
    with serving(tmp_path, *trace, KANAME_TEST_PACE="0.05") as served, client(served) as http:
        run = http.post("/api/runs", json={"input": "go", "agent": "lead", "mode": "detach"}).json()["run_id"]
        wait_until(lambda: len(receiver.spans) >= 4)
        served.kill()
    assert {span.name for span in receiver.spans} == {"invoke_agent child", "chat scripted", "execute_tool add"}, (
        "what had ended"
    )
    with serving(tmp_path, *trace) as served, client(served) as http, http.stream("GET", f"/api/runs/{run}/events") as answer:
        assert list(events(answer.iter_lines()))[-1]["data"]["data"]["output"] == "done"
    tree = receiver.tree()
    assert len(receiver.spans) == 8, "all of it, and nothing twice"
    assert tree["invoke_agent child"] == "execute_tool ask_child"
    assert tree["execute_tool ask_child"] == "invoke_agent lead"
    assert len({span.trace_id for span in receiver.spans}) == 1
    root = next(span for span in receiver.spans if span.name == "invoke_agent lead")
    assert "resumed" in [event.name for event in root.events]
    assert all(span.start_time_unix_nano >= root.start_time_unix_nano for span in receiver.spans)


async def test_trace_goes_on_from_the_callers_and_is_passed_on_to_the_provider(receiver, tmp_path):
    sink, theirs = OpenTelemetry(receiver.url, content=True), "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    async with WireServer(lambda body: reply("hello")) as server:
        agent = Agent(OpenAI("m", base_url=server.url, api_key="k"), name="desk", sinks=[sink], journal=tmp_path / "j.db")
        token = current.set(theirs)
        await agent.run("hi there")
        current.reset(token)
        await agent.close()
    sink.close()
    root = next(span for span in receiver.spans if span.name == "invoke_agent desk")
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == ("ab" * 16, "cd" * 8)
    assert parse_traceparent(server.headers[0]["traceparent"]) == ("ab" * 16, root.span_id.hex())
    assert "hi there" in str(receiver.spans), "content was asked for"


def told(spans: list[Span], name: str) -> list[dict[str, object]]:
    """The attributes of the spans of that name, with their JSON read."""
    written = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions")
    found = [span.attributes for span in spans if span.name.startswith(name)]
    return [{key: json.loads(value) if key in written else value for key, value in one.items()} for one in found]


async def test_trace_with_content_has_messages_in_parts_as_viewers_read_them():
    spans, traced = [], Spans(content=True)
    agent = Agent(
        ScriptedModel([call("add", a=1, b=2), "三です。"]),
        [add],
        name="desk",
        instructions="Add carefully.",
        journal="memory",
        sinks=[lambda event: spans.extend(traced.take(event))],
    )
    await agent.run("1 足す 2 は?")
    question = {"role": "user", "parts": [{"type": "text", "content": "1 足す 2 は?"}]}
    asked = {"type": "tool_call", "id": "c1_0", "name": "add", "arguments": {"a": 1, "b": 2}}
    gave = {"type": "tool_call_response", "id": "c1_0", "response": "3"}
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "三です。"}], "finish_reason": "stop"}
    first, second = told(spans, "chat")
    assert first["gen_ai.system_instructions"] == [{"type": "text", "content": "Add carefully."}]
    assert first["gen_ai.input.messages"] == [question]
    assert first["gen_ai.output.messages"] == [{"role": "assistant", "parts": [asked], "finish_reason": "tool_call"}]
    calls = [{"role": "assistant", "parts": [asked]}, {"role": "tool", "parts": [gave]}]
    assert second["gen_ai.input.messages"] == [question, *calls]
    assert second["gen_ai.output.messages"] == [answer]
    (own,) = told(spans, "invoke_agent")
    assert (own["gen_ai.input.messages"], own["gen_ai.output.messages"]) == ([question], [answer])
    assert (own["input.value"], own["output.value"]) == ("1 足す 2 は?", "三です。")


async def test_trace_of_a_long_run_grows_with_its_length_and_not_faster():
    spans, traced = [], Spans(content=True)

    @tool(effect="pure")
    def read(page: int) -> str:
        """Read a page."""
        return f"page {page} " + "word " * 6_000

    script = [*(call("read", page=page) for page in range(12)), "done"]
    sinks = [lambda event: spans.extend(traced.take(event))]
    agent = Agent(ScriptedModel(script), [read], stops=max_steps(20), journal="memory", sinks=sinks)
    assert (await agent.run("Read all.")).completed
    assert max(len(span.attributes.get("gen_ai.input.messages", "")) for span in spans) < 140_000
    last = told(spans, "chat")[-1]
    said = last["gen_ai.input.messages"]
    assert said[0]["parts"][0]["content"] == "Read all."
    assert "page 11" in str(said[-1])
    assert len(said) + last["kaname.input.left_out"] == 25


@pytest.mark.parametrize("tries", [1, 2])
async def test_trace_tells_of_each_model_call_that_failed(receiver, tries, monkeypatch):
    monkeypatch.setattr("kaname.policies.failure.retry.PAUSE", 0.0)
    sink = OpenTelemetry(receiver.url, content=True)
    async with WireServer(lambda body: Answer(status=503, body=b"{}")) as server:
        model = OpenAI("m", base_url=server.url, api_key="k")
        agent = Agent(model, name="desk", policies=[Retry(tries)], sinks=[sink], journal="memory")
        with pytest.raises(ModelUnavailable):
            await agent.run("hi")
        await agent.close()
    sink.close()
    failed = [attributes(span) for span in receiver.spans if span.name == "chat openai/m"]
    assert [one["error.type"] for one in failed] == ["_OTHER", "ModelUnavailable"][2 - tries :]
    assert all("503" in one["error.message"] and "hi" in one["gen_ai.input.messages"] for one in failed)
    assert all("gen_ai.usage.input_tokens" not in one for one in failed), "what is not known is not told as zero"


async def test_trace_is_passed_on_to_mcp_servers(receiver):
    server = fastmcp.FastMCP("inside")

    @server.tool
    async def where(ctx: fastmcp.Context) -> str:
        return ctx.request_context.meta["traceparent"]

    sink = OpenTelemetry(receiver.url)
    agent = Agent(ScriptedModel([call("where"), "done"]), mcp_servers={"inside": server}, journal="memory", sinks=[sink])
    result = await agent.run("go")
    await agent.close()
    sink.close()
    root = next(span for span in receiver.spans if span.name == "invoke_agent agent")
    assert parse_traceparent(result.steps[0].observation) == (root.trace_id.hex(), root.span_id.hex())


def test_trace_of_a_served_run_begins_with_the_request(receiver, tmp_path):
    theirs = "00-" + "12" * 16 + "-" + "34" * 8 + "-01"
    with serving(tmp_path, "--trace", f"otel={receiver.url}", "--trace", "trace.jsonl") as served, client(served) as http:
        http.post("/api/runs", json={"input": "please add"}, headers={"traceparent": theirs})
        http.post("/api/runs", json={"input": "x"}, headers={"traceparent": "nonsense"})
    roots = [span for span in receiver.spans if span.name == "invoke_agent desk"]
    assert [span.trace_id.hex() == "12" * 16 for span in sorted(roots, key=lambda one: one.start_time_unix_nano)] == [
        True,
        False,
    ]
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines][:4] == ["Opened", "ToolStarted", "ToolFinished", "Stopped"]


@pytest.mark.requirement("D5")
async def test_console_tells_by_level_what_happens():
    lines: list[str] = []
    agent = Agent(ScriptedModel([call("fail", why="rain"), "well"]), [fail], name="desk", journal="memory")
    for level, wanted in (("error", 0), ("warning", 1), ("info", 4), ("debug", 7)):
        lines.clear()
        agent.sinks = (Console(level, write=lines.append),)
        await agent.run("go")
        assert len(lines) == wanted, (level, lines)
    assert "rain" not in str(lines)
    agent.sinks = (Console("warning", content=True, write=lines.append),)
    await agent.run("go")
    assert "rain" in lines[-1]
    with pytest.raises(ConfigError, match="unknown level 'loud'"):
        Console("loud")


async def test_file_is_rotated_and_private(tmp_path):
    sink = JsonLines(tmp_path / "logs" / "trace.jsonl", "debug", max_bytes=1_500, keep=2)
    agent = Agent(adding(), [add], journal="memory", sinks=[sink])
    for _ in range(4):
        await agent.run("go")
    sink.close()
    files = sorted((tmp_path / "logs").iterdir())
    assert [file.name for file in files] == ["trace.jsonl", "trace.jsonl.1", "trace.jsonl.2"]
    assert all(file.stat().st_size <= 1_500 and file.stat().st_mode & 0o077 == 0 for file in files)
    assert all("run" in json.loads(line) for file in files for line in file.read_text().splitlines())


def test_trace_is_set_up_in_the_file(tmp_path):
    file = tmp_path / "kaname.yaml"
    file.write_text(
        "agents: {desk: {model: openai/x}}\nmodels: {openai: {api_key: k}}\ntrace: {file: {path: t.jsonl, level: debug}, console: warning, otel: http://x:4318}\n"
    )
    agent = Agent.from_config(load_config(file))
    assert [type(sink).__name__ for sink in agent.sinks] == ["JsonLines", "Console", "OpenTelemetry"]
    file.write_text(
        "agents: {desk: {model: openai/x}}\nmodels: {openai: {api_key: k}}\ntrace: {otel: localhost, console: loud}\n"
    )
    with pytest.raises(ConfigError, match="'loud' is not a valid value"):
        load_config(file)
