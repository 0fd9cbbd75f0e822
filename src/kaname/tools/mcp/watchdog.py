"""Watchdog: kills the server's process group when this process dies, even by SIGKILL.

SIGKILL gives us no chance to end our servers, and one that ignores the end of its input would go on for ever. The shell holds
the other end of a pipe: when we are gone, reading from it ends. A helper that has left the process group is out of reach.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

_SCRIPT = 'read -r _ || kill -9 "-$1"'


class Guard:
    """For one process group. `end` when the group has ended in order."""

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
