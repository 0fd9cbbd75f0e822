"""Users with roles. A user is recognized by a token, of which only the hash is stored."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError, nearest
from ..core.notices import notice
from ..core.record import record
from ..stores.default import path_beside

if TYPE_CHECKING:
    from ..config.build import Config

ROLES = ("read", "talk", "approve", "admin")
_FOR_OTHERS = "approve:"  # before the name of an agent, or `all`
ENVIRONMENT = "KANAME_TOKEN"
_PREFIX = "kn_"
_FILE = "users.json"
_LEAST = 20  # characters of a token that the operator chose


@record
class Caller:
    """The sender of a request, with its roles.

    Args:
        name: The name of the user. Empty for the person at this machine, when the server has no users.
        roles: `read`: see your own runs. `talk`: also start and steer them. `approve`: also answer their questions. `admin`:
            all of this, with the runs of all users. `approve:all`: answer the questions of all users' runs. `approve:AGENT`:
            answer those of one agent's runs.
        language: "ja" if the request asks for Japanese, otherwise "".
    """

    name: str
    roles: frozenset[str]
    language: str = ""

    @property
    def is_admin(self) -> bool:
        return "admin" in self.roles

    def may(self, role: str) -> bool:
        more = (role == "read" and bool(self.roles)) or (role == "approve" and f"{_FOR_OTHERS}all" in self.roles)
        return self.is_admin or role in self.roles or more

    @property
    def answers_for_others(self) -> bool:
        """Return True if the caller can answer questions of other users' runs."""
        return self.is_admin or any(role.startswith(_FOR_OTHERS) for role in self.roles)

    def can_answer(self, user: str, agent: str) -> bool:
        """Return True if the caller can answer the questions of a run."""
        own = self.sees(user) and self.may("approve")
        return own or not {f"{_FOR_OTHERS}all", f"{_FOR_OTHERS}{agent}"}.isdisjoint(self.roles)

    def sees(self, user: str) -> bool:
        """Return True if the caller can see the runs of that user: administrators see all, others their own."""
        return self.is_admin or user == self.name

    def list_of(self, asked: str | None = None) -> str | None:
        """Return the user whose runs a list shows, by the same rule; None for all users.

        Args:
            asked: The user whose runs an administrator asks for.
        """
        return asked if self.is_admin else self.name


def is_name(name: str) -> bool:
    """Return True for a name that a user can have. The name of the administrator with `KANAME_TOKEN` is no user's."""
    return bool(name) and name.isprintable() and name == name.strip() and name != ENVIRONMENT


def is_role(role: str) -> bool:
    return role in ROLES or (role.startswith(_FOR_OTHERS) and len(role) > len(_FOR_OTHERS))


OWNER = Caller("", frozenset(["admin"]))


def nobody(language: str = "") -> Caller:
    """Return the caller of a request that needs no user: it has no roles."""
    return Caller("", frozenset(), language)


def users_file(journal: object) -> Path:
    """Return the users file that belongs to a journal, given as an object or as a path: `users.json` in its folder."""
    return path_beside(journal, _FILE)


def users_named_by(config: Config) -> Path | None:
    """Return the users file that a configuration names (`serve: users:`), relative to its folder; None if it names none."""
    named = (config.value.get("serve") or {}).get("users")
    return Path(config.agent().folder, Path(named).expanduser()) if named else None


class Users:
    """The users of a server.

    Args:
        path: The file with the users. It is read again when it has changed. None: only `token`.
        token: The token of an administrator with the name "KANAME_TOKEN", in addition to the users in the file. At least 20
            characters.
        optional: As long as the file does not exist, no token is needed. Once it exists, every request needs one.

    Raises:
        ConfigError: If the token is too short.
    """

    def __init__(self, path: str | Path | None = None, *, token: str = "", optional: bool = False) -> None:
        self.path = None if path is None else Path(path).expanduser()
        if token and len(token) < _LEAST:
            raise ConfigError.of("users.short_token", "a token must have at least {least} characters", least=_LEAST)
        self._fixed = {hash_token(token): Caller(ENVIRONMENT, frozenset(["admin"]))} if token else {}
        self._open = optional
        self._seen: tuple[int, int, int] | None = None  # the file as it was read
        self._known: dict[str, Caller] = {}

    @classmethod
    def from_environment(cls, path: str | Path) -> Users:
        """Return the users in the file, and an administrator with `KANAME_TOKEN`. Without both, no token is needed yet."""
        return cls(path, token=os.environ.get(ENVIRONMENT, ""), optional=True)

    @property
    def requires_token(self) -> bool:
        """Return True if a token is needed. Once it is needed it stays so, whatever happens to the file."""
        if self._open and (self._fixed or (self.path is not None and _may_exist(self.path))):
            self._open = False
        return not self._open

    def caller(self, token: str) -> Caller | None:
        """Return the user with that token, or None. Each comparison takes the same time, whether the token fits or not."""
        given, found = hash_token(token), None
        for known, caller in {**self._load(), **self._fixed}.items():
            if hmac.compare_digest(known, given):
                found = caller
        return found

    def caller_by_hash(self, known: str) -> Caller | None:
        """Return the user whose token has that hash, or None: the token was removed or replaced."""
        return {**self._load(), **self._fixed}.get(known)

    def roles_of(self, name: str) -> frozenset[str] | None:
        """Return the present roles of a user, or None if there is no such user."""
        return next((one.roles for one in {**self._load(), **self._fixed}.values() if one.name == name), None)

    @property
    def has_tokens(self) -> bool:
        """Return True if a token can be valid."""
        return bool(self._fixed) or (self.path is not None and _may_exist(self.path))

    def close(self) -> None:
        """Require a token from now on, even if there are no users yet."""
        self._open = False

    def all(self) -> dict[str, list[str]]:
        """Return the names of the users and their roles."""
        return {name: list(one["roles"]) for name, one in sorted(self._read_file().items())}

    def add(self, name: str, roles: Iterable[str]) -> str:
        """Add a user, or give an existing user a new token and new roles. Return the token, which is not stored.

        Args:
            name: The name of the user.
            roles: Some of "read", "talk", "approve", "approve:all", "approve:AGENT" and "admin". Default: "read" and "talk".

        Raises:
            ConfigError: If the name has line breaks or outer spaces, a role is unknown, or the users have no file.
        """
        wanted = list(dict.fromkeys(roles))
        if not is_name(name):
            raise ConfigError.of(
                "users.name",
                "the name of a user must be printable, without spaces around it, and not {reserved}; it is {name!r}",
                name=name,
                reserved=ENVIRONMENT,
            )
        for role in wanted:
            if not is_role(role):
                raise ConfigError(notice("users.no_role", "there is no role {role!r}", role=role) + nearest(role, ROLES))
        token = _PREFIX + secrets.token_urlsafe(32)
        self._write(
            {**self._read_file(), name: {"hash": hash_token(token), "roles": wanted or ["read", "talk"], "since": time.time()}}
        )
        return token

    def remove(self, name: str) -> None:
        """Remove a user. Its token is refused from now on. Raise `ConfigError` if there is no such user."""
        known = self._read_file()
        if name not in known:
            raise ConfigError(notice("users.none", "there is no user {name!r}", name=name) + nearest(name, known))
        self._write({other: entry for other, entry in known.items() if other != name})

    def _load(self) -> dict[str, Caller]:
        if self.path is None:
            return {}
        try:
            now = self.path.stat()
        except OSError:  # deleted: no user is left
            self._known, self._seen = {}, None
            return {}
        if (now.st_mtime_ns, now.st_size, now.st_ino) != self._seen:
            entries = self._read_file()
            self._known = {one["hash"]: Caller(name, frozenset(one["roles"])) for name, one in entries.items()}
            self._seen = now.st_mtime_ns, now.st_size, now.st_ino
        return self._known

    def _read_file(self) -> Mapping[str, Any]:
        if self.path is None or not self.path.exists():
            return {}
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
            fits = ENVIRONMENT not in entries
            fits &= all(one["hash"].isascii() and all(is_role(role) for role in one["roles"]) for one in entries.values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise _unreadable(self.path, str(problem)) from problem
        if not fits:
            raise _unreadable(self.path, notice("users.entry", "an entry has an unknown role, no hash, or a reserved name"))
        return entries  # type: ignore[no-any-return]

    def _write(self, entries: Mapping[str, Any]) -> None:
        if self.path is None:
            raise ConfigError.of("users.no_file", "these users have no file to be stored in: pass one with Users(path)")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_private(self.path, entries)


def write_private(path: Path, entries: Mapping[str, Any]) -> None:
    """Write JSON to a file that only its user can read. After a crash, it is the old one or the new one."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(entries, file, indent=1, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _may_exist(path: Path) -> bool:
    """Return False only if the file certainly does not exist. A folder that cannot be read may hold it."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _unreadable(path: Path, why: str) -> ConfigError:
    return ConfigError.of("users.unreadable", "the users in {path} cannot be read: {why}", path=str(path), why=why)


def hash_token(token: str) -> str:
    """Return the hash of a token. A fast hash is enough: tokens are long and random and cannot be guessed."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
