"""The hand-written agent loop that kaname is compared with: aiohttp, history, streaming, tools, parallel calls; nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

_INTEGERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}


class Loop:
    """An agent in 50 lines."""

    def __init__(self, model: str, url: str, tools: list[Callable[..., Awaitable[Any]]], instructions: str) -> None:
        self.model, self.url, self.instructions = model, url, instructions
        self.tools = {tool.__name__: tool for tool in tools}
        parameters = {"type": "object", "properties": _INTEGERS, "required": ["a", "b"]}
        self.schemas = [
            {"type": "function", "function": {"name": name, "description": tool.__doc__, "parameters": parameters}}
            for name, tool in self.tools.items()
        ]
        self.session: aiohttp.ClientSession | None = None

    async def run(self, prompt: str, on_text: Callable[[str], Any]) -> str:
        if self.session is None:
            headers = {"authorization": "Bearer sk-gate", "content-type": "application/json"}
            self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers)
        history: list[Any] = [{"role": "system", "content": self.instructions}, {"role": "user", "content": prompt}]
        while True:
            text, calls = await self.ask(self.session, history, on_text)
            if not calls:
                return text
            history.append({"role": "assistant", "content": None, "tool_calls": calls})
            if len(calls) == 1:
                history.append(await self.call(calls[0]))
            else:
                history += await asyncio.gather(*map(self.call, calls))

    async def ask(
        self, session: aiohttp.ClientSession, history: list[Any], on_text: Callable[[str], Any]
    ) -> tuple[str, list[Any]]:
        body = {"model": self.model, "messages": history, "tools": self.schemas, "stream": True}
        body["stream_options"] = {"include_usage": True}
        text: list[str] = []
        calls: list[Any] = []
        async with session.post(f"{self.url}/chat/completions", data=json.dumps(body).encode()) as response:
            response.raise_for_status()
            rest = b""
            async for data in response.content.iter_any():
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    if not event.startswith(b"data: ") or event == b"data: [DONE]":
                        continue
                    for choice in json.loads(event[6:])["choices"]:
                        delta = choice["delta"]
                        if delta.get("content"):
                            text.append(delta["content"])
                            on_text(delta["content"])
                        for piece in delta.get("tool_calls") or ():
                            if piece["index"] >= len(calls):
                                function = {"name": piece["function"]["name"], "arguments": ""}
                                calls.append({"id": piece["id"], "type": "function", "function": function})
                            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
        return "".join(text), calls

    async def call(self, call: Any) -> dict[str, Any]:
        result = await self.tools[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
        return {"role": "tool", "tool_call_id": call["id"], "content": str(result)}
