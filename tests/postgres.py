"""A real PostgreSQL for tests: a cluster of our own in a folder, on a socket only, gone when the tests are."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from tempfile import mkdtemp


def program(name: str) -> str | None:
    found = sorted(glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return shutil.which(name) or (found[-1] if found else None)


def _user() -> str | None:
    """PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


@contextmanager
def cluster() -> Iterator[str]:
    """The address of a database named `shop`."""
    user, folder = _user(), Path(mkdtemp(prefix="kaname-pg-"))  # a short path: it is a socket's
    data = folder / "data"
    if user is not None:
        shutil.chown(folder, user)

    def run(*command: str) -> None:
        done = subprocess.run(command, user=user, cwd="/", capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

    run(program("initdb") or "", "-D", str(data), "-A", "trust", "-U", "kaname", "-E", "UTF8", "--no-locale", "-N")
    options = f"-k {folder} -c listen_addresses= -c fsync=off"
    log = str(folder / "log")
    run(program("pg_ctl") or "", "-D", str(data), "-l", log, "-o", options, "-w", "start")
    try:
        run(program("createdb") or "", "-h", str(folder), "-U", "kaname", "shop")
        yield f"postgresql://kaname@/shop?host={folder}"
    finally:
        run(program("pg_ctl") or "", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
