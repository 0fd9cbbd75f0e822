"""The keys of users in the database: each is wrapped with the key of the installation, which never leaves the process.

The key without a user is the database's own: it seals what belongs to nobody, and shows whether the key of the installation
is the right one. A transaction that writes with a key holds its row fast, so that an erasure comes before it or after it.
Everything here runs in the event loop of the journal's thread.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ...core.codec import encode_body
from ...core.encryption.database import missing_key, require_cipher, wrong_key
from ...core.encryption.keys import MasterKey, key_for_servers, read_key_file
from ...core.encryption.user_keys import ID_LENGTH, SEALED, ErasedKey, UserKey, erased_key
from ...core.errors import ConfigError, EncryptionError
from ...core.runs import RunInfo
from ..media import Medium
from ..rows import ERASED_TEXT, erased_fact, fact_sum
from ..sealing import TITLE, Seal, fact_place
from .address import Address
from .connections import Connection, Statement
from .errors import code_of
from .schema import MIGRATIONS, SEALED_ONLY, Sql

T = TypeVar("T")
_LIFETIME = 10.0  # seconds for which a process uses a key that it has read, before it looks whether it is still there
_FORGOTTEN = 60.0  # seconds after which it does not have the key any more
_TRIES = 5
_NONCE = 12  # bytes
_OWN = "SELECT id, secret FROM kaname.keys WHERE owner = ''"
_BY_ID = "SELECT id, owner, secret FROM kaname.keys WHERE id = ANY($1::text[])"
_BY_OWNER = "SELECT id, owner, secret FROM kaname.keys WHERE owner = ANY($1::text[])"
_ADD = "INSERT INTO kaname.keys SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[]) ON CONFLICT DO NOTHING"
_HOLD = "SELECT id FROM kaname.keys WHERE id = ANY($1::text[]) AND owner IS NOT NULL ORDER BY id FOR SHARE"
_ALL = "SELECT id, owner, secret FROM kaname.keys WHERE owner IS NOT NULL"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
LOCK_KEY = "SELECT 1 FROM kaname.keys WHERE owner = $1 FOR UPDATE"
# The users of attempts in evaluations, with their last run: the name of the case is in theirs.
DESTROY_TRIED = """
UPDATE kaname.keys AS k SET owner = NULL, secret = NULL
WHERE owner IN (SELECT "user" FROM kaname.runs WHERE run = ANY($1::text[]) AND starts_with("user", $2))
    AND NOT EXISTS (SELECT 1 FROM kaname.runs AS o WHERE o."user" = k.owner AND o.run <> ALL($1::text[]))
"""
DESTROY = "UPDATE kaname.keys SET owner = NULL, secret = NULL WHERE owner = $1 AND owner <> ''"


class KeyWanted(Exception):
    """A key is not known here, or it is gone: the work is repeated after the keys of these users were read."""

    def __init__(self, *users: str) -> None:
        super().__init__("texts must be sealed inside of the work that `read` or `write` does: keys are read there")
        self.users = users


class Keys:
    """The keys of one database, as this process knows them. Without a key of the installation, nothing is encrypted."""

    def __init__(self, address: Address, sql: Sql) -> None:
        self._address, self._sql, self._where = address, sql, address.shown
        self._known: dict[str, tuple[float, UserKey | None]] = {}  # by id, with the time; None if it was destroyed
        self._ids: dict[str, str] = {}  # by user
        self._swept = 0.0
        self.own: UserKey | None = None  # of the database, if it is encrypted
        self._master = self._read_master()
        if self._master is not None:
            require_cipher()
            if address.queue != "kaname":
                raise ConfigError.of(
                    "encryption.queue",
                    "the tables of Procrastinate are not encrypted. Remove queue={queue} from the URL of the journal {path}",
                    queue=address.queue,
                    path=self._where,
                )

    def _read_master(self) -> MasterKey | None:
        file = self._address.key_file
        return key_for_servers() if file is None else read_key_file(Path(file)) if file else None

    # When the journal is opened

    async def prepare(self, connection: Connection) -> None:
        """Read the key of the database; encrypt an empty one. Raises `EncryptionError` if the key is not the right one."""
        row = await connection.fetchrow(self._sql(_OWN))
        if row is None and self._master is not None:
            row = await self._encrypt(connection)
        if row is None:
            return
        if self._master is None:
            raise missing_key(self._where)
        self.own = UserKey(row[0], self._unwrap(row[0], "", row[1])[0])

    async def _encrypt(self, connection: Connection) -> Any:
        """Encrypt a database without content. From then on, the server refuses every text that is not sealed."""
        import asyncpg

        assert self._master is not None
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '10s'")
                await connection.execute(_LOCK, f"kaname schema {self._sql.schema}")
                if (row := await connection.fetchrow(self._sql(_OWN))) is not None:
                    return row  # another process was first
                await connection.execute(self._sql(SEALED_ONLY))
                await connection.execute(self._sql(_ADD), *_new_keys([""], self._master.for_keys()[0]))
                await connection.execute(self._sql("UPDATE kaname.journal SET oldest = greatest(oldest, $1)"), len(MIGRATIONS))
        except asyncpg.PostgresError as problem:
            if code_of(problem) == "42710":  # it has the checks of an encrypted one already
                raise self._missing_row(self._sql.schema) from problem
            if code_of(problem) != "23514":
                raise
            raise EncryptionError.of(
                "encryption.plain_server",
                "{path} is not encrypted, but a key is set ({source}). Nothing was changed. Copy it to an encrypted one in "
                "another schema: kaname journal copy 'URL?key_file=' 'URL?schema=NAME'. An empty key_file= in its URL leaves "
                "it as it is.",
                path=self._where,
                source=self._master.source,
            ) from problem
        return await connection.fetchrow(self._sql(_OWN))

    def _unwrap(self, id: str, user: str, wrapped: bytes) -> tuple[bytes, bytes]:
        """Return the secret of a key, and the key that has wrapped it."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        assert self._master is not None
        for tried in range(2):
            for one in self._master.for_keys():
                with suppress(InvalidTag):
                    return AESGCM(one).decrypt(wrapped[:_NONCE], wrapped[_NONCE:], f"{id} {user}".encode()), one
            if not tried:
                self._master = self._read_master() or self._master  # it may have been changed meanwhile
        raise wrong_key(self._where, self._master)

    async def rotate(self, connection: Connection) -> None:
        """Wrap all keys with the current key of the installation. What they seal stays as it is."""
        if self._master is None:
            return
        wrapping = self._master.for_keys()[0]
        async with connection.transaction():
            await connection.execute(self._sql(f"{_OWN} FOR UPDATE"))  # before the others: nobody adds one meanwhile
            rows = await connection.fetch(self._sql(_ALL))
            made = [(row[0], _wrap(row[0], row[1], self._unwrap(*row)[0], wrapping)) for row in rows]
            await connection.executemany(self._sql("UPDATE kaname.keys SET secret = $2 WHERE id = $1"), made)

    # Keys that are needed

    async def provide(self, connection: Connection, users: Iterable[str]) -> None:
        """Read the keys of users. Those who have none get one, which is in the database before it is used."""
        wanted = {str.__str__(user) for user in users}  # an enum has another hash than its letters
        if not (missing := [user for user in wanted if user and self._of(user) is None]):
            return
        rows = await connection.fetch(self._sql(_BY_OWNER), missing)
        if new := sorted({*missing} - {row[1] for row in rows}):
            async with connection.transaction():
                id, secret = await connection.fetchrow(self._sql(f"{_OWN} FOR SHARE"))
                wrapping = self._unwrap(id, "", secret)[1]  # as it is now, should it be changed at this moment
                # Another process may be first: its key counts.
                await connection.execute(self._sql(_ADD), *_new_keys(new, wrapping))
            rows += await connection.fetch(self._sql(_BY_OWNER), new)
        self._note(rows)

    async def load(self, connection: Connection, rows: Iterable[Iterable[Any]]) -> None:
        """Read the keys that seal the texts in rows, if they are not known."""
        if self.own is None:
            return
        now = time.monotonic()
        ids = {value[1 : 1 + ID_LENGTH] for row in rows for value in row if isinstance(value, str) and value[:1] == SEALED}
        old = [id for id in ids - {self.own.id} if now - self._known.get(id, (-_LIFETIME, None))[0] >= _LIFETIME]
        if not old:
            return
        found = await connection.fetch(self._sql(_BY_ID), old)
        self._note(found)

    def _note(self, rows: Iterable[Any]) -> None:
        now = time.monotonic()
        if now - self._swept > _FORGOTTEN:
            self._swept, self._known = now, {id: one for id, one in self._known.items() if now - one[0] < _FORGOTTEN}
            self._ids = {user: id for user, id in self._ids.items() if id in self._known}
        for id, user, secret in rows:
            known = self._known.get(id, (0.0, None))[1]
            key = None if user is None else known or UserKey(id, self._unwrap(id, user, secret)[0])
            self._known[id] = (now, key)
            if user is not None:
                self._ids[user] = id

    def _of(self, user: str) -> UserKey | None:
        id = self._ids.get(str.__str__(user), "")
        return self._known.get(id, (0.0, None))[1] if user else self.own

    def of(self, user: str) -> UserKey:
        """Return the key of a user, which `provide` has read; that of the database without a user."""
        found = self._of(user)
        if found is None:
            raise KeyWanted(user)
        return found

    async def hold_fast(self, connection: Connection, ids: Collection[str]) -> None:
        """Keep these keys from being destroyed until the transaction ends. Raises `KeyWanted` if one is gone."""
        assert self.own is not None
        wanted = {*ids} - {self.own.id}
        if wanted and {row[0] for row in await connection.fetch(self._sql(_HOLD), list(wanted))} != wanted:
            self._ids.clear()
            raise KeyWanted

    def forget(self, user: str) -> None:
        """Forget the key of a user who is erased. Whether it is gone is looked up with the next use."""
        if (id := self._ids.pop(str.__str__(user), None)) is not None:
            self._known[id] = (-_LIFETIME, None)

    async def repeat(self, connection: Connection, work: Statement[T]) -> T:
        """Do the work; again if it needs keys that are not known yet, or that were destroyed meanwhile."""
        for _ in range(_TRIES):
            try:
                return await work(connection)
            except KeyWanted as wanted:
                await self.provide(connection, wanted.users)
        return await work(connection)

    @asynccontextmanager
    async def transaction(self, connection: Connection, users: Collection[str]) -> AsyncIterator[None]:
        """Begin a transaction that writes with the keys of these users. It is inside of `repeat`."""
        if self.own is not None:
            await self.provide(connection, users)
        async with connection.transaction():
            if self.own is not None:
                await self.hold_fast(connection, [self.of(user).id for user in users])
            yield

    # What is sealed with them

    def seal(self, user: str, text: str, place: str) -> str:
        return text if self._master is None else self.of(user).seal(text, place)

    def seal_of(self, user: str) -> Seal:
        return Seal(self.of(user), own=self.own)

    def seal_like(self, before: str, text: str, place: str) -> str:
        return self._key_of(before, place).seal(text, place) if before[:1] == SEALED else text

    def open(self, text: str, place: str) -> str:
        """Return a text that was stored. Raises `ErasedKey` if its user was erased."""
        return text if text[:1] != SEALED else self._key_of(text, place).unseal(text, place)

    def _key_of(self, text: str, place: str) -> UserKey:
        id = text[1 : 1 + ID_LENGTH]
        if self.own is not None and id == self.own.id:
            return self.own
        if id not in self._known:
            raise self._missing_row(place)
        if (key := self._known[id][1]) is None:
            raise erased_key(place)
        return key

    async def text(self, connection: Connection, text: str, place: str) -> str:
        """Return a text that was stored, or "" if its user was erased."""
        await self.load(connection, [[text]])
        try:
            return self.open(text, place)
        except ErasedKey:
            return ""

    def _missing_row(self, place: str) -> EncryptionError:
        return EncryptionError.of(
            "encryption.key_row_missing",
            "the key that {place!r} was encrypted with is not in the table {schema}.keys of {path}. Restore this table "
            "from a backup.",
            place=place,
            schema=self._sql.schema,
            path=self._where,
        )

    def card(self, row: Sequence[Any]) -> RunInfo:
        values = list(row)
        try:
            values[TITLE] = self.open(values[TITLE], values[0])
        except ErasedKey:
            values[TITLE] = ERASED_TEXT
        return RunInfo(*values)

    async def facts(self, connection: Connection, rows: list[Any]) -> list[Any]:
        """Return rows of facts with their texts opened. A row that does not match its checksum stays as it is."""
        await self.load(connection, rows)
        return rows if self.own is None else [self._fact(row) for row in rows]

    def _fact(self, row: Any) -> Any:
        run, seq, when, agent, kind, body, total = row[:7]
        if not body or body[:1] != SEALED or fact_sum(run, seq, when, agent, kind, body) != total:
            return row
        try:
            body = self.open(body, fact_place(run, seq, kind))
        except ErasedKey:
            kind, body = encode_body(erased_fact(kind))
        return (run, seq, when, agent, kind, body, fact_sum(run, seq, when, agent, kind, body), *row[7:])

    def seal_whole(self, user: str, text: str, media: Sequence[Medium], place: str) -> tuple[str, Sequence[Medium]]:
        """Return a text with its media as they are stored."""
        if self.own is None:
            return text, media
        text, media = seal_media(self.of(user), text, media)
        return self.of(user).seal(text, place), media

    async def media(self, connection: Connection, rows: Sequence[Any]) -> dict[tuple[str, str], bytes]:
        """Return the contents of media by run and hash. Those of an erased user are left out."""
        if self.own is None:
            return {(run, hash): content for run, hash, content in rows}
        head = 1 + ID_LENGTH
        named = [(run, hash, bytes(content[:head]).decode(), bytes(content[head:])) for run, hash, content in rows]
        await self.load(connection, named)
        found = {}
        for run, hash, id, content in named:
            try:
                found[run, hash] = self._key_of(id, hash).unseal_bytes(content, hash)
            except ErasedKey:
                continue
        return found


def _new_keys(users: Sequence[str], wrapping: bytes) -> list[list[Any]]:
    """Return the columns of new keys."""
    ids = [secrets.token_hex(ID_LENGTH // 2) for _ in users]
    return [ids, [*users], [_wrap(id, user, secrets.token_bytes(32), wrapping) for id, user in zip(ids, users, strict=True)]]


def _wrap(id: str, user: str, secret: bytes, wrapping: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE)
    return nonce + AESGCM(wrapping).encrypt(nonce, secret, f"{id} {user}".encode())


def seal_media(key: UserKey, text: str, media: Sequence[Medium]) -> tuple[str, list[Medium]]:
    """Seal media for their user, under names that do not tell what they are, and put these into the text that has them."""
    sealed = []
    for one in media:
        name = key.mark(one.hash)
        text = text.replace(f'"stored":"{one.hash}"', f'"stored":"{name}"')
        sealed.append(Medium(name, f"{SEALED}{key.id}".encode() + key.seal_bytes(one.content, name), one.mime, ""))
    return text, sealed
