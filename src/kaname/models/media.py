"""Media of tools' results: what a provider does not take is named in its place, and does not end the conversation."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.messages import Media, Text


def takeable(media: Media, taken: Sequence[str]) -> Media | Text:
    """The medium, if its kind begins like one of these; else a word on what it was."""
    if media.url or media.mime.startswith(tuple(taken)):
        return media
    named = f" {media.name}" if media.name else ""
    return Text(f"[{media.mime}{named}: not shown, for this model takes none]")
