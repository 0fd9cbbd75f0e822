"""Read the parts of an Office file (XML in a ZIP archive) and the relations between them."""

from __future__ import annotations

import posixpath
from typing import IO, Self
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zipfile import ZipFile

from ....core.notices import notice
from .base import Unreadable

_LARGEST = 20_000_000  # of one part, unpacked
_STRICT = {
    b"http://purl.oclc.org/ooxml/" + one: b"http://schemas.openxmlformats.org/" + one.replace(b"/", b"/2006/", 1)
    for one in (
        b"wordprocessingml/main",
        b"drawingml/main",
        b"presentationml/main",
        b"spreadsheetml/main",
        b"officeDocument/relationships",
    )
}
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


class _TransitionalXml:
    """A part of an archive, with the namespaces of the strict form (ISO 29500) replaced by the usual, transitional ones."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._head = file, True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        if self._head:
            self._head = False
            for strict, usual in _STRICT.items():
                data = data.replace(strict, usual)
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def open_part(archive: ZipFile, name: str, largest: int = _LARGEST) -> _TransitionalXml:
    if archive.getinfo(name).file_size > largest:
        raise Unreadable(
            notice("search.entry_too_large", "{name} is larger than {value} MB", name=name, value=largest // 10**6)
        )
    return _TransitionalXml(archive.open(name))


def part(archive: ZipFile, name: str) -> Element:
    with open_part(archive, name) as file:
        return ElementTree.fromstring(file.read(_LARGEST + 1))


def relations_of(archive: ZipFile, name: str) -> dict[str, tuple[str, str]]:
    """Return the parts that a part refers to: by id, the kind and the name of the part."""
    folder, file = posixpath.split(name)
    relations = f"{folder}/_rels/{file}.rels"
    if relations not in archive.namelist():
        return {}
    found = {}
    for one in part(archive, relations):
        target = posixpath.normpath(posixpath.join("/", folder, one.get("Target", ""))).lstrip("/")
        if target in archive.namelist():
            found[one.get("Id", "")] = (posixpath.basename(one.get("Type", "")), target)
    return found


def list_parts(archive: ZipFile, name: str, tag: str) -> list[tuple[Element, str]]:
    """Return the slides or sheets that a part lists, in order, each with the name of its own part."""
    parts = relations_of(archive, name)
    listed = [(one, parts.get(one.get(_RELATION, ""))) for one in part(archive, name).iter(tag)]
    return [(one, found[1]) for one, found in listed if found is not None]
