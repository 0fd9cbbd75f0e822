"""The parts of a `SecurityManager` in the document: `EncryptionHandler`, `AccessControlList` and `AuditLogger`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.encryption.keys import KEY, KEY_FILE, MasterKey, key_for, use_key
from ...core.encryption.user_keys import ID_LENGTH, UserKey
from ...core.errors import AuditError, EncryptionError
from ...core.messages import ToolCall, ToolResult
from ...core.project import state_path
from ...kernel.ports import Policy, ToolHandler
from ...kernel.threads import off_loop
from ...policies.money.budget import Verdict
from ...policies.permission.permit import Permit, Roles
from ...stores.audit.log import AuditLog

if TYPE_CHECKING:
    from ...kernel.view import RunView

_VALUE = "value"
_NOTHING = {"name": "no rules", "effect": "deny", "tool": "*", "handoff": "*", "data": "*", "action": "*"}


class EncryptionHandler:
    """Encrypts the files of kaname from now on, as `use_key` does, and values of your own. It needs the extra `encryption`.

    Args:
        key_file: A file with the key, readable by its owner only (default: `KANAME_KEY` or `KANAME_KEY_FILE`).
        keyring: The name of the key in the keyring of the system, instead of a file.
        places: Folders and files to encrypt (default: all files of kaname that this process opens).

    Raises:
        EncryptionError: There is no key, or it cannot be read.
    """

    def __init__(
        self, key_file: str | Path | None = None, *, keyring: str = "", places: Iterable[str | Path] | None = None
    ) -> None:
        chosen = None if places is None else list(places)
        if key_file is not None or keyring:
            use_key(key_file, keyring=keyring, places=chosen)
        self._place = chosen[0] if chosen else ""
        self._key()

    def _key(self) -> MasterKey:
        if (key := key_for(self._place)) is None:
            raise EncryptionError.of(
                "security.no_key",
                "EncryptionHandler has no key: pass EncryptionHandler(key_file), or set {key} or {file}",
                key=KEY,
                file=KEY_FILE,
            )
        return key

    def encrypt(self, data: str) -> str:
        """Return a text encrypted (AES-GCM)."""
        return _value_key(self._key().for_values()[0]).seal(data, _VALUE)

    def decrypt(self, data: str) -> str:
        """Return the text that was encrypted. Raises `EncryptionError` if it was changed, or encrypted with another key."""
        keys = {key.id: key for key in map(_value_key, self._key().for_values())}
        if (key := keys.get(data[1 : 1 + ID_LENGTH])) is None:
            raise EncryptionError.of("security.other_key", "the text was not encrypted with this key")
        return key.unseal(data, _VALUE)


def _value_key(secret: bytes) -> UserKey:
    return UserKey(hashlib.sha256(secret).hexdigest()[:ID_LENGTH], secret)


class AccessControlList(Permit):
    """Permission rules: `Permit` with the method of the document. Without rules, nothing is allowed."""

    def __init__(
        self, rules: Iterable[Any] = (), *, roles: Roles | None = None, resources: Mapping[str, str] | None = None
    ) -> None:
        super().__init__([*rules] or [_NOTHING], roles=roles, resources=resources)

    def is_allowed(self, user_identity: Any, action: str, resource_id: str) -> Verdict:
        """Return whether it is allowed. The verdict is true or false, and has a `reason`."""
        return self.check_permissions(user_identity, action, resource_id)


class AuditLogger(AuditLog):
    """An `AuditLog`. As a part of a `SecurityManager`, it also records every tool call of a run: allowed or refused.

    Args:
        path: The file (default `audit.log` next to the program's journal).
        head: As for `AuditLog`.
    """

    def __init__(self, path: str | Path | None = None, *, head: str | Path | None = None) -> None:
        super().__init__(path or state_path("audit.log"), head=head)


class Audited(Policy):
    """Records every tool call before it runs. A call that cannot be recorded is refused."""

    place = "allowed"

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        refused = await view.decide(call)
        kind, state = "access" if refused is None else "refusal", view.state
        try:
            await off_loop(
                lambda: self._log.record(kind, actor=state.user, subject=f"run:{view.run_id}", tool=call.name, call=call.id)
            )
        except AuditError as problem:
            return ToolResult(error=str(problem), not_run=True, retryable=False)
        return await next(call) if refused is None else refused

    def for_child(self, view: RunView) -> Policy:
        return self
