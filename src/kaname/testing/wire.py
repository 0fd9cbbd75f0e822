"""A small HTTP server that answers like a provider, from a script: for tests of adapters and of your agents.

    async with WireServer([reply("hello"), reply(calls=[("add", {"a": 1})]), status(429, retry_after=3)]) as server:
        model = OpenAI("any", base_url=server.url, api_key="test")

It listens on 127.0.0.1 only. `server.requests` holds the bodies of the requests, `server.raw` their bytes.
`server.closed_early` counts the clients that closed the connection during an answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Self

from ..core.record import record

_TYPED = re.compile(rb'\{"type": "([\w.]+)"')
_CHUNK = "chat.completion.chunk"


@record
class Answer:
    """One answer of the server.

    Args:
        events: The data of the server-sent events.
        status: The HTTP status.
        headers: The headers.
        body: The body, instead of events.
        slice: How many bytes are sent at a time (default: 0, all at once).
        pause: Seconds between two slices.
        delay: Seconds before the answer.
        cut: Close the connection after so many bytes.
        line_end: The end of a line in events.
    """

    events: tuple[bytes, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)
    body: bytes | None = None
    slice: int = 0
    pause: float = 0.0
    delay: float = 0.0
    cut: int | None = None  # close the connection after so many bytes
    line_end: bytes = b"\n"


def reply(
    text: str = "",
    calls: Sequence[tuple[str, Any]] = (),
    *,
    finish: str | None = "",
    pieces: int = 4,
    thinking: str = "",
    done: bool = True,
    **more: Any,
) -> Answer:
    """Return an answer of OpenAI chat completions: text, fragments of calls, the finish reason and the usage.

    Args:
        text: The text of the reply.
        calls: Calls of tools: name and arguments.
        finish: The finish reason. Default: "tool_calls" with calls, otherwise "stop". None: leave it out.
        pieces: In how many pieces texts are sent (default: 4).
        thinking: The reasoning before the text.
        done: End the stream with `[DONE]` (default: True).
        more: Fields of `Answer`.
    """
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": part} for part in _pieces(thinking, pieces)]
    deltas += [{"content": part} for part in _pieces(text, pieces)]
    for index, (name, args) in enumerate(calls):
        arguments = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
        function = {"name": name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in _pieces(arguments, pieces)]
    reason = ("tool_calls" if calls else "stop") if finish == "" else finish
    events = [_event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas]
    if reason is not None:
        events.append(_event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
    details = {"cached_tokens": 2}
    events.append(
        _event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": details}})
    )
    return Answer((*events, *([b"[DONE]"] if done else [])), **more)


def anthropic_reply(
    text: str = "",
    calls: Sequence[tuple[str, Any]] = (),
    *,
    stop: str = "",
    pieces: int = 4,
    thinking: str = "",
    signature: str = "sig",
    blocks: Sequence[dict[str, Any]] = (),
    done: bool = True,
    **more: Any,
) -> Answer:
    """Return an answer of Anthropic, as `reply` does.

    `stop`: the stop reason. `blocks`: other content blocks, sent before the text.
    """
    usage = {"input_tokens": 8, "cache_read_input_tokens": 2, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": usage}}, {"type": "ping"}]
    index = 0

    def block(start: dict[str, Any], deltas: Sequence[dict[str, Any]]) -> None:
        nonlocal index
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events.extend([{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas])
        events.append({"type": "content_block_stop", "index": index})
        index += 1

    if thinking:
        thoughts = [{"type": "thinking_delta", "thinking": part} for part in _pieces(thinking, pieces)]
        block({"type": "thinking", "thinking": ""}, [*thoughts, {"type": "signature_delta", "signature": signature}])
    for other in blocks:
        block(other, [])
    if text:
        block({"type": "text", "text": ""}, [{"type": "text_delta", "text": part} for part in _pieces(text, pieces)])
    for number, (name, args) in enumerate(calls):
        arguments = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
        parts = [{"type": "input_json_delta", "partial_json": part} for part in _pieces(arguments, pieces)]
        block({"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}, parts)
    if done:
        reason = stop or ("tool_use" if calls else "end_turn")
        events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
        events.append({"type": "message_stop"})
    return Answer(tuple([json.dumps(event, ensure_ascii=False).encode() for event in events]), **more)


def responses_reply(
    text: str = "",
    calls: Sequence[tuple[str, Any]] = (),
    *,
    stop: str = "",
    pieces: int = 4,
    thinking: str = "",
    items: Sequence[dict[str, Any]] = (),
    done: bool = True,
    **more: Any,
) -> Answer:
    """Return an answer of the OpenAI Responses API, as `reply` does.

    `stop`: why it is incomplete. `items`: other output items, sent before the text.
    """
    output: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"status": "in_progress"}}]

    def item(made: dict[str, Any], delta: str, whole: str) -> None:
        place = len(output)
        events.append({"type": "response.output_item.added", "output_index": place, "item": {"type": made["type"]}})
        events.extend([{"type": delta, "output_index": place, "delta": part} for part in _pieces(whole, pieces)])
        events.append({"type": "response.output_item.done", "output_index": place, "item": made})
        output.append(made)

    if thinking:
        summary = [{"type": "summary_text", "text": thinking}]
        reasoning = {"type": "reasoning", "id": "rs_0", "summary": summary, "encrypted_content": "sealed", "status": None}
        item(reasoning, "response.reasoning_summary_text.delta", thinking)
    for other in items:
        item(other, "", "")
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": content}
        item(message, "response.output_text.delta", text)
    for number, (name, args) in enumerate(calls):
        arguments = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
        call = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": name,
            "arguments": arguments,
        }
        item(call, "response.function_call_arguments.delta", arguments)
    if done:
        usage = {"input_tokens": 10, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 2}}
        ended = {"status": "incomplete" if stop else "completed", "output": output, "usage": usage}
        ended |= {"incomplete_details": {"reason": stop}} if stop else {}
        events.append({"type": f"response.{ended['status']}", "response": ended})
    return Answer(tuple([json.dumps(event, ensure_ascii=False).encode() for event in events]), **more)


def status(code: int, message: str = "no", **headers: Any) -> Answer:
    """Return an error. `headers`: response headers, with underscores in their names (`retry_after=3`)."""
    body = json.dumps({"error": {"message": message, "type": "error"}}).encode()
    named = tuple([(name.replace("_", "-"), str(value)) for name, value in headers.items()])
    return Answer(status=code, headers=(("content-type", "application/json"), *named), body=body)


def _pieces(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _event(data: dict[str, Any]) -> bytes:
    return json.dumps({"id": "x", "object": _CHUNK, "model": "scripted", **data}, ensure_ascii=False).encode()


def _on_the_wire(event: bytes, end: bytes) -> bytes:
    """Return the bytes of an event. Events of Anthropic also have their type on a separate line."""
    match = _TYPED.match(event)
    return (b"event: " + match[1] + end if match else b"") + b"data: " + event + end + end


Script = Sequence[Answer | str] | Callable[[Any], Answer | str]


class WireServer:
    """A server on 127.0.0.1 that answers from a script. Use it with `async with`.

    Args:
        script: The answers in order, or a function that takes the body of a request and returns an answer. A text is a reply
            with that text, in the protocol that is asked for.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[Any] = []
        self.raw: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.closed_early = 0
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        """Return the base URL of the server. It ends in `/v1`."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")
                path = first.split()[1].partition("?")[0]
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines) if k}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.headers.append(headers)
                self.raw.append(body)
                self.requests.append(json.loads(body))
                if not await self._answer(self._next(path), reader, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # the client, or the test, is over
        finally:
            writer.close()

    def _next(self, path: str) -> Answer:
        place = len(self.requests) - 1
        answer: Answer | str
        if callable(self._script):
            answer = self._script(self.requests[-1])
        else:
            answer = self._script[place] if place < len(self._script) else status(500, "the script of this server is over")
        makers: dict[str, Callable[[str], Answer]] = {"messages": anthropic_reply, "responses": responses_reply}
        return makers.get(path.rpartition("/")[2], reply)(answer) if isinstance(answer, str) else answer

    async def _answer(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if answer.delay:
            await asyncio.sleep(answer.delay)
        end = answer.line_end
        payload = answer.body if answer.body is not None else b"".join([_on_the_wire(event, end) for event in answer.events])
        cut = len(payload) if answer.cut is None else answer.cut
        headers = "".join([f"{name}: {value}\r\n" for name, value in answer.headers])
        writer.write(f"HTTP/1.1 {answer.status} X\r\n{headers}content-length: {len(payload)}\r\n\r\n".encode())
        size = answer.slice or max(1, len(payload))
        for start in range(0, min(cut, len(payload)), size):
            if writer.is_closing() or reader.at_eof():
                self.closed_early += 1
                return False
            writer.write(payload[start : min(start + size, cut)])
            await writer.drain()
            if answer.pause or answer.slice:
                await asyncio.sleep(answer.pause)
        return answer.cut is None
