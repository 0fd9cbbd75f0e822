"""Find the audit log that belongs to a journal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..default import path_beside
from .log import AuditLog


def audit_beside(journal: object, settings: Any = None, folder: str | Path = ".") -> AuditLog | None:
    """Return the audit log of a journal, or None if the settings switch it off. The file may not exist yet.

    Args:
        journal: The journal, or its path. By default the log is `audit.log` in its folder.
        settings: What a configuration says under `audit`: True, False, or a mapping with `path` and `head`.
        folder: The folder of the configuration, from which its paths count.
    """
    if settings is False:
        return None
    named: Mapping[str, Any] = settings if isinstance(settings, Mapping) else {}
    path, head = [Path(folder, Path(named[key]).expanduser()) if named.get(key) else None for key in ("path", "head")]
    return AuditLog(path or path_beside(journal, "audit.log"), head=head)
