"""Notifications of waiting questions: over a real HTTP server, a real mail server and a real program."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kaname import Agent, Approve, ConfigError, MemoryJournal, ScriptedModel, call, tool
from kaname.serve.service import Service
from kaname.serve.work.hooks import Hook
from kaname.serve.work.notify import Notifiers

SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
LINK = "https://kaname.example.com"


@tool
def pay(yen: int, to: str) -> str:
    """Pay."""
    return "paid"


def agent(name: str, journal: MemoryJournal, *, by: Any = "") -> Agent[Any]:
    script = ScriptedModel(lambda request: "ok" if request.messages[-1].role == "tool" else call("pay", yen=5, to="mallory"))
    return Agent(script, [pay], policies=[Approve("pay", by=by)], name=name, journal=journal)


def desk(**notify: Any) -> tuple[Agent[Any], Notifiers]:
    journal = MemoryJournal()
    cashier, clerk = agent("cashier", journal), agent("clerk", journal)
    return cashier, Notifiers(Service([cashier, clerk], [], "stop"), {"boss": {"link": LINK, **notify}}, pause=0.01)


class Receiver:
    """A web server that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 204

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {name.lower(): value for name, _, value in [line.partition(": ") for line in head]}
        self.got.append((headers, await reader.readexactly(int(headers["content-length"]))))
        writer.write(f"HTTP/1.1 {self.status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        writer.close()


@asynccontextmanager
async def listening(handle: Any) -> Any:
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_webhook_is_signed_repeated_until_the_answer_and_holds_nothing_of_the_run(monkeypatch):
    monkeypatch.setenv("NOTIFY_SECRET", SECRET)
    receiver = Receiver()
    async with listening(receiver.handle) as port:
        cashier, notifiers = desk(url=f"http://127.0.0.1:{port}/in", secret_env="NOTIFY_SECRET", every=0.001)
        await notifiers.look()
        assert not receiver.got
        waiting = await cashier.run("pay the secret bill", user_id="ann")
        for _ in range(2):
            await notifiers.look()
            await asyncio.sleep(0.002)
        (key,) = waiting.questions
        await cashier.resume(waiting.run_id, {key: "yes"})
        await notifiers.look()
    first, second = [json.loads(body)["data"] for _, body in receiver.got]
    assert first == {**second, "reminder": 0}
    assert second["reminder"] == 1
    assert {name: first[name] for name in ("agent", "questions", "run_id", "link")} == {
        "agent": "cashier",
        "questions": 1,
        "run_id": waiting.run_id,
        "link": f"{LINK}/#/inbox",
    }
    assert not any(word in body.decode() for _, body in receiver.got for word in ("secret", "mallory", "pay", "ann"))
    hook = Hook("x", {"secret_env": "NOTIFY_SECRET", "agent": "cashier"}, {"cashier": cashier})
    ids = [hook.check(headers, body, time.time()) for headers, body in receiver.got]  # a receiver of ours accepts it
    assert len({*ids}) == 2


async def test_failed_notification_is_tried_again_and_a_redirect_is_not_followed(monkeypatch):
    monkeypatch.setenv("NOTIFY_SECRET", SECRET)
    receiver = Receiver()
    async with listening(receiver.handle) as port:
        cashier, notifiers = desk(url=f"http://127.0.0.1:{port}/in", secret_env="NOTIFY_SECRET", every=0.001)
        await cashier.run("go")
        for receiver.status in (500, 302, 204):
            await notifiers.look()
            await asyncio.sleep(0.002)
    assert [json.loads(body)["data"]["reminder"] for _, body in receiver.got] == [0, 0, 0]
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1


async def test_unchanged_question_is_not_told_again_before_the_interval(monkeypatch):
    monkeypatch.setenv("NOTIFY_SECRET", SECRET)
    receiver = Receiver()
    async with listening(receiver.handle) as port:
        cashier, notifiers = desk(url=f"http://127.0.0.1:{port}/in", secret_env="NOTIFY_SECRET")
        await cashier.run("go")
        await notifiers.look()
        await notifiers.look()
        await cashier.run("go")
        await notifiers.look()
    assert len(receiver.got) == 2


async def test_mail_is_sent_by_smtp_with_the_link():
    said: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        data = False
        while line := (await reader.readline()).decode():
            said.append(line.rstrip())
            data = data and line != ".\r\n"
            if not data:
                writer.write(b"354 go\r\n" if line.upper().startswith("DATA") else b"250 ok\r\n")
                data = line.upper().startswith("DATA")
            if line.upper().startswith("QUIT"):
                break
        writer.close()

    async with listening(serve) as port:
        cashier, notifiers = desk(mail=["boss@example.com"], smtp=f"127.0.0.1:{port}", **{"from": "kaname@example.com"})
        await cashier.run("pay the secret bill")
        await notifiers.look()
    assert "rcpt to:<boss@example.com>" in [line.lower() for line in said]  # Python 3.13 writes the command in capitals
    assert "Subject: cashier: 1 question(s) wait for an answer" in said
    assert f"{LINK}/#/inbox" in said
    assert not any("secret" in line or "mallory" in line for line in said)


async def test_password_is_not_sent_without_tls(monkeypatch):
    monkeypatch.setenv("SMTP_USER", "kaname")
    monkeypatch.setenv("SMTP_PASSWORD", "hunter2")
    said: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            said.append(line)
            writer.write(b"250 ok\r\n")
        writer.close()

    async with listening(serve) as port:
        more = {"from": "kaname@example.com", "user_env": "SMTP_USER", "password_env": "SMTP_PASSWORD"}
        cashier, notifiers = desk(mail=["boss@example.com"], smtp=f"127.0.0.1:{port}", **more)
        await cashier.run("go")
        await notifiers.look()
    assert said
    assert b"AUTH" not in b"".join(said).upper()


async def test_command_gets_the_notification_and_may_fail(tmp_path):
    out = tmp_path / "told.json"
    program = f"import sys; open({str(out)!r}, 'ab').write(sys.stdin.buffer.read() + b'\\n'); sys.exit(len(open({str(out)!r}).read()) < 400)"
    cashier, notifiers = desk(command=[sys.executable, "-c", program], every=0.001)
    await cashier.run("go")
    for _ in range(3):
        await notifiers.look()
        await asyncio.sleep(0.002)
    told = [json.loads(line)["data"]["reminder"] for line in out.read_text().splitlines()]
    assert told == [0, 0, 1]  # it failed once


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"role": "approve:cashier"}, ["cashier"]),
        ({"role": "approve:all"}, ["cashier", "clerk"]),
        ({"agents": ["clerk"]}, ["clerk"]),
        ({"role": "approve", "user": "ann"}, ["cashier"]),
        ({"role": "approve", "user": "bob"}, ["clerk"]),
        ({"role": "approve", "user": "carl"}, []),
    ],
)
async def test_only_questions_that_the_reader_can_answer_are_told(how, told, tmp_path):
    out = tmp_path / "told.json"
    program = f"import sys; open({str(out)!r}, 'ab').write(sys.stdin.buffer.read() + b'\\n')"
    journal = MemoryJournal()
    cashier, clerk = agent("cashier", journal), agent("clerk", journal)
    entry = {"link": LINK, "command": [sys.executable, "-c", program], **how}
    await cashier.run("go", user_id="ann")
    await clerk.run("go", user_id="bob")
    await Notifiers(Service([cashier, clerk], [], "stop"), {"boss": entry}).look()
    lines = out.read_text().splitlines() if out.exists() else []
    assert sorted([json.loads(line)["data"]["agent"] for line in lines]) == told


async def test_user_is_not_told_of_a_question_that_another_person_must_answer(tmp_path):
    out, journal = tmp_path / "told.json", MemoryJournal()
    strict = agent("cashier", journal, by="other")
    entry = {"link": LINK, "command": [sys.executable, "-c", f"open({str(out)!r}, 'w')"], "role": "approve", "user": "ann"}
    await strict.run("go", user_id="ann")
    await Notifiers(Service([strict], [], "stop"), {"boss": entry}).look()
    assert not out.exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "name one of url, command and mail"),
        ({"url": "http://x", "command": ["x"]}, "name one of url, command and mail"),
        ({"mail": ["a@example.com"]}, "a mail also needs from"),
        ({"url": "http://x"}, "a webhook is signed"),
        ({"url": "http://x", "secret_env": "NOT_SET"}, "set the environment variable NOT_SET"),
        ({"command": ["x"], "role": "boss"}, "there is no role 'boss'"),
        ({"command": ["x"], "role": "approve"}, "or a user"),
        ({"command": ["x"], "agents": ["nobody"]}, "there is no agent 'nobody'"),
        ({"command": ["x"], "link": "javascript:x"}, "link must be the address"),
    ],
)
def test_mistake_in_the_file_is_told_at_the_start(given, told):
    with pytest.raises(ConfigError, match=told):
        desk(**given)
