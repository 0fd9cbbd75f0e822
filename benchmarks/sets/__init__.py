"""Load the sets of questions that stand in this folder: long dialogues, and documents that are asked about in other words."""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
_BETWEEN = (8, 15)  # turns of small talk between two exchanges, as randrange takes them


class Dialogue(NamedTuple):
    """A long conversation. `questions`: what is asked in other words, and the number of the turn that answers it;
    `plain`: the same, in words that were used."""

    name: str
    language: str
    held_out: bool
    turns: list[str]
    questions: list[tuple[str, int]]
    plain: list[tuple[str, int]]


def _sections(name: str) -> Iterator[tuple[str, list[str]]]:
    lines = [line for line in (FOLDER / name).read_text("utf-8").splitlines() if line and not line.startswith("#")]
    starts = [place for place, line in enumerate(lines) if line.startswith("@ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield lines[start].removeprefix("@ "), lines[start + 1 : end]


def dialogues() -> Iterator[Dialogue]:
    """Two conversations a language, about 400 turns each; the second one of each language is held out: nothing is tuned on it."""
    talk = dict(_sections("small_talk.txt"))
    for language in ("en", "ja"):
        for number, (names, exchanges) in enumerate(_sections(f"dialogues_{language}.txt")):
            rng = random.Random(f"{language}{number}")
            speakers = names.split(", ")
            turns: list[str] = []
            questions: list[tuple[str, int]] = []
            plain: list[tuple[str, int]] = []
            for line in exchanges:
                who, before, told, asked, simply = line.split(" | ")
                other = next(name for name in speakers if name != who)
                turns += _small_talk(talk, language, speakers, rng)
                turns += [f"{other}: {before}", f"{who}: {told}"]
                questions.append((asked, len(turns) - 1))
                plain.append((simply, len(turns) - 1))
            yield Dialogue(names, language, number == 1, turns, questions, plain)


def _small_talk(talk: dict[str, list[str]], language: str, speakers: list[str], rng: random.Random) -> Iterator[str]:
    for _ in range(rng.randrange(*_BETWEEN)):
        who, other = rng.sample(speakers, 2)
        yield f"{who}: " + rng.choice(talk[language]).format(topic=rng.choice(talk[f"topics {language}"]), other=other)


class Fact(NamedTuple):
    """What a user told, and two questions for it: alone, and among other sentences. `by_name`: it tells of the user by name."""

    text: str
    asked: str
    among: str
    by_name: bool
    held_out: bool


def facts(language: str) -> tuple[list[Fact], list[tuple[str, bool]]]:
    """Facts of a user, and questions that have nothing to do with them. Half of each is held out, by a hash of the English line:
    the lines of the two languages resemble each other, so they are in the same half."""
    english, own = dict(_sections("facts_en.txt")), dict(_sections(f"facts_{language}.txt"))
    held = {kind: [sha256(line.split(" | ")[0].encode()).digest()[-1] % 2 == 1 for line in english[kind]] for kind in english}
    told = [
        Fact(*line.split(" | "), kind == "by name", out)
        for kind in ("own words", "by name")
        for line, out in zip(own[kind], held[kind], strict=True)
    ]
    return told, list(zip(own["off topic"], held["off topic"], strict=True))


class Document(NamedTuple):
    """`questions`: what is asked in other words, and some words of the sentence that answers it."""

    title: str
    text: str
    questions: list[tuple[str, str]]


def documents() -> list[Document]:
    found: list[Document] = []
    for line in (FOLDER / "documents.txt").read_text("utf-8").splitlines():
        if line.startswith("= "):
            found.append(Document(line[2:], "", []))
        elif line.startswith("? "):
            question, _, answer = line[2:].partition(" | ")
            found[-1].questions.append((question, answer))
        elif line and not line.startswith("#"):
            found[-1] = found[-1]._replace(text=found[-1].text + line + "\n\n")
    return found
