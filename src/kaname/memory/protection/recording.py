"""Record exports and erasures where an auditor finds them."""

from __future__ import annotations

import getpass
from pathlib import Path

from ...stores.audit.log import AuditLog


def record_export(user: str, audit: Path | None) -> None:
    """Record in the audit log, if there is one, that the data of a user was exported, and by which account of this machine."""
    if audit is not None and audit.exists():
        AuditLog(audit).record("export", actor=_account(), subject=f"user:{user}", user=user)


def record_erasure(user: str, audit: Path | None) -> None:
    """Erase a user from the audit log, if there is one, and record that. The chain stays whole, and names the user no more."""
    if audit is not None and audit.exists():
        AuditLog(audit).forget(user, actor=_account())


def _account() -> str:
    return f"os:{getpass.getuser()}"
