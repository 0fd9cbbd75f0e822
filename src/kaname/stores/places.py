"""The place of a journal, as users write it: a path, the URL of a database, or `memory`."""

from __future__ import annotations

import re

MEMORY = ("memory", ":memory:")


def is_server(place: str) -> bool:
    """Return True if a journal is in a PostgreSQL database, so that its place is a URL and not a path."""
    return place.startswith(("postgresql://", "postgres://"))


def is_file(place: str) -> bool:
    """Return True if a journal is a file on this machine."""
    return place not in MEMORY and not is_server(place)


def shown_place(place: str) -> str:
    """Return the place of a journal without a password."""
    return re.sub(r"([?&]password=)[^&]*", r"\1***", re.sub(r"(://[^:/?#@]*):[^/?#]*@", r"\1@", place))
