"""The address of a PostgreSQL journal: the server's part, and kaname's own options in the query."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from ...core.errors import ConfigError
from ..places import shown_place

_OPTIONS = ("schema", "ttl", "patience", "connections", "pooler", "queue")


class Address(NamedTuple):
    """Where the journal is, and how this process uses it.

    `url` is for the server, `shown` is without the password. `schema`: the schema of the tables. `ttl`: seconds after which a
    silent process counts as dead. `patience`: seconds to wait for a server that is away. `connections`: how many connections
    read at the same time. `pooler`: "transaction" if a pooler such as PgBouncer gives each transaction another connection to
    the server; "none" if there is none; "" to find out. `queue`: "kaname" for its own queue of runs, or "procrastinate".
    """

    url: str
    shown: str
    schema: str = "kaname"
    ttl: float = 10.0
    patience: float = 30.0
    connections: int = 4
    pooler: str = ""
    queue: str = "kaname"


def parse_address(url: str) -> Address:
    """Return the address that a URL names. Raises `ConfigError` for an option with a wrong value."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in given if name in _OPTIONS}
    query = urlencode([(name, value) for name, value in given if name not in _OPTIONS])
    server = f"postgresql://{parts.netloc}{parts.path}" + (f"?{query}" if query else "")
    schema, pooler = ours.get("schema", "kaname"), ours.get("pooler", "")
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", schema):
        raise _wrong("schema", schema)
    if pooler not in ("", "none", "transaction"):
        raise _wrong("pooler", pooler)
    queue = ours.get("queue", "kaname")
    if queue not in ("kaname", "procrastinate"):
        raise _wrong("queue", queue)
    numbers = [_number(ours, name, least, usual) for name, least, usual in _NUMBERS]
    return Address(server, shown_place(url), schema, numbers[0], numbers[1], int(numbers[2]), pooler, queue)


_NUMBERS = (("ttl", 0.2, 10.0), ("patience", 0.0, 30.0), ("connections", 1.0, 4.0))


def _number(given: dict[str, str], name: str, least: float, usual: float) -> float:
    try:
        value = float(given.get(name, usual))
    except ValueError:
        raise _wrong(name, given[name]) from None
    if not least <= value < 1e6:
        raise _wrong(name, given[name])
    return value


def _wrong(name: str, value: str) -> ConfigError:
    return ConfigError.of(
        "journal.url_option",
        "{name}={value} in the URL of the journal is not possible. Options are: schema (a name in lower case), ttl "
        "(seconds, at least 0.2), patience (seconds), connections (at least 1), pooler (none or transaction), "
        "queue (kaname or procrastinate)",
        name=name,
        value=value,
    )
