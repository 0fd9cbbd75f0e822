"""Ways in through `kaname serve`: each protocol over its own wire, against the application in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kaname.core.messages import Message, Text
from kaname.stores.audit.log import AuditLog
from kaname.testing.combine.ledger import Got, PersonAnswer, root
from kaname.testing.combine.stage import Stage
from kaname.testing.combine.ways import on_file, way, work

ROLES = frozenset({"read", "talk", "approve", "approve:all"})


class Client:
    """A client of the served agent, for one user at a time."""

    def __init__(self, stage: Stage) -> None:
        import httpx

        from kaname.serve import Caller, app

        self.stage, self.user = stage, stage.user
        self.audit = None if stage.folder is None else stage.folder / "audit.log"
        made = app(
            [stage.agent],
            who=lambda scope: Caller(self.user, ROLES),
            recover=False,
            mcp=False,
            a2a=False,
            audit=False if self.audit is None else str(self.audit),
        )
        self.lifespan = made.lifespan
        transport = httpx.ASGITransport(made, client=("127.0.0.1", 1), raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=20)

    async def post(self, url: str, body: Mapping[str, Any]) -> Any:
        """Send a request, and return the response. A 500 is an internal error that reached a caller."""
        name = root.get() or f"request {len(self.stage.ledger.requests) + 1}"
        with self.stage.inside(name, self.stage.user):
            response = await self.http.post(url, json=body)
        if not root.get() and not (self.stage.journal is not None and self.stage.journal.dead):
            cards = [one for one in await self.stage.agent.journal.runs(user=self.user) if not one.parent]
            self.stage.ledger.requests[name] = cards[0].run_id if cards else name
        if response.status_code == 500 and not (self.stage.journal is not None and self.stage.journal.dead):
            self.stage.ledger.fail(url, RuntimeError(response.text[:200]))
        if self.stage.journal is not None and self.stage.journal.dead:
            await self.stage.journal.revive()
        return response

    async def newest(self, run_id: str = "") -> Any:
        """Return the result of that run, or of the run that was opened last."""
        if run_id:
            return await self.stage.attempt("result", self.stage.agent.result(run_id))
        cards = [one for one in await self.stage.agent.journal.runs(user=self.user) if not one.parent]
        if not cards:
            return None
        if (cards[0].run_id, self.user) not in self.stage.runs:
            self.stage.runs.append((cards[0].run_id, self.user))
        return await self.stage.attempt("result", self.stage.agent.result(cards[0].run_id))

    def note(self, result: Any, key: str, asked: Any, value: Any) -> PersonAnswer:
        """Record an answer before it is sent."""
        about = getattr(asked, "about", None)
        args = about.args if about is not None and isinstance(about.args, Mapping) else None
        name = about.name if about is not None else ""
        entry = PersonAnswer(self.stage.ledger.now(), result.run_id, key, value, self.user, name, args, str(asked.prompt))
        entry.user, entry.root = self.stage.user, result.run_id
        entry.accepted, entry.made = True, self.stage.made.get(name, "")
        self.stage.ledger.answers.append(entry)
        return entry

    async def check(self, entry: PersonAnswer, response: Any) -> None:
        """Note whether an answer was accepted."""
        result = await self.stage.attempt("result", self.stage.agent.result(entry.run))
        still = result is not None and entry.key in (result.questions or {})
        if response.status_code in range(400, 500) or still:
            entry.accepted, entry.problem, entry.open_after = False, f"HTTP {response.status_code}", still

    async def close(self) -> None:
        """Note what the user got and what the audit log says."""
        result = await self.newest()
        if result is not None:
            self.stage.ledger.got.append(
                Got(self.stage.ledger.now(), self.user, str(result.output), result.run_id, result.stop.kind)
            )
        await self.http.aclose()


async def _converse(stage: Stage, protocol: Any) -> None:
    """Send the words, answer questions, and send a further turn, over a protocol."""
    client = Client(stage)
    if protocol.audited and client.audit is not None:
        async with client.lifespan():
            await _talk(stage, client, protocol)
            stage.ledger.audit += await _read_audit(stage, AuditLog(client.audit))
    else:
        await _talk(stage, client, protocol)


async def _read_audit(stage: Stage, log: AuditLog) -> list[tuple[str, str]]:
    """Return the actors and decisions in the audit log, which a server writes a moment later."""
    expected = sum(one.accepted and one.key.startswith("approve:") for one in stage.ledger.answers)
    entries: list[Any] = []
    for _ in range(75 if expected else 0):
        entries = [*log.entries(kind="approval")]
        if len(entries) >= expected:
            break
        await asyncio.sleep(0.02)
    return [(str(entry.actor), str((entry.detail or {}).get("decision"))) for entry in entries]


async def _talk(stage: Stage, client: Client, protocol: Any) -> None:
    try:
        await protocol.begin(client)
        for _ in range(5):
            result = await client.newest(protocol.run_id)
            if result is None or not result.questions:
                break
            await protocol.steer(client, result)
            key, asked = sorted(result.questions.items())[0]
            yes = stage.rng.random() < 0.7
            client.user = stage.rng.choice((stage.user, "boss")) if protocol.others else stage.user
            entry = client.note(result, key, asked, "yes" if yes else {"approved": False})
            with stage.inside(result.run_id, stage.user):
                await client.check(entry, await protocol.answer(client, result, key, yes))
            client.user = stage.user
        await protocol.again(client)
    finally:
        with suppress(Exception):
            await client.close()


class _Chat:
    """Chat completions: the client keeps the conversation, as texts."""

    others, audited, run_id = False, False, ""

    def __init__(self, stage: Stage) -> None:
        self.messages: list[dict[str, Any]] = []
        system, said = stage.slot("system"), f"{stage.slot('assistant')} {stage.slot('other')}".strip()
        if system:
            self.messages.append({"role": "system", "content": system})
        if said:
            self.messages += [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": said}]
        self.picture = stage.slot("picture")
        self.words, self.turns = stage.all_words(), stage.turns

    async def steer(self, client: Client, result: Any) -> None:
        """Say something to a run that waits, if the protocol has a way to do so."""

    async def say(self, client: Client, text: str) -> Any:
        self.messages.append({"role": "user", "content": text})
        response = await client.post("/v1/chat/completions", {"model": client.stage.agent.name, "messages": self.messages})
        if response.status_code == 200:
            self.messages.append({"role": "assistant", "content": response.json()["choices"][0]["message"]["content"]})
        return response

    async def begin(self, client: Client) -> None:
        response = await self.say(client, self.words)
        if type(self) is _Chat and client.stage.rng.random() < 0.2 and response.status_code == 200:  # the same in another tab
            self.run_id = response.json().get("kaname", {}).get("run_id", "")
            said = self.messages[:-1]
            await client.post("/v1/chat/completions", {"model": client.stage.agent.name, "messages": said})

    async def answer(self, client: Client, result: Any, key: str, yes: bool) -> Any:
        client.stage.ledger.answers[-1].value = "yes" if yes else "no"
        return await self.say(client, "yes" if yes else "no")

    async def again(self, client: Client) -> None:
        for words in self.turns:
            await self.say(client, words)


class _Responses(_Chat):
    """Responses: approvals are items, and messages come as a list."""

    others = True

    async def say(self, client: Client, text: str) -> Any:
        self.messages.append({"role": "user", "content": text})
        response = await client.post("/v1/responses", {"model": client.stage.agent.name, "input": self.messages})
        if response.status_code == 200:
            texts = [part.get("text", "") for item in response.json().get("output", []) for part in item.get("content") or ()]
            self.messages.append({"role": "assistant", "content": " ".join(texts) or "…"})
        return response

    async def answer(self, client: Client, result: Any, key: str, yes: bool) -> Any:
        item = {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{result.run_id}:{key}", "approve": yes}
        return await client.post("/v1/responses", {"model": client.stage.agent.name, "input": [item]})


class _Vercel(_Chat):
    """The Vercel AI SDK: messages have parts, and approvals are parts of the assistant's message."""

    others = True

    async def say(self, client: Client, text: str) -> Any:
        self.messages.append({"role": "user", "content": text})
        told = [
            {"id": str(place), "role": one["role"], "parts": [{"type": "text", "text": one["content"]}]}
            for place, one in enumerate(self.messages)
        ]
        response = await client.post(f"/vercel/{client.stage.agent.name}", {"messages": told})
        self.messages.append({"role": "assistant", "content": _deltas(response.text)})
        return response

    async def answer(self, client: Client, result: Any, key: str, yes: bool) -> Any:
        approval = {"id": f"{result.run_id}:{key}", "approved": yes}
        part = {
            "type": "dynamic-tool",
            "toolName": "pay",
            "toolCallId": "c",
            "state": "approval-responded",
            "approval": approval,
        }
        body = {"messages": [{"id": "m", "role": "assistant", "parts": [part]}]}
        return await client.post(f"/vercel/{client.stage.agent.name}", body)


class _AgUi(_Chat):
    """AG-UI: questions are interrupts, and a message can be said to a run."""

    others = True

    async def steer(self, client: Client, result: Any) -> None:
        if self.picture:
            part = {"type": "image", "source": {"type": "url", "value": self.picture, "mimeType": "image/png"}}
            said = {"id": "p", "role": "user", "content": [{"type": "text", "text": "Look."}, part]}
            props = {"sayTo": result.run_id}
            body = {"threadId": "t", "runId": "p", "messages": [said], "forwardedProps": props}
            await client.post(f"/ag-ui/{client.stage.agent.name}", body)
            self.picture = ""

    async def say(self, client: Client, text: str) -> Any:
        self.messages.append({"role": "user", "content": text})
        told = [{"id": str(place), **one} for place, one in enumerate(self.messages)]
        body = {"threadId": f"t{len(self.messages)}", "runId": f"r{len(self.messages)}", "messages": told}
        response = await client.post(f"/ag-ui/{client.stage.agent.name}", body)
        self.messages.append({"role": "assistant", "content": _deltas(response.text)})
        return response

    async def answer(self, client: Client, result: Any, key: str, yes: bool) -> Any:
        status = {"status": "resolved", "payload": "yes"} if yes else {"status": "cancelled"}
        resume = [{"interruptId": f"{result.run_id}:{key}", **status}]
        body = {"threadId": "t", "runId": "again", "messages": [], "resume": resume}
        return await client.post(f"/ag-ui/{client.stage.agent.name}", body)


class _Api(_Chat):
    """kaname's own API."""

    others, audited = True, True

    async def say(self, client: Client, text: str) -> Any:
        self.messages.append({"role": "user", "content": text})
        response = await client.post("/api/runs", {"agent": client.stage.agent.name, "input": self.messages})
        if response.status_code == 200:
            self.messages.append({"role": "assistant", "content": str(response.json().get("output") or "…")})
        return response

    async def answer(self, client: Client, result: Any, key: str, yes: bool) -> Any:
        value: Any = {"approved": True, "for": "always"} if yes and client.stage.rng.random() < 0.5 else "yes" if yes else "no"
        client.stage.ledger.answers[-1].value = value
        return await client.post(f"/api/runs/{result.run_id}/answers", {"answers": {key: value}, "mode": "wait"})


def _deltas(stream: str) -> str:
    """Return the text of a stream of server-sent events."""
    events = [json.loads(line[5:]) for line in stream.splitlines() if line.startswith("data: {")]
    return "".join(str(one["delta"]) for one in events if isinstance(one.get("delta"), str)) or "…"


@way
async def chat(stage: Stage) -> None:
    """Chat completions of `kaname serve`."""
    await _converse(stage, _Chat(stage))


@way
async def responses(stage: Stage) -> None:
    """Responses of `kaname serve`."""
    await _converse(stage, _Responses(stage))


@way
async def vercel(stage: Stage) -> None:
    """The Vercel protocol of `kaname serve`."""
    await _converse(stage, _Vercel(stage))


@way
async def ag_ui(stage: Stage) -> None:
    """AG-UI of `kaname serve`."""
    await _converse(stage, _AgUi(stage))


@way
async def api(stage: Stage) -> None:
    """The HTTP API of `kaname serve`."""
    await _converse(stage, _Api(stage))


@on_file
async def webhook(stage: Stage) -> None:
    """A webhook queues a run: the words are the program's, and values of the body come from its sender."""
    other = stage.slot("other") or "nothing"
    said = Message("user", (Text(f"{stage.all_words()} Note of the customer: "), Text(other, source="webhook")))
    run_id = await stage.attempt("submit", stage.agent.submit(said, user_id=stage.user))
    stage.note_files(" while queued")
    if run_id is None:
        return
    stage.runs.append((run_id, stage.user))
    with stage.inside(run_id, stage.user):
        await work(stage, run_id)
        await stage.settle(await stage.attempt("result", stage.agent.result(run_id)))
