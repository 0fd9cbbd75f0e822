"""A real PgBouncer before the test server, in session or transaction mode."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager

from tests.postgres import database_user, folder_of


def program():
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


@contextmanager
def pooled(url, mode):
    """The address of the journal through the pooler."""
    folder = folder_of(url) / f"bouncer-{mode}"
    folder.mkdir()
    user = database_user()
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    (folder / "users").write_text('"kaname" ""\n')
    (folder / "ini").write_text(
        f"[databases]\nshop = host={folder_of(url)} user=kaname\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        f"unix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users\npool_mode = {mode}\ndefault_pool_size = {3 if mode == 'transaction' else 30}\n"
        f"max_client_conn = 100\nlogfile = {folder}/log\n"
    )
    if user is not None:
        for place in (folder, folder / "users", folder / "ini"):
            shutil.chown(place, user)
    process = subprocess.Popen(
        [program(), "-q", str(folder / "ini")], user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield f"postgresql://kaname@127.0.0.1:{port}/shop?{url.partition('&')[2]}"
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
