"""Record exports and erasures where an auditor finds them."""

from __future__ import annotations

from logging import getLogger
from typing import Literal


def record_rights(action: Literal["export", "erase"], user: str, by: str = "") -> None:
    """Note that the data of a user was exported or erased. It is recorded in the audit log, once a log is connected.

    The log line names no user: it would keep an id that was erased.
    """
    getLogger("kaname").info("user %s%s", action, f" by {by}" if by else "")
