"""A memory as a value: its versions over time, and how a new one is put in order with those that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nextafter
from typing import NamedTuple

KINDS = ("fact", "preference", "decision", "said", "profile")


class Remembered(NamedTuple):
    """One version. `about`: what it is about, if only one can hold at a time (`home`). `said`, `ended`: from when until when it
    held; `ended` is 0 as long as it does. `run`: where it comes from, empty if a person wrote it.

    `kind`: a fact, a preference or a decision; `said`, the user's own words, of which nobody has judged whether they still
    hold; `profile`, how the user wants to be answered."""

    id: int
    chain: int
    text: str
    kind: str = "fact"
    about: str = ""
    said: float = 0.0
    ended: float = 0.0
    run: str = ""


class Recalled(NamedTuple):
    """A memory that was found: the version that holds (or held at the time asked for), and those before it, newest first."""

    memory: Remembered
    before: tuple[Remembered, ...] = ()
    score: float = 0.0


Later = Callable[[Remembered], bool]


def in_order(when: float, others: Sequence[Remembered], later: Later | None) -> float:
    """Return `when`, moved as far as its place in the order wants it: after what is older, before what is newer."""
    newer = [one.said for one in others if later is not None and later(one)]
    older = [one.said for one in others if later is None or not later(one)]
    return min([max([when, *older]), *[nextafter(one, 0.0) for one in newer]])
