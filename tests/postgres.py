"""A real PostgreSQL for tests: a cluster of our own in a folder, on a socket only, gone when the tests are."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from tempfile import mkdtemp


def program(name: str) -> str | None:
    found = sorted(glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return shutil.which(name) or (found[-1] if found else None)


def database_user() -> str | None:
    """PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


def run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, user=database_user(), cwd="/", capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


@contextmanager
def cluster(*, fsync: bool = False, options: str = "") -> Iterator[str]:
    """The address of a database named `shop`."""
    folder = Path(mkdtemp(prefix="kaname-pg-"))  # a short path: it is a socket's
    if (user := database_user()) is not None:
        shutil.chown(folder, user)
    run(program("initdb") or "", "-D", str(folder / "data"), "-A", "trust", "-U", "kaname", "-E", "UTF8", "--no-locale", "-N")
    settings = f"-k {folder} -c listen_addresses= -c fsync={'on' if fsync else 'off'} {options}"
    (folder / "options").write_text(settings)
    url = f"postgresql://kaname@/shop?host={folder}"
    start(url)
    try:
        run(program("createdb") or "", "-h", str(folder), "-U", "kaname", "shop")
        yield url
    finally:
        stop(url, check=False)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database(url: str, name: str) -> Iterator[str]:
    """The address of an empty database of this name on a server that is there."""
    where = ["-h", str(folder_of(url)), "-U", "kaname"]
    run(program("createdb") or "", *where, name)
    try:
        yield url.replace("/shop?", f"/{name}?")
    finally:
        run(program("dropdb") or "", *where, "--force", name, check=False)  # a session can take its time; the server ends soon


def folder_of(url: str) -> Path:
    return Path(url.partition("host=")[2].partition("&")[0])


def start(url: str) -> None:
    folder = folder_of(url)
    settings = (folder / "options").read_text()
    run(program("pg_ctl") or "", "-D", str(folder / "data"), "-l", str(folder / "log"), "-o", settings, "-w", "start")


def stop(url: str, *, check: bool = True) -> None:
    """Stop the server as a crash would."""
    run(program("pg_ctl") or "", "-D", str(folder_of(url) / "data"), "-m", "immediate", "stop", check=check)


@contextmanager
def replica(url: str, *, synchronous: bool) -> Iterator[str]:
    """The address of a standby that follows another server."""
    folder = Path(mkdtemp(prefix="kaname-pg-"))
    if (user := database_user()) is not None:
        shutil.chown(folder, user)
    primary = str(folder_of(url))
    run(program("pg_basebackup") or "", "-D", str(folder / "data"), "-R", "-h", primary, "-U", "kaname", "--checkpoint=fast")
    (folder / "options").write_text(f"-k {folder} -c listen_addresses= -c fsync=off")
    address = f"postgresql://kaname@/shop?host={folder}"
    start(address)
    try:
        if synchronous:
            settings = "ALTER SYSTEM SET synchronous_standby_names = '*'"
            run(program("psql") or "", "-h", primary, "-U", "kaname", "-c", settings, "-c", "SELECT pg_reload_conf()", "shop")
        yield address
    finally:
        stop(address, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def promote(url: str) -> None:
    """Make a standby the primary server."""
    run(program("pg_ctl") or "", "-D", str(folder_of(url) / "data"), "-w", "promote")


def pause(url: str) -> None:
    """Let a standby receive nothing more from its primary server."""
    psql = [program("psql") or "", "-h", str(folder_of(url)), "-U", "kaname"]
    run(*psql, "-c", "ALTER SYSTEM SET primary_conninfo = ''", "-c", "SELECT pg_reload_conf()", "shop")
    until = time.monotonic() + 60
    while run(*psql, "-Atc", "SELECT count(*) FROM pg_stat_wal_receiver", "shop").strip() != "0":
        assert time.monotonic() < until, "the standby still receives"
        time.sleep(0.05)
