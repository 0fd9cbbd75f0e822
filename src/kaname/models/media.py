"""Media in tool results: a medium that the provider does not accept is replaced by its name."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.messages import Media, Text


def as_takeable(media: Media, taken: Sequence[str]) -> Media | Text:
    """Return the medium if its type begins with one of these, else a text that names it."""
    if media.url or media.mime.startswith(tuple(taken)):
        return media
    named = f" {media.name}" if media.name else ""
    return Text(f"[{media.mime}{named}: not shown, for this model takes none]")
