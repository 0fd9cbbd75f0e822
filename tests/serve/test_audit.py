"""The audit log of a server: what people did is in it, and what cannot be recorded is refused."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import httpx
import pytest

import kaname.serve
from kaname import Agent, Approve, AuditLog, Guardrails, Permit, SqliteJournal, tool
from kaname.cli.main import main
from kaname.serve.access.auditor import Failures
from kaname.serve.users import Users
from kaname.stores.audit.facts import FactFollower
from kaname.testing import ScriptedModel, call
from tests.serve.serving import Served, client, serving


@tool(effect="pure")
def pay(yen: int) -> str:
    """Pay."""
    return f"paid {yen}"


@tool(effect="pure")
def look() -> str:
    """Look."""
    return "seen"


class Desk:
    """A server with users in this process, on a journal in a file."""

    def __init__(self, folder: Path, *replies, audit=None, **options) -> None:
        self.users = Users(folder / "users.json")
        self.tokens = {name: self.users.add(name, roles) for name, roles in (("ann", ["talk", "approve"]), ("boss", ["admin"]))}
        self.journal = SqliteJournal(folder / "journal.db")
        self.agent = Agent(ScriptedModel(list(replies)), [pay, look], journal=self.journal, name="desk", **options)
        self.app = kaname.serve.app(self.agent, users=self.users, audit=audit, mcp=False, a2a=False)
        self.log = AuditLog(folder / "audit.log")

    def http(self, name: str, address: str = "192.0.2.7") -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.tokens.get(name, name)}"}
        transport = httpx.ASGITransport(self.app, client=(address, 1))
        return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)

    def told(self, kind: str) -> list[tuple]:
        return [(one.actor, one.subject, one.detail) for one in self.log.entries(kind=kind)]

    async def until(self, kind: str) -> list[tuple]:
        while not (found := self.told(kind)):
            await asyncio.sleep(0.01)
        return found


async def test_audit_of_a_server_has_approvals_with_who_and_of_what(tmp_path):
    desk = Desk(tmp_path, call("pay", yen=5), "done", policies=[Approve("pay")])
    async with desk.app.lifespan(), desk.http("ann") as ann, desk.http("boss") as boss:
        run = (await ann.post("/api/runs", json={"input": "secret words: pay"})).json()
        (question,) = run["questions"]
        answer = await boss.post(
            f"/api/runs/{run['run_id']}/answers", json={"answers": {question["key"]: "yes"}, "mode": "wait"}
        )
        assert answer.json()["status"] == "completed"
        ((actor, subject, detail),) = await desk.until("approval")
    assert (actor, subject) == ("boss", f"run:{run['run_id']}")
    assert (detail["tool"], detail["decision"], detail["user"], detail["agent"]) == ("pay", "approved", "ann", "desk")
    assert desk.told("read") == [("boss", subject, {"user": "ann"})], "an administrator opened another user's run"
    assert desk.log.verify() == []
    assert "secret" not in desk.log.path.read_text()


async def test_audit_of_a_server_has_refusals_with_their_rule(tmp_path):
    rules = [{"name": "no pay", "effect": "deny", "tool": "pay"}, {"tool": "look"}]
    desk = Desk(tmp_path, call("pay", yen=5), "sorry", policies=[Permit(rules), Guardrails(blocked_patterns=["forbidden"])])
    async with desk.app.lifespan(), desk.http("ann") as ann:
        run = (await ann.post("/api/runs", json={"input": "pay"})).json()
        await desk.until("refusal")
        blocked = (await ann.post("/api/runs", json={"input": "a forbidden word"})).json()
        while len(found := desk.told("refusal")) < 2:
            await asyncio.sleep(0.01)
    first, second = found
    assert first[:2] == ("ann", f"run:{run['run_id']}")
    assert (first[2]["tool"], first[2]["code"], first[2]["rule"]) == ("pay", "permit.denied", "no pay")
    assert second[:2] == ("ann", f"run:{blocked['run_id']}")
    assert (second[2]["code"], second[2]["withheld"]) == ("blocked", "input")
    assert "forbidden" not in desk.log.path.read_text()


async def test_audit_of_facts_is_complete_and_without_repeats_whenever_the_server_died(tmp_path):
    """The server is cut off before, between and after its entries; the next one writes what is missing, once."""
    await answered_without_followers(tmp_path, 3)
    for _ in range(2):
        desk = Desk(tmp_path, "hello")
        async with desk.app.lifespan():
            while len(desk.told("approval")) < 3:
                await asyncio.sleep(0.01)
            await desk.app.service.auditor.before_deleting()
        assert [detail["decision"] for _, _, detail in desk.told("approval")] == ["refused"] * 3
        await desk.journal.close()
    (tmp_path / "journal.db").rename(tmp_path / "old.db")  # a journal that begins anew has other runs at the same places
    await answered_without_followers(tmp_path, 6)
    desk = Desk(tmp_path, "hello")
    async with desk.app.lifespan():
        while len(desk.told("approval")) < 9:
            await asyncio.sleep(0.01)
    assert desk.log.verify() == []


async def answered_without_followers(folder: Path, times: int) -> None:
    """Answer questions while nobody follows: as if each server had died right after the facts."""
    for _ in range(times):
        desk = Desk(folder, call("pay", yen=5), "done", policies=[Approve("pay")], audit=False)
        async with desk.app.lifespan(), desk.http("ann") as ann:
            run = (await ann.post("/api/runs", json={"input": "pay"})).json()
            answers = {"answers": {run["questions"][0]["key"]: "no"}, "mode": "wait"}
            await ann.post(f"/api/runs/{run['run_id']}/answers", json=answers)
        await desk.journal.close()


async def test_audit_does_not_name_an_erased_person_again(tmp_path):
    await answered_without_followers(tmp_path, 2)
    journal, log = SqliteJournal(tmp_path / "journal.db"), AuditLog(tmp_path / "audit.log")
    await FactFollower(log, journal).catch_up()
    assert log.forget("ann") == 2
    await FactFollower(log, journal).catch_up()  # the runs are still there, as shared ones are after an erasure
    log.record("checkpoint", run="gone", fact=1, at=99)  # the run that was read last was deleted: all are read again
    await FactFollower(log, journal).catch_up()
    assert b'"ann"' not in log.path.read_bytes()
    assert len([*log.entries(kind="approval")]) == 2
    assert log.verify() == []
    await journal.close()


async def test_audit_follows_a_journal_whose_facts_cannot_be_closed(tmp_path):
    class Plain:
        def __init__(self, changes):
            self._changes = changes

        def __aiter__(self):
            return self

        async def __anext__(self):
            return await anext(self._changes)

    class Own(SqliteJournal):
        def changes(self, after=0, *, wait=True):
            return Plain(super().changes(after, wait=wait))

    await answered_without_followers(tmp_path, 2)
    journal, log = Own(tmp_path / "journal.db"), AuditLog(tmp_path / "audit.log")
    await FactFollower(log, journal).catch_up()
    assert len([*log.entries(kind="approval")]) == 2
    await journal.close()


async def test_audit_keeps_what_a_deleted_run_had_to_say(tmp_path):
    desk = Desk(tmp_path, call("pay", yen=5), "done", policies=[Permit([{"tool": "look"}])])
    desk.app.service.auditor.keep_following = asyncio.Event().wait  # the follower is behind
    async with desk.app.lifespan(), desk.http("ann") as ann:
        run = (await ann.post("/api/runs", json={"input": "pay"})).json()
        assert (await ann.delete(f"/api/runs/{run['run_id']}")).status_code == 204
    assert [one[2]["code"] for one in desk.told("refusal")] == ["permit.no_rule"]
    assert desk.told("delete") == [("ann", f"run:{run['run_id']}", {"user": "ann"})]


async def test_audit_has_sign_ins_and_counts_failed_ones(tmp_path):
    desk = Desk(tmp_path, "hi")
    async with desk.app.lifespan(), desk.http("ann") as ann, desk.http("kn_guess") as stranger:
        for _ in range(5):
            await ann.get("/api/me")
            await stranger.get("/api/me")
    assert [(actor, detail["how"], detail["address"]) for actor, _, detail in desk.told("sign_in")] == [
        ("ann", "token", "192.0.2.7")
    ]
    assert [(actor, detail["count"]) for actor, _, detail in desk.told("sign_in_failed")] == [("", 1), ("", 4)]
    assert "kn_guess" not in desk.log.path.read_text()
    assert desk.tokens["ann"] not in desk.log.path.read_text()


def test_audit_of_failed_sign_ins_stays_small_however_many_addresses_fail(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("kaname.serve.access.auditor.time.monotonic", lambda: now[0])
    failures = Failures()
    entries = [entry for number in range(10_000) for entry in failures.count(f"10.0.{number // 250}.{number % 250}").items()]
    now[0] = 61.0
    entries += failures.count("10.9.9.9").items()
    assert len(entries) <= 62
    assert sum(number for _, number in entries) == 10_001, "each is counted"


async def test_audit_that_cannot_be_written_refuses_what_people_do(tmp_path):
    desk = Desk(tmp_path, call("pay", yen=5), "done", policies=[Approve("pay")])
    async with desk.app.lifespan(), desk.http("ann") as ann, desk.http("boss") as boss:
        run = (await ann.post("/api/runs", json={"input": "pay"})).json()
        await boss.get("/api/me")
        desk.log.path.rename(tmp_path / "kept.log")
        desk.log.path.mkdir()  # nothing can be written there
        answers = {"answers": {run["questions"][0]["key"]: "yes"}, "mode": "wait"}
        refused = await ann.post(f"/api/runs/{run['run_id']}/answers", json=answers)
        assert (refused.status_code, refused.json()["notice"]["code"]) == (503, "serve.audit")
        assert str(tmp_path) not in refused.text
        assert (await boss.get(f"/api/runs/{run['run_id']}")).status_code == 503, "a read of another user's run is refused"
        assert (await ann.get(f"/api/runs/{run['run_id']}")).json()["status"] == "waiting", "one's own can be read"
        desk.log.path.rmdir()
        (tmp_path / "kept.log").rename(desk.log.path)
        done = await ann.post(f"/api/runs/{run['run_id']}/answers", json=answers)
        assert done.json()["status"] == "completed"
        await desk.until("approval")
    assert desk.log.verify() == []


async def test_audit_has_changed_permissions_and_roles_between_starts(tmp_path):
    for rules in ([{"tool": "look"}], [{"tool": "look"}], [{"tool": "*"}]):
        desk = Desk(tmp_path, "hi", policies=[Permit(rules)])
        await desk.journal.close()
    found = desk.told("permissions")
    assert [subject for _, subject, _ in found] == ["agent:desk"] * 2
    assert found[1][2]["before"] == found[0][2]["now"] != found[1][2]["now"]
    assert {subject: detail["now"] for _, subject, detail in desk.told("roles")} == {
        "user:ann": ["approve", "talk"],
        "user:boss": ["admin"],
    }


def test_audit_commands_list_filter_and_verify(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kaname.yaml").write_text("agents: {desk: {model: local}}\naudit: {path: logs/audit.log}\n")
    log = AuditLog(tmp_path / "logs" / "audit.log")
    log.record("read", actor="boss", subject="run:1", user="ann")
    log.record("export", actor="ann", subject="user:ann")
    assert main(["audit"]) == 0
    assert "boss  run:1  user=ann" in capsys.readouterr().out
    assert main(["audit", "--json", "--actor", "ann"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["kind"] == "export"
    assert main(["audit", "verify"]) == 0
    assert str(log.head) in capsys.readouterr().out
    assert main(["serve", "users", "add", "ken"]) == 0
    assert [one.subject for one in log.entries(kind="roles")] == ["user:ken"]
    log.path.write_text(log.path.read_text().replace("run:1", "run:2"))
    assert main(["audit", "verify"]) == 1
    assert "entry 1 (" in capsys.readouterr().out
    assert main(["audit", "verify", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["broken"][0]["place"] == 1
    (tmp_path / "kaname.yaml").write_text("agents: {desk: {model: local}}\naudit: false\n")
    assert main(["audit"]) == 2
    assert "audit: false" in capsys.readouterr().err


async def test_audit_has_what_is_deleted_at_the_terminal(tmp_path, monkeypatch, capsys):
    desk = Desk(tmp_path, call("pay", yen=5), "done", policies=[Permit([{"tool": "look"}])])
    desk.app.service.auditor.keep_following = asyncio.Event().wait
    async with desk.app.lifespan(), desk.http("ann") as ann:
        run = (await ann.post("/api/runs", json={"input": "pay"})).json()["run_id"]
    await desk.journal.close()
    monkeypatch.chdir(tmp_path)
    done = await asyncio.to_thread(main, ["runs", "delete", run, "--journal", str(tmp_path / "journal.db")])
    assert done == 0, capsys.readouterr()
    assert [one[2]["code"] for one in desk.told("refusal")] == ["permit.no_rule"]
    ((actor, subject, _),) = desk.told("delete")
    assert (actor[:3], subject) == ("os:", f"run:{run}")


@pytest.mark.nightly
@pytest.mark.slow
def test_audit_has_every_approval_once_however_often_the_server_is_killed(tmp_path):
    token, answered = "t" * 24, 0
    for round in range(5):
        served = Served(tmp_path, KANAME_TOKEN=token)
        with client(served, token) as http:
            for _ in range(4):
                run = http.post("/api/runs", json={"agent": "cashier", "input": "pay"}).json()
                answers = {"answers": {run["questions"][0]["key"]: "yes"}, "mode": "detach"}
                assert http.post(f"/api/runs/{run['run_id']}/answers", json=answers).status_code == 202
                answered += 1
        served.kill()  # right after the last answer is on disk
        assert answered == (round + 1) * 4
    with serving(tmp_path, KANAME_TOKEN=token):
        log = AuditLog(next(tmp_path.rglob("audit.log")))
        while len([*log.entries(kind="approval")]) < answered:
            time.sleep(0.02)
    assert len({one.subject for one in log.entries(kind="approval")}) == answered == len([*log.entries(kind="approval")])
    assert log.verify() == []


@pytest.mark.slow
def test_audit_of_several_workers_has_every_approval_once(tmp_path):
    token = "t" * 24
    with serving(tmp_path, "--workers", "2", KANAME_TOKEN=token) as served, client(served, token) as http:
        for number in range(6):
            run = http.post("/api/runs", json={"agent": "cashier", "input": f"{number}"}).json()
            assert run["status"] == "waiting", run
            http.post(
                f"/api/runs/{run['run_id']}/answers", json={"answers": {run["questions"][0]["key"]: "yes"}, "mode": "wait"}
            )
        log = AuditLog(next(tmp_path.rglob("audit.log")))
        while len([*log.entries(kind="approval")]) < 6:
            pass
    assert len({one.subject for one in log.entries(kind="approval")}) == 6 == len([*log.entries(kind="approval")])
    assert log.verify() == []
