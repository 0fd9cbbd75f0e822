"""Erase a user from a journal: runs, titles, snapshots, accounts, and the user's name in runs of other people.

A run that other people's runs continue from stays as a row of placeholders: its facts say nothing any more, and theirs remain.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from ..core.codec import decode_body, dump, encode_body
from ..core.errors import RunBusy
from ..core.events import Answered, Compacted, Custom, Interjected, Opened
from ..core.people.answers import NO, YES
from ..core.record import replace
from ..core.runs import EVALUATION, EVALUATION_PREFIX, SHARED
from .refusals import busy_text
from .removal import DEPENDENT, INSIDE, look, relatives, remove
from .rows import ERASED_TEXT, erased_fact, fact_sum
from .sql import Content, Many, Steps

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


_HEADERS = """
SELECT f.run, f.body FROM kaname.facts AS f JOIN kaname.runs AS r ON r.run = f.run
WHERE r.agent = 'evaluation' AND f.type = 'Custom' AND f.body LIKE '%"people":%'
"""
_ATTEMPTS = "SELECT run FROM kaname.runs WHERE run = $1 OR (run >= $2 AND run < $3)"
_FACTS = "SELECT run, seq, time, agent, type, body, sum FROM kaname.facts WHERE run = $1 ORDER BY seq"
_REWRITE = "UPDATE kaname.facts SET type = $3, body = $4, sum = $5 WHERE run = $1 AND seq = $2"
_SESSIONS = "SELECT DISTINCT session, agent FROM kaname.runs WHERE \"user\" = $1 AND session <> ''"
Changed = tuple[str, str] | None
"""The new type and body of a fact; None leaves it as it is."""


def evaluations_with(user: str, headers: Iterable[tuple[str, str]]) -> set[str]:
    """Return the ids, and the beginnings of ids, of runs of evaluations that contain the user's words.

    `headers`: the ids of the evaluations, and the bodies of the facts that describe them.
    """
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
    """Return the texts that the user wrote in a fact: an answer or a message to the run. The set is empty if the fact only
    says that the user started the run for another user. Return None if the fact is not by this user."""
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


def find_user(content: Content, user: str) -> Steps[Footprint]:
    """Return the runs, sessions and texts of a user. Raises `RunBusy` if a process executes one of the runs."""
    runs = yield from _family(content, user)
    sessions = {session for session, _ in (yield _SESSIONS, user) if not session.startswith(SHARED)}
    texts = {text for found in (yield from _answers(content, user)).values() for text in found}
    users = yield 'SELECT DISTINCT "user" FROM kaname.runs WHERE run = ANY($1::text[])', runs
    tried = [one for (one,) in users if one.startswith(EVALUATION_PREFIX)]
    return Footprint(tuple(runs), tuple(sessions), tuple(texts), tuple(tried))


def erase(content: Content, user: str) -> Steps[Erased]:
    """Erase a user from the tables, in one transaction. Raises `RunBusy` if a process executes one of the runs."""
    doomed = yield from _family(content, user)
    needed, later = yield from _dependants(doomed)
    talks = [tuple(row) for row in (yield _SESSIONS, user)]
    names = yield ("SELECT name FROM kaname.accounts UNION SELECT name FROM kaname.reservations",)
    accounts = accounts_of(user, talks, doomed, [name for (name,) in names])
    for table in ("accounts", "reservations"):
        yield Many(f"DELETE FROM kaname.{table} WHERE name = $1", [(name,) for name in accounts])
    alias = f"erased-{secrets.token_hex(6)}"
    for run in needed:
        yield from rewrite_facts(run, partial(blank_fact, alias))
    yield from content.erase_own(user, alias, needed)
    yield "DELETE FROM kaname.snapshots WHERE run = ANY($1::text[])", [*needed, *later]
    yield "DELETE FROM kaname.digests WHERE run = ANY($1::text[])", needed
    for run in later:  # a summary of the conversation may tell what the user said
        yield from _rewrite_plain(content, run, without_summary)
    yield from remove(content, [one for one in doomed if one not in needed])
    yield 'DELETE FROM kaname.queue WHERE "user" = $1', user
    yield from _erase_waiting(content, user, alias, needed)
    answers = yield from _answers(content, user)
    for run, texts in answers.items():
        yield from _rewrite_plain(content, run, partial(without_answer, user, alias, texts))
    yield "DELETE FROM kaname.snapshots WHERE run = ANY($1::text[])", list(answers)
    return Erased(len(doomed) - len(needed), len(needed), len(answers), len(accounts))


def _family(content: Content, user: str) -> Steps[list[str]]:
    """Return the runs of a user, those inside them, and evaluations of the user's words. Lock them in a transaction."""
    doomed = [run for (run,) in (yield 'SELECT run FROM kaname.runs WHERE "user" = $1', user)]
    for one in sorted(evaluations_with(user, (yield (_HEADERS,)))):
        doomed += [run for (run,) in (yield _ATTEMPTS, one, f"{one}-", f"{one}.")]  # "." follows "-"
    doomed = new = list(dict.fromkeys(doomed))
    while new:
        children = yield from relatives(INSIDE, new)
        new = [child for one in children.values() for child in one if child not in doomed]
        doomed = [*doomed, *new]
    for run, row in (yield from look(doomed, lock=True)).items():
        if row[4]:
            raise RunBusy(busy_text(run, content.describe(row[1])))
    return doomed


def _dependants(doomed: list[str]) -> Steps[tuple[list[str], list[str]]]:
    """Return the runs of the user that other people's runs continue from, and those runs, with all that follow."""
    mine, bases, new = set(doomed), dict[str, str](), doomed
    while new:
        found = yield from relatives(DEPENDENT, new)
        follow = {other: one for one, others in found.items() for other in others if other not in mine and other not in bases}
        bases |= follow
        new = list(follow)
    needed, above = set[str](), set(bases.values())
    while above - needed:
        rows = yield "SELECT base FROM kaname.runs WHERE run = ANY($1::text[])", sorted(above - needed)
        needed |= above
        above = {base for (base,) in rows if base}
    return [one for one in doomed if one in needed], list(bases)


def _answers(content: Content, user: str) -> Steps[dict[str, set[str]]]:
    """Return the runs in which the user answered questions or said something, each with the texts."""
    found: dict[str, set[str]] = {}
    for run, seq, kind, body in (
        yield "SELECT run, seq, type, body FROM kaname.facts WHERE type = ANY($1::text[])", list(SAID)
    ):
        plain = content.plain_body(run, seq, kind, body)
        texts = None if plain is None else answers_by(user, kind, plain)
        if texts is not None:
            found.setdefault(run, set()).update(texts)
    return found


def _erase_waiting(content: Content, user: str, alias: str, needed: list[str]) -> Steps[None]:
    """Delete messages that no run has taken in, approvals for the user, and the user's name in approvals for others."""
    gone = []
    for id, body in (yield ("SELECT id, body FROM kaname.inbox",)):
        said = content.open(body, id)
        if not said or answers_by(user, Interjected.__name__, said) is not None:
            gone.append(id)
    yield "DELETE FROM kaname.inbox WHERE id = ANY($1::text[]) OR run = ANY($2::text[])", gone, needed
    yield 'DELETE FROM kaname.grants WHERE "user" = $1', user
    yield "UPDATE kaname.grants SET by = $2 WHERE by = $1", user, alias


def rewrite_facts(run: str, change: Callable[[int, str, str], Changed]) -> Steps[None]:
    """Call `change` with the number, the type and the body of every fact of a run, and store what it returns.

    A fact that does not match its checksum stays as it is.
    """
    made = []
    for name, seq, time, agent, kind, body, total in (yield _FACTS, run):
        changed = change(seq, kind, body) if fact_sum(name, seq, time, agent, kind, body) == total else None
        if changed is not None and changed != (kind, body):
            made.append((name, seq, *changed, fact_sum(name, seq, time, agent, *changed)))
    yield Many(_REWRITE, made)


def _rewrite_plain(content: Content, run: str, change: Callable[[str, str], str | None]) -> Steps[None]:
    """Rewrite facts by a change of their bodies, which may be encrypted."""

    def change_stored(seq: int, kind: str, body: str) -> Changed:
        plain = content.plain_body(run, seq, kind, body)
        changed = None if plain is None else change(kind, plain)
        return None if changed is None else (kind, content.stored_body(run, seq, kind, changed, body))

    yield from rewrite_facts(run, change_stored)
