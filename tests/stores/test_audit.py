"""The audit log: entries are chained, every change is found, and a person can be erased from it."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from kaname import AuditError, AuditLog, ConfigError
from kaname.stores.audit.chain import read_line
from tests import warm
from tests.properties import nightly

KINDS = ("sign_in", "approval", "read", "refusal")
USERS = ("ann", "ken", "鈴木", "rin@example.com")


def written(folder: Path, count: int = 120) -> AuditLog:
    log, chance = AuditLog(folder / "audit.log"), random.Random(7)
    log.record_all(
        [
            (chance.choice(KINDS), chance.choice(USERS), f"run:{number}", {"user": chance.choice(USERS), "number": number})
            for number in range(count)
        ]
    )
    return log


def test_audit_lists_what_was_recorded_and_filters_it(tmp_path):
    log = AuditLog(tmp_path / "audit.log")
    first = log.record("read", actor="ann", subject="run:1", user="ken")
    log.record("export", actor="ken", subject="user:ken", files=3)
    assert [one.place for one in log.entries()] == [1, 2]
    assert [one.kind for one in log.entries(actor="ken")] == ["export"]
    assert [one.detail for one in log.entries(kind="read")] == [{"user": "ken"}]
    assert [one.subject for one in log.entries(subject="run:1")] == ["run:1"]
    assert not [*log.entries(since="2999")]
    assert next(iter(log.entries(until="2999"))) == first
    assert log.verify() == []
    assert (tmp_path / "audit.log").stat().st_mode & 0o077 == 0, "only its owner can read it"


def test_audit_entries_hold_no_long_text_and_refuse_an_odd_kind(tmp_path):
    log = AuditLog(tmp_path / "audit.log")
    entry = log.record("read", actor="a" * 1000, things=["x" * 1000, {"y": "z" * 1000}])
    assert len(json.dumps(entry.as_json())) < 2_000
    with pytest.raises(ConfigError, match="kind"):
        log.record("Read It")
    assert log.forget("a" * 1000) == 1, "a shortened name is found, too"
    assert log.verify() == []


@pytest.mark.parametrize(
    "how", ["byte", "delete", "cut", *nightly("swap", "insert", "bits", "remove", "copy", "blank", "renumber")]
)
def test_audit_finds_every_change(tmp_path, how):
    log = written(tmp_path)
    log.forget("ken")
    whole, chance = log.path.read_bytes(), random.Random(how)
    for _ in range(20):
        log.path.write_bytes(changed := tampered(whole, how, chance))
        assert changed != whole
        broken = log.verify()
        assert broken, how
        assert all(one.place >= 1 and one.what for one in broken)
    log.path.write_bytes(whole)
    assert log.verify() == []


def tampered(whole: bytes, how: str, chance: random.Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    number, place = chance.randrange(len(lines) - 1), chance.randrange(len(whole))
    if how == "byte":
        return whole[:place] + bytes([(whole[place] + chance.randrange(1, 256)) % 256]) + whole[place + 1 :]
    if how == "bits":
        return whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :]
    if how == "remove":
        return whole[:place] + whole[place + chance.randrange(1, 50) :]
    if how == "insert":
        return whole[:place] + b" " * chance.randrange(1, 5) + whole[place:]
    if how == "cut":
        return whole[:place]
    if how == "swap":
        lines[number], lines[number + 1] = lines[number + 1], lines[number]
    elif how == "delete":
        del lines[number : number + chance.randrange(1, 5)]
    elif how == "copy":
        lines.insert(chance.randrange(len(lines)), lines[number])
    elif how == "blank":  # as erasing does it, but without saying so
        number = next(one for one in range(number, len(lines)) if b'"subject":["' in lines[one])
        entry = json.loads(lines[number])
        made = json.dumps({**entry, "subject": None}, separators=(",", ":")).encode()
        lines[number] = made.ljust(len(lines[number]) - 1) + b"\n"
    else:
        lines[number] = lines[number].replace(b'"place":', b'"place":1', 1)
    return b"".join(lines)


def test_audit_names_the_broken_link(tmp_path):
    log = written(tmp_path, 10)
    lines = log.path.read_text().splitlines(keepends=True)
    time = json.loads(lines[3])["time"]
    lines[3] = lines[3].replace('"run:3"', '"run:9"')
    log.path.write_text("".join(lines))
    (one,) = log.verify()
    assert (one.place, one.time) == (4, time)
    assert "subject" in one.what


def test_audit_whose_end_is_cut_is_found_by_the_head(tmp_path):
    log = written(tmp_path, 10)
    noted = str(log.head)
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:7]))
    (one,) = log.verify()
    assert one.place == 8
    assert "10 entries" in one.what
    log.record("read", actor="ann")  # it goes on after the head, so the gap stays to be seen
    assert any("8 to 10 are missing" in one.what for one in log.verify())
    anew = AuditLog(tmp_path / "anew.log")
    for number in range(10):
        anew.record("read", actor="ann", number=number)
    assert anew.verify() == []
    assert [one.place for one in anew.verify(noted)] == [10], "a log that was written anew differs from a head noted elsewhere"
    with pytest.raises(ConfigError, match="COUNT:HASH"):
        anew.verify("10")
    (tmp_path / "anew.log.head").unlink()
    assert "head" in anew.verify()[0].what


def test_audit_head_can_be_kept_elsewhere(tmp_path):
    log = AuditLog(tmp_path / "audit.log", head=tmp_path / "elsewhere" / "head")
    log.record("read", actor="ann")
    assert (tmp_path / "elsewhere" / "head").read_text().startswith("1:")
    assert log.verify() == []


def test_audit_forgets_a_person_and_stays_whole(tmp_path):
    log = written(tmp_path)
    before = [*log.entries()]
    named = [one for one in before if "ken" in (one.actor, (one.detail or {}).get("user"))]
    size = log.path.stat().st_size
    assert log.forget("ken", actor="boss") == len(named)
    assert log.verify() == []
    assert b'"ken"' not in log.path.read_bytes()
    after = [*log.entries()]
    assert [one.hash for one in after][: len(before)] == [one.hash for one in before]
    assert [one.kind for one in after[:120]] == [one.kind for one in before], "it is still told that something happened"
    kept = next(one for one in before if one.actor == "ann" and (one.detail or {}).get("user") == "ken")
    assert (after[kept.place - 1].actor, after[kept.place - 1].detail) == ("ann", None), "what others did stays theirs"
    assert log.has_erased("ken")
    assert not log.has_erased("ann")
    assert next(one.actor for one in log.entries(kind="erased")) == "boss"
    assert log.forget("ken") == 0
    assert log.path.stat().st_size > size


def test_audit_erasure_that_a_crash_has_interrupted_is_finished_by_the_next(tmp_path):
    log = written(tmp_path, 30)
    whole = log.path.read_bytes()
    log.forget("ken")
    done, head = log.path.read_bytes(), str(log.head)
    numbers = [number for one in log.entries(kind="erased") for number in one.detail["places"]]
    places = [place for place in range(len(whole)) if whole[place] != done[place]]
    for upto in random.Random(3).sample(places, 25):  # the announcement is written, and a part of the erasing
        log = AuditLog(tmp_path / f"{upto}.log")
        log.path.write_bytes(done[:upto] + whole[upto:] + done[len(whole) :])
        log.path.with_name(f"{upto}.log.head").write_text(head)
        log.forget("ken")
        assert b'"ken"' not in log.path.read_bytes()
        assert log.verify() == []
    assert numbers


WRITER = """
import sys
from kaname import AuditLog
log = AuditLog(sys.argv[1])
print("ready", flush=True)
for number in range(int(sys.argv[3])):
    entry = log.record("read", actor=sys.argv[2], number=number, filler="x" * 250)
    print(entry.place, flush=True)
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return warm.Popen(command, stdout=subprocess.PIPE, text=True)


def test_audit_of_several_processes_is_one_chain_and_a_kill_loses_nothing(tmp_path):
    log = AuditLog(tmp_path / "audit.log")
    killed = [writer(log.path, f"killed-{number}", 100_000) for number in range(3)]
    others = [writer(log.path, f"writer-{number}", 100) for number in range(2)]
    seen: list[int] = []
    for number, one in enumerate(killed):
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
        seen += [int(one.stdout.readline()) for _ in range(20 + 7 * number)]
        one.kill()
        seen += [int(line) for line in one.stdout.read().splitlines()]  # what it was told as written
        one.wait()
        one.stdout.close()
    for one in others:
        told, _ = one.communicate()
        seen += [int(line) for line in told.splitlines()[1:]]
    assert log.verify() == []
    log.record("read", actor="after")
    assert log.verify() == []
    places = [entry.place for entry in log.entries()]
    assert places == [*range(1, len(places) + 1)]
    assert {*seen} <= {*places}, "what was told as written is there"
    assert len([*log.entries(actor="writer-0")]) == len([*log.entries(actor="writer-1")]) == 100


def test_audit_on_a_full_disk_says_so_and_keeps_what_it_has(tmp_path):
    """A limit on the size of files stands for a full disk: the write ends in the middle of the line."""
    log = written(tmp_path, 5)
    size = log.path.stat().st_size
    code = (
        "import resource, signal, sys\n"
        "from kaname import AuditError, AuditLog\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 100}, {size + 100}))\n"
        "try:\n"
        "    AuditLog(sys.argv[1]).record('read', actor='ann', filler='x' * 250)\n"
        "except AuditError as problem:\n"
        "    print(problem)\n"
    )
    done = warm.run([sys.executable, "-c", code, str(log.path)], capture_output=True, text=True, check=True)
    assert "cannot be used" in done.stdout
    assert log.path.stat().st_size == size
    assert log.verify() == []
    assert log.record("read", actor="ann").place == 6
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_audit_that_cannot_be_written_refuses(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError, match="cannot be used"):
        AuditLog(tmp_path / "file" / "audit.log").record("read", actor="ann")
    with pytest.raises(AuditError):
        AuditLog(tmp_path / "file" / "audit.log").probe()
    log = written(tmp_path, 3)
    log.probe()
    assert sorted(os.listdir(tmp_path)) == ["audit.log", "audit.log.head", "audit.log.lock", "file"]


def test_audit_removes_the_rest_of_an_entry_that_was_never_finished(tmp_path):
    log = written(tmp_path, 3)
    with log.path.open("ab") as file:
        file.write(b'{"place":4,"time":"2026')
    assert log.verify() == [], "it was never told as written"
    assert log.record("read", actor="ann").place == 4
    assert log.verify() == []


def test_audit_records_only_what_has_changed(tmp_path):
    log = AuditLog(tmp_path / "audit.log")
    assert len(log.record_changes("roles", {"user:ann": ["talk"], "user:ken": ["read"]})) == 2
    assert log.record_changes("roles", {"user:ann": ["talk"], "user:ken": ["read"]}) == []
    changed = log.record_changes("roles", {"user:ann": ["admin"]}, actor="os:root")
    assert [(one.subject, one.detail) for one in changed] == [
        ("user:ann", {"now": ["admin"], "before": ["talk"]}),
        ("user:ken", {"now": None, "before": ["read"]}),
    ]


def test_audit_line_is_read_only_as_it_was_written(tmp_path):
    log = written(tmp_path, 1)
    line = log.path.read_bytes()[:-1]
    assert read_line(line) is not None
    for other in (line + b" ", line.replace(b",", b", ", 1), b"{}", b"", b"[]", line[:-1]):
        assert read_line(other) is None
