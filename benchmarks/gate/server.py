"""A scripted OpenAI-compatible streaming server in a process of its own.

The server keeps no state: the name of the model holds the scenario. `gate-n5-t10-p1-xadd` asks for the tool `add` in five turns,
with one call each, and then answers with ten chunks of text. The number of tool results in the request says which turn it is.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_MODEL = re.compile(rb'"model"\s*:\s*"(gate-n(\d+)-t(\d+)-p(\d+)-x(\w+))"')
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
_USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def scenario(turns: int, chunks: int = 10, calls: int = 1, tool: str = "add") -> str:
    """Return the name of a model that asks for `tool` in so many turns and then answers in so many chunks."""
    return f"gate-n{turns}-t{chunks}-p{calls}-x{tool}"


def answer_text(chunks: int) -> str:
    return "".join(f"word{number % 10} " for number in range(chunks))


@cache
def _answer(model: str, turn: int, turns: int, chunks: int, calls: int, tool: str) -> bytes:
    """Return a whole HTTP answer. The same one is sent to every request for this turn."""

    def event(choices: list[Any], usage: Any = None) -> bytes:
        head = {"id": f"chatcmpl-{turn}", "object": "chat.completion.chunk", "created": 1700000000, "model": model}
        data = json.dumps({**head, "system_fingerprint": "fp_0", "choices": choices, "usage": usage}, separators=(",", ":"))
        line = f"data: {data}\n\n".encode()
        return b"%x\r\n%s\r\n" % (len(line), line)

    def delta(finish: str | None = None, **content: Any) -> bytes:
        return event([{"index": 0, "delta": content, "logprobs": None, "finish_reason": finish}])

    parts = [_HEAD, delta(role="assistant", content="" if turn >= turns else None)]
    if turn >= turns:
        parts += [delta(content=f"word{number % 10} ") for number in range(chunks)]
    for index in range(calls if turn < turns else 0):
        call = {"index": index, "id": f"call_{turn}_{index}", "type": "function", "function": {"name": tool, "arguments": ""}}
        parts.append(delta(tool_calls=[call]))
        text = json.dumps({"a": turn, "b": index + 1})
        for piece in (text[:4], text[4:]):
            parts.append(delta(tool_calls=[{"index": index, "function": {"arguments": piece}}]))
    parts += [delta("tool_calls" if turn < turns else "stop"), event([], _USAGE), b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"]
    return b"".join(parts)


class _Client(asyncio.Protocol):
    """One connection. Answers each request in one write."""

    def connection_made(self, transport: Any) -> None:
        self._transport, self._received, self._body_at, self._end = transport, bytearray(), 0, 0

    def data_received(self, data: bytes) -> None:
        self._received += data
        while True:
            if not self._end:
                head = self._received.find(b"\r\n\r\n")
                if head < 0:
                    return
                length = _LENGTH.search(self._received, 0, head)
                self._body_at = head + 4
                self._end = self._body_at + (int(length[1]) if length else 0)
            if len(self._received) < self._end:
                return
            body = bytes(self._received[self._body_at : self._end])
            del self._received[: self._end]
            self._end = 0
            self._transport.write(_reply(body))


def _reply(body: bytes) -> bytes:
    found = _MODEL.search(body)
    if found is None:
        return b"HTTP/1.1 400 Bad Request\r\ncontent-length: 33\r\n\r\nno scenario in the model's name.\n"
    turns, chunks, calls = int(found[2]), int(found[3]), int(found[4])
    results = body.count(b'"role":"tool"') + body.count(b'"role": "tool"')
    return _answer(found[1].decode(), results // calls, turns, chunks, calls, found[5].decode())


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Client, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)  # its end: the process that started this one is gone
    await ended.wait()


@contextmanager
def running(environment: dict[str, str]) -> Iterator[str]:
    """Start the server on a free port, and return its base URL. The server ends with the block, or with this process."""
    command = [sys.executable, "-m", "gate.server"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.stdin.close()


if __name__ == "__main__":
    asyncio.run(_serve())
