"""Design D, 3.13: personal data and permissions, in the document's names; encryption, audit, export and erasure."""

from zipfile import ZipFile

import pytest

from kaname import (
    Agent,
    AuditLog,
    ConfigError,
    MemoryJournal,
    ScriptedModel,
    SqliteJournal,
    call,
    erase_user,
    export_user,
    tool,
    use_key,
)
from kaname.core.encryption.keys import create_key_file, forget_keys
from kaname.designs import SecurityManager
from kaname.memory.protection.places import DataPlaces

ADDRESS, CARD = "a.b@example.com", "4111 1111 1111 1111"
RULES = [
    {"name": "small", "role": "clerk", "tool": "pay", "where": {"yen": {"at_most": 100}}},
    {"user": "ann", "data": "order:1"},
]
ROLES = {"ann": ["clerk"]}


@pytest.fixture
def pay():
    paid = []

    @tool
    def pay(yen: int, to: str) -> str:
        """Pay an amount."""
        paid.append((yen, to))
        return f"paid {yen} yen to {to}"

    pay.paid = paid
    return pay


@pytest.mark.requirement("D13")
def test_d13_sanitize_data_masks_what_the_patterns_name_and_by_default_every_kind():
    data = {"to": ADDRESS, "text": [f"card {CARD}", "staff E123456"], "n": 3}
    manager = SecurityManager()
    assert manager.sanitize_data(data, ["email"]) == {**data, "to": "[email]"}
    assert manager.sanitize_data(data, {"staff": r"E[0-9]{6}"}) == {**data, "text": [f"card {CARD}", "staff [staff]"]}
    assert manager.sanitize_data(data) == {"to": "[email]", "text": ["card [card]", "staff E123456"], "n": 3}
    assert data["to"] == ADDRESS, "the data itself is not changed"
    with pytest.raises(ConfigError, match="did you mean 'email'"):
        manager.sanitize_data(data, ["emial"])


@pytest.mark.requirement("D13")
def test_d13_sanitize_data_uses_the_patterns_and_detectors_of_the_manager():
    def shouted(text):
        return [(place, place + 3, "person") for place in range(len(text)) if text[place : place + 3] == "BOB"]

    manager = SecurityManager(patterns={"staff": r"E[0-9]{6}"}, detectors=[shouted])
    assert manager.sanitize_data(["E123456", "BOB", ADDRESS]) == ["[staff]", "[person]", "[email]"]


@pytest.mark.requirement("D13")
def test_d13_check_permissions_answers_with_the_reason_and_refuses_what_no_rule_allows():
    manager = SecurityManager(RULES, roles=ROLES)
    assert manager.check_permissions("ann", "use", "pay", arguments={"yen": 5})
    assert manager.check_permissions("ann", "read", "order:1")
    for asked, why in ((("ann", "read", "order:2"), "no rule allows"), (("bob", "use", "pay"), "no rule allows")):
        verdict = manager.check_permissions(*asked)
        assert not verdict
        assert why in verdict.reason
    verdict = manager.check_permissions("ann", "use", "pay", arguments={"yen": 500})
    assert not verdict
    assert "'small'" in verdict.reason
    assert not SecurityManager().check_permissions("ann", "use", "pay"), "without rules nothing is permitted"


@pytest.mark.requirement("D13")
@pytest.mark.parametrize(("user", "yen", "paid"), [("ann", 50, [(50, ADDRESS)]), ("ann", 500, []), ("bob", 50, [])])
async def test_d13_policies_hold_in_a_run(pay, user, yen, paid):
    seen = []

    def script(request):
        seen.append(repr(request.messages))
        return call("pay", yen=yen, to="<EMAIL_1>") if len(seen) == 1 else "Done for <EMAIL_1>."

    manager = SecurityManager(RULES, roles=ROLES)
    agent = Agent(ScriptedModel(script), [pay], policies=manager.policies, journal=MemoryJournal())
    result = await agent.run(f"Pay {ADDRESS}", user_id=user)
    assert pay.paid == paid
    assert result.output == f"Done for {ADDRESS}."
    assert not any(ADDRESS in one for one in seen), "the model sees a pseudonym"


@pytest.mark.requirement("D13")
async def test_d13_kinds_say_what_is_done_with_data_in_a_run(pay):
    journal = MemoryJournal()
    manager = SecurityManager(kinds={"email": "mask", "card": "block"})
    agent = Agent(ScriptedModel(["ok", "ok"]), [pay], policies=manager.policies, journal=journal)
    result = await agent.run(f"Write to {ADDRESS}")
    facts = repr([event async for event in journal.read(result.run_id)])
    assert "Write to [email]" in facts
    assert ADDRESS not in facts
    assert (await agent.run(f"Pay with {CARD}")).stop.kind == "blocked"


@pytest.mark.requirement("D13")
async def test_d13_what_a_user_said_is_encrypted_exported_and_erased_and_the_audit_log_says_so(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    create_key_file(tmp_path / "key")
    journal = SqliteJournal(folder / "journal.db", key_file=tmp_path / "key")
    agent = Agent(ScriptedModel(["The secret word is plover."]), journal=journal)
    await agent.run("My secret word is plover.", user_id="ken")
    await agent.close()
    log = AuditLog(folder / "audit.log")
    log.record("approval", actor="ken", subject="run:1", user="ken")
    use_key(tmp_path / "key", places=[folder])
    try:
        assert not any(b"plover" in file.read_bytes() for file in folder.rglob("*") if file.is_file())
        places = DataPlaces.below(folder)
        await export_user("ken", tmp_path / "ken.zip", places)
        with ZipFile(tmp_path / "ken.zip") as archive:
            assert any(b"plover" in archive.read(name) for name in archive.namelist())
        done = await erase_user("ken", places)
        assert done.journal.runs == 1
        with pytest.raises(ConfigError, match="nothing is stored"):
            await export_user("ken", tmp_path / "again.zip", places)
        assert [entry.kind for entry in log.entries()][:3] == ["approval", "export", "erased"]
        assert log.verify() == []
        assert b"ken" not in log.path.read_bytes()
    finally:
        forget_keys()
