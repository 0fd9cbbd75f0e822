"""Master keys: where they come from, and which files they belong to. A key is never logged and has no readable form.

A source can hold several keys, the current one first: during a rotation the older ones still open what was not converted yet.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..errors import EncryptionError
from ..install import install_command, this_command

KEY, KEY_FILE = "KANAME_KEY", "KANAME_KEY_FILE"
SERVICE = "kaname"  # the name of kaname's entries in a keyring
_FORM = re.compile(r"[0-9a-fA-F]{64}")
_FOR_FILES, _FOR_VALUES = b"kaname files 1", b"kaname values 1"


class MasterKey:
    """A master key with the older ones that are still in use. `source`: where it comes from, in words."""

    __slots__ = ("_secrets", "file", "source")

    def __init__(self, secrets: Iterable[str], source: str, file: Path | None = None) -> None:
        self._secrets = tuple([bytes.fromhex(one) for one in secrets])
        self.source, self.file = source, file

    def __repr__(self) -> str:
        return f"<key from {self.source}>"

    @property
    def count(self) -> int:
        return len(self._secrets)

    def for_files(self) -> list[str]:
        """Return the keys of SQLite files in hexadecimal form, the current one first."""
        return [_derive(one, _FOR_FILES).hex() for one in self._secrets]

    def for_values(self) -> list[bytes]:
        """Return the keys of values that a program encrypts by itself, the current one first."""
        return [_derive(one, _FOR_VALUES) for one in self._secrets]

    def current(self) -> MasterKey:
        """Return the current key without the older ones."""
        made = MasterKey((), self.source, self.file)
        made._secrets = self._secrets[:1]
        return made


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return hmac.digest(secret, purpose, "sha256")


Source = Callable[[], MasterKey]
_places: dict[str, Source] = {}  # folders and files, by their real paths; "" for all others


def key_for(path: str | Path) -> MasterKey | None:
    """Return the key of a file: that of the file or folder it was set for, else that of the environment, else None."""
    if _places:
        place = os.path.realpath(path)
        while True:
            if (source := _places.get(place)) is not None:
                return source()
            above = os.path.dirname(place)
            if above == place:
                break
            place = above
        if (source := _places.get("")) is not None:
            return source()
    if text := os.environ.get(KEY):
        return _parse(text, KEY)
    if file := os.environ.get(KEY_FILE):
        return read_key_file(Path(file))
    return None


def use_key(key_file: str | Path | None = None, *, keyring: str = "", places: Iterable[str | Path] | None = None) -> None:
    """Encrypt kaname's files with this key from now on. Files that exist must be converted first: `kaname encrypt`.

    Args:
        key_file: A file with the key, readable by its owner only.
        keyring: The name of the key in the keyring of the system, instead of a file.
        places: Folders and files to encrypt (default: all files of kaname that this process opens).
    """
    source = _source(key_file, keyring)
    for place in [""] if places is None else [os.path.realpath(os.path.expanduser(one)) for one in places]:
        _places[place] = source


def _source(key_file: str | Path | None, keyring: str) -> Source:
    if (key_file is None) == (not keyring):
        raise EncryptionError.of("encryption.one_source", "name either a key file or a key in the keyring")
    if key_file is None:
        return partial(read_keyring, keyring)
    return partial(read_key_file, Path(key_file).expanduser().absolute())


def files_of(journal: Path) -> tuple[Path, Path, Path]:
    """Return the file of a journal, the file with the keys of its users, and the file with its pictures and other media."""
    return journal, journal.with_name(journal.name + "-keys"), journal.with_name(journal.name + "-media")


def forget_keys() -> None:
    """Forget the keys that were set with `use_key`."""
    _places.clear()


def read_key_file(path: Path) -> MasterKey:
    """Read a key file. Raises `EncryptionError` if it is missing, readable by other users, or not a key."""
    path = path.expanduser()
    try:
        with path.open(encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(10_000)
    except (OSError, UnicodeDecodeError) as problem:
        raise EncryptionError.of(
            "encryption.no_key_file",
            "the key file {path} cannot be read ({problem}). Nothing was changed. Restore the file; for a new key, use: "
            "{kaname} encrypt --new-key",
            path=path,
            problem=getattr(problem, "strerror", None) or type(problem).__name__,
            kaname=this_command(),
        ) from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise EncryptionError.of(
            "encryption.open_key_file", "other users can read the key file {path}. Run: chmod 600 {path}", path=path
        )
    return _parse(text, str(path), path)


def read_keyring(name: str) -> MasterKey:
    """Read a key from the keyring of the system."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise EncryptionError.of(
            "encryption.no_keyring", "the keyring needs a package: {command}", command=install_command("keyring")
        ) from None
    try:
        text = keyring.get_password(SERVICE, name)
    except KeyringError as problem:
        raise EncryptionError.of(
            "encryption.keyring_failed",
            "the key {name!r} cannot be read from the keyring ({problem}). On a server, use a key file.",
            name=name,
            problem=type(problem).__name__,
        ) from None
    if not text:
        raise EncryptionError.of(
            "encryption.not_in_keyring",
            "the keyring holds no key {name!r}. Nothing was changed. Store it with: keyring set {service} {name}",
            name=name,
            service=SERVICE,
        )
    return _parse(text, f"keyring {name}")


def _parse(text: str, source: str, file: Path | None = None) -> MasterKey:
    found = text.split()
    if not found or not all(_FORM.fullmatch(one) for one in found):
        raise EncryptionError.of(
            "encryption.key_form",
            "{source} does not hold a key: a key has 64 hexadecimal digits. Create one with: {kaname} encrypt --new-key",
            source=source,
            kaname=this_command(),
        )
    return MasterKey(found, source, file)


def new_secret() -> str:
    return secrets.token_hex(32)


def create_key_file(path: Path) -> None:
    """Create a file with a new key. Raises `EncryptionError` if the file exists."""
    path = path.expanduser()
    if path.exists():
        raise EncryptionError.of("encryption.key_exists", "the key file {path} already exists; it was not replaced", path=path)
    write_key_file(path, [new_secret()])


def write_key_file(path: Path, keys: Iterable[str]) -> None:
    """Write a key file, or replace it: after a crash the old or the new one is whole."""
    from ..project import sync_folder

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write("".join([f"{one}\n" for one in keys]))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    sync_folder(path.parent)


def add_new_key(key: MasterKey) -> MasterKey:
    """Put a new key before the one of a key file, which stays until all files are converted. Return both."""
    assert key.file is not None
    write_key_file(key.file, [new_secret(), *[one.hex() for one in key._secrets]])
    return read_key_file(key.file)


def drop_old_keys(key: MasterKey) -> None:
    """Leave only the current key in the key file."""
    assert key.file is not None
    write_key_file(key.file, [key._secrets[0].hex()])
