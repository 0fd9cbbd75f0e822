"""Erase a user from a journal: what is counted, and how the facts of runs change that stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..core.codec import decode_body, dump, encode_body
from ..core.events import Answered, Compacted, Custom, Interjected, Opened
from ..core.people.answers import NO, YES
from ..core.record import replace
from ..core.runs import EVALUATION, SHARED
from .sqlite.protection.sealing import ERASED_TEXT, erased_fact

SAID = (Answered.__name__, Interjected.__name__, Opened.__name__)  # the facts that name a person who did something in a run
_SHORTEST = 3  # characters of an answer that is looked for in the other facts of a run


class Erased(NamedTuple):
    """Count what was erased from a journal.

    `runs`: deleted runs. `kept`: runs that stay as placeholders, because runs of other people continue from them. `answers`:
    facts in other people's runs that named the user. `accounts`: accounts of budgets. `copies`: files that `backup` made.
    `pending`: files in which deleted text can still be read, because another process uses them, each with the reason.
    """

    runs: int = 0
    kept: int = 0
    answers: int = 0
    accounts: int = 0
    copies: tuple[str, ...] = ()
    pending: tuple[tuple[str, str], ...] = ()


class Footprint(NamedTuple):
    """Name what a journal holds of a user.

    `runs`: the ids of the runs, with those inside them, and of evaluations with the user's words. `sessions`: the names of
    their own sessions. `texts`: what the user answered in other people's runs. `tried`: the users of attempts in evaluations.
    """

    runs: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


HEADERS = """SELECT f.run, f.body FROM {0}facts AS f JOIN {0}runs AS r ON r.run = f.run
WHERE r.agent = 'evaluation' AND f.type = 'Custom' AND f.body LIKE '%"people":%'"""


def evaluations_with(user: str, headers: Iterable[tuple[str, str]]) -> set[str]:
    """Return how the ids of runs begin that hold words of the user for an evaluation. `headers`: facts that say so."""
    found = set[str]()
    for run, body in headers:
        fact = decode_body(Custom.__name__, body)
        told = fact.data if isinstance(fact, Custom) and fact.name == EVALUATION else None
        if isinstance(told, Mapping) and user in told.get("people", ()):
            found |= {run, *told.get("runs", ())}
    return found


def blank_fact(alias: str, seq: int, kind: str, body: str) -> tuple[str, str]:
    """Replace a fact by one that says nothing; the first one still says where the run belongs, but not whose it is."""
    if kind != Opened.__name__:
        return encode_body(erased_fact(kind))
    opened = decode_body(kind, body)
    assert isinstance(opened, Opened)
    session = opened.session if opened.session.startswith(SHARED) else ""
    return encode_body(replace(opened, user=alias, session=session, trace="", by=""))


def without_summary(kind: str, body: str) -> str | None:
    """Return the body of a fact without the summary of a conversation, which may tell what the user said; None without one."""
    if kind != Compacted.__name__:
        return None
    fact = decode_body(kind, body)
    assert isinstance(fact, Compacted)
    return encode_body(replace(fact, summary=ERASED_TEXT))[1]


def answers_by(user: str, kind: str, body: str) -> set[str] | None:
    """Return what the user said in a fact: an answer, a message to the run, or nothing where the user started it for
    another; None if it is not by this user."""
    fact = decode_body(kind, body) if kind in SAID else None
    if not isinstance(fact, Answered | Interjected | Opened) or fact.by != user:
        return None
    if isinstance(fact, Opened):
        return set()
    return set(_texts(fact.answer if isinstance(fact, Answered) else fact.message.text))


def _texts(answer: Any) -> Iterator[str]:
    """Return the texts of an answer; not a plain yes or no."""
    if isinstance(answer, str):
        yield from [answer] if answer not in (YES, NO) and len(answer) >= _SHORTEST else []
    elif isinstance(answer, Mapping):
        yield from [text for one in answer.values() for text in _texts(one)]
    elif isinstance(answer, list):
        yield from [text for one in answer for text in _texts(one)]


def without_answer(user: str, alias: str, texts: Iterable[str], kind: str, body: str) -> str | None:
    """Return the body of a fact without the user's answers and name; None if they are not in it."""
    changed = body
    for text in texts:
        changed = changed.replace(dump(text)[1:-1], ERASED_TEXT)
    if answers_by(user, kind, changed) is not None:
        fact = decode_body(kind, changed)
        assert isinstance(fact, Answered | Interjected | Opened)
        changed = encode_body(replace(fact, by=alias))[1]
    return None if changed == body else changed


def accounts_of(user: str, talks: Iterable[tuple[str, str]], runs: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the accounts of the user and of the user's runs and sessions. Accounts of agents and tools name nobody.

    `talks`: the sessions of the user, with their agents. `names`: all accounts.
    """
    mine = {("user", user), *[("session", f"{session}/{agent}/{user}") for session, agent in talks]}
    mine = {(scope, whose.replace("\x1f", "␟")) for scope, whose in mine} | {("run", one) for one in runs}
    return [name for name in names if (*name.split("\x1f")[:2],) in mine]
