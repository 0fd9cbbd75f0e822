"""Find the files of a conversation: the media of its messages and of its results, by their names or numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from unicodedata import normalize

from ..errors import AgentError
from ..messages import Media, Message, ToolResult
from ..state import State


def files_of(state: State) -> list[Media]:
    """Return the files of a conversation that hold data, the oldest first, also those of messages summarised since.

    The result of a call belongs to it once all calls of the same reply have their results. So a name means the same file from
    the moment of a call on: a person who is asked about the call sees the file that the tool gets.
    """
    found = [one for message in (*state.filed, *state.messages) for one in media_of(message)]
    return [one for one in found if one.data]


def media_of(message: Message) -> Iterable[Media]:
    """Return the media of a message: its own, and those of results."""
    for part in message.parts:
        if isinstance(part, Media):
            yield part
        elif isinstance(part, ToolResult):
            yield from part.media


def named_files(state: State) -> dict[str, Media]:
    """Return the files by name. The newest of a name counts; a file without a name has its number: "1" is the first."""
    return {one.name or str(number): one for number, one in enumerate(files_of(state), 1)}


def find_file(state: State, wanted: str) -> Media | None:
    """Return the newest file with that name, or the file with that number; None if there is none."""
    files, name = files_of(state), normalize("NFC", wanted.strip())  # some systems write が as two characters
    for one in reversed(files):
        if one.name and normalize("NFC", one.name) == name:
            return one
    number = name.removeprefix("#")
    return files[int(number) - 1] if number.isdecimal() and 0 < int(number) <= len(files) else None


def no_such_file(state: State, wanted: str) -> AgentError:
    """Return the error that names the files that there are."""
    known = ", ".join([f"{number} {one.name or one.mime}" for number, one in enumerate(files_of(state), 1)]) or "none"
    return AgentError.of(
        "senses.no_file",
        "there is no file {wanted!r} in this conversation. Its files: {names}",
        wanted=wanted,
        names=known,
    )


def require_file(state: State, wanted: str) -> Media:
    """Return a file by its name or number. Raises `AgentError` with the names of those that there are."""
    if (found := find_file(state, wanted)) is None:
        raise no_such_file(state, wanted)
    return found


def files_in_arguments(state: State, arguments: Mapping[str, Any]) -> dict[str, list[Media]]:
    """Return the files of the conversation that arguments name, by the name of the argument: a text, or a list of texts."""
    found: dict[str, list[Media]] = {}
    for argument, value in arguments.items():
        given = [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, str)]
        files = [file for one in given if not one.strip().isdecimal() and (file := find_file(state, one)) is not None]
        found |= {argument: files} if files else {}
    return found
