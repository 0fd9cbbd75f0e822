"""Files of a conversation in a question over HTTP: who sees which picture before deciding."""

from __future__ import annotations

from hashlib import sha256

import httpx

import kaname.serve
from kaname import Agent, Approve, Media, MemoryJournal, ScriptedModel, ToolContext, ToolResult, call, tool
from kaname.serve.users import Caller

PNG = b"\x89PNG\r\n\x1a\n"
PEOPLE = {
    "ann": Caller("ann", frozenset(["talk", "approve"])),
    "bob": Caller("bob", frozenset(["talk", "approve"])),
    "boss": Caller("boss", frozenset(["approve:clerk"])),
    "other": Caller("other", frozenset(["approve:another"])),
}


@tool(effect="pure")
def draw() -> ToolResult:
    """Draw a chart."""
    return ToolResult("made", media=(Media.of(PNG + b"chart", name="bar.png"), Media.of(PNG + b"secret", name="secret.png")))


@tool
def send_mail(to: str, files: list[str], context: ToolContext) -> str:
    """Send a mail."""
    return f"{len([context.file(one).content for one in files])} files"


async def test_question_names_the_files_of_the_call_and_only_its_reader_can_load_them():
    model = ScriptedModel([call("draw"), "drawn", call("send_mail", to="x", files=["bar.png", "none.png"]), "sent"])
    agent = Agent(model, [draw, send_mail], policies=[Approve("send_mail")], name="clerk", journal=MemoryJournal())
    app = kaname.serve.app(agent, who=lambda scope: PEOPLE[dict(scope["headers"])[b"x-me"].decode()], recover=False, mcp=False)
    await agent.run("draw", session_id="s", user_id="ann")
    waiting = await agent.run("mail it", session_id="s", user_id="ann")
    chart, secret = [sha256(PNG + one).hexdigest() for one in (b"chart", b"secret")]
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:

        async def get(me: str, path: str) -> httpx.Response:
            return await http.get(path, headers={"x-me": me})

        for me in ("ann", "boss"):
            (question,) = (await get(me, "/api/questions")).json()["questions"]
            assert question["call"]["attached"] == {"files": [{"mime": "image/png", "name": "bar.png", "hash": chart}]}
        at = f"/api/runs/{waiting.run_id}/media"
        assert (await get("ann", f"{at}/{chart}")).content == PNG + b"chart"  # it was made by the run before
        assert (await get("ann", f"{at}/{secret}")).content == PNG + b"secret"
        assert (await get("boss", f"{at}/{chart}")).content == PNG + b"chart"
        assert (await get("boss", f"{at}/{secret}")).status_code == 404
        for me in ("bob", "other"):
            assert (await get(me, f"{at}/{chart}")).status_code in (403, 404)
        (key,) = waiting.questions
        await agent.resume(waiting.run_id, {key: "yes"})
        assert (await get("boss", f"{at}/{chart}")).status_code == 404  # there is nothing to decide any more
