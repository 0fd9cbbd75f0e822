"""Media of runs in the database: each content once, by its SHA-256, and a row for each run that uses it.

A run can read only what it has stored itself. Rows of media are locked while a run begins to use them, and before one that no
run uses is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..media import Medium, attach_media, hashes_in
from ..sql import Steps
from .connections import Connection
from .schema import Sql

Held = Mapping[tuple[str, str], bytes]
"""Contents by run and hash."""

_KNOWN = "SELECT hash FROM kaname.media WHERE hash = ANY($1::text[]) ORDER BY hash FOR KEY SHARE"
_STORE = """
INSERT INTO kaname.media SELECT * FROM unnest($1::text[], $2::bytea[])
ON CONFLICT (hash) DO UPDATE SET hash = EXCLUDED.hash
"""
_USE = """
INSERT INTO kaname.uses SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int8[]) ON CONFLICT DO NOTHING
"""
_READ = """
SELECT u.run, u.hash, m.content FROM unnest($1::text[], $2::text[]) AS g(run, hash)
JOIN kaname.uses AS u USING (run, hash) JOIN kaname.media AS m ON m.hash = u.hash
"""
_LEAVE = "DELETE FROM kaname.uses WHERE run = ANY($1::text[]) RETURNING hash"
_LOCK = "SELECT hash FROM kaname.media WHERE hash = ANY($1::text[]) ORDER BY hash FOR UPDATE"
_DELETE = """
DELETE FROM kaname.media AS m WHERE hash = ANY($1::text[]) AND NOT EXISTS (SELECT 1 FROM kaname.uses AS u WHERE u.hash = m.hash)
"""


async def store(connection: Connection, sql: Sql, found: Sequence[tuple[str, Medium]]) -> None:
    """Store media of runs, in the transaction that writes the facts with their hashes."""
    contents = {medium.hash: medium.content for _, medium in found}
    known = {row[0] for row in await connection.fetch(sql(_KNOWN), list(contents))}
    if new := sorted(contents.keys() - known):
        await connection.execute(sql(_STORE), new, [contents[hash] for hash in new])
    rows = {(run, one.hash): (run, one.hash, one.mime, one.name, len(one.content)) for run, one in found}
    await connection.execute(sql(_USE), *map(list, zip(*rows.values(), strict=True)))


async def read(connection: Connection, sql: Sql, texts: Iterable[tuple[str, str]]) -> Held:
    """Return the media that belong into the texts of runs."""
    wanted = [(run, hash) for run, text in texts for hash in hashes_in(text)]
    if not wanted:
        return {}
    rows = await connection.fetch(sql(_READ), [run for run, _ in wanted], [hash for _, hash in wanted])
    return {(run, hash): content for run, hash, content in rows}


def attach(held: Held, run: str, text: str) -> str:
    return attach_media(text, lambda hash: held.get((run, hash)))


def remove_media(runs: Sequence[str]) -> Steps[None]:
    """Remove the media of these runs, except for those that other runs use, too."""
    if hashes := [row[0] for row in (yield _LEAVE, list(runs))]:
        yield _LOCK, hashes
        yield _DELETE, hashes  # a statement of its own: it sees what was committed meanwhile
