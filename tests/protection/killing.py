"""Kill a piece of work at every line of the modules that do it, and check each time what is left. Run as a program.

python -m tests.protection.killing encrypt|rotate|erase|export FOLDER STEP     prints the number of kills; STEP: lines between them
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import threading
from pathlib import Path
from zipfile import ZipFile

from kaname import SqliteJournal, erase_user, export_user, use_key
from kaname.core.encryption import keys
from kaname.core.encryption.database import is_plain
from kaname.memory.files import MemoryFiles
from kaname.memory.protection.encrypting import encrypt_files, rotate_key
from tests.protection.planted import OTHER, USER, found_in_files, places

_TRACED = ("core/encryption/conversion.py", "core/encryption/keys.py", "memory/protection/", "sqlite/erasure.py")


def work(kind: str, folder: Path) -> None:
    data = folder / "data"
    if kind == "encrypt":
        list(encrypt_files(places(data), keys.read_key_file(folder / "key")))
    elif kind == "rotate":
        list(rotate_key(places(data), keys.read_key_file(folder / "key")))
    elif kind == "erase":
        asyncio.run(erase_user(USER, places(data)))
    else:
        asyncio.run(export_user(USER, folder / "out.zip", places(data)))


def in_child(act, *given) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            act(*given)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(2)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def killed_at(count: int, kind: str, folder: Path) -> None:
    left = count

    def trace(frame, event, arg):
        nonlocal left
        if not any(part in frame.f_code.co_filename for part in _TRACED):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), 9)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    work(kind, folder)


def set_key(folder: Path) -> None:
    if (folder / "key").exists():
        use_key(folder / "key", places=[folder / "data"])


def check_readable(folder: Path) -> None:
    """Every file is whole, plain or encrypted, and Mia's data is there."""
    key = keys.read_key_file(folder / "key") if (folder / "key").exists() else None
    from kaname.core.encryption.database import open_database

    for path in places(folder / "data").databases():
        connection = open_database(path, key=None if is_plain(path) else key)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",), path
        connection.close()


def check_finished(kind: str, folder: Path) -> None:
    """After repeating the work, everything is as it would be without the kill."""
    work(kind, folder)
    data = folder / "data"

    async def look() -> None:
        journal = SqliteJournal(data / "journal.db")
        assert await journal.stores.health.verify() == []
        assert {card.title for card in await journal.runs(user=OTHER)} == {"what Mia says", "Mia wants to send", "Mia waits"}
        mine = await journal.runs(user=USER)
        assert bool(mine) == (kind != "erase")
        await journal.close()

    asyncio.run(look())
    if kind == "erase":
        assert not found_in_files(data), found_in_files(data)
    files = MemoryFiles(data / "memory")
    assert [one.text for one in files.of(OTHER).all()] == ["Mia lives in York"]
    assert len(files.of(USER).all()) == (0 if kind == "erase" else 6)
    files.close()
    left = {file for files in found_in_files(data).values() for file in files} - {"trace.jsonl", "users.json"}
    if kind in ("encrypt", "rotate"):
        assert not left, left
        assert (folder / "key").read_text().count("\n") == 1
        assert not list(data.rglob("*.converting*"))


def main(kind: str, folder: Path, step: int) -> None:
    pristine, count = folder.with_name("pristine"), 0
    shutil.copytree(folder, pristine)
    while True:
        shutil.rmtree(folder)
        shutil.copytree(pristine, folder)
        keys.forget_keys()
        set_key(folder)
        status = in_child(killed_at, count, kind, folder)
        assert status in (0, -9), status
        if status == 0:
            break
        assert in_child(check_readable, folder) == 0, count
        if kind == "export" and (folder / "out.zip").exists():  # it is complete
            assert ZipFile(folder / "out.zip").testzip() is None
            (folder / "out.zip").unlink()
        assert in_child(check_finished, kind, folder) == 0, count
        count += step
    print(json.dumps({"kills": count // step}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
