"""Watchdog: kills the server's process group when this process dies, even by SIGKILL.

After SIGKILL kaname cannot end its servers, and a server that ignores the end of its input would run forever. The shell
reads from a pipe that kaname holds open: when kaname is gone, reading ends. A helper that has left the process group is not
killed."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

_SCRIPT = 'read -r _ || kill -9 "-$1"'


class ProcessGuard:
    """A shell that watches over one process group. Call `end` after the group has ended normally."""

    def __init__(self, group: int) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        with suppress(OSError):  # no shell, no guard
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "kaname-guard", str(group)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C in our terminal is not meant for it
                cwd="/",
                env={"PATH": os.defpath},
            )

    def end(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None and shell.stdin is not None:
            shell.kill()
            shell.wait()
            shell.stdin.close()


def kill_group(group: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
