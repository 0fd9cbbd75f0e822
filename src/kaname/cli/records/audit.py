"""`kaname audit`: list the entries of the audit log, and verify that none was changed."""

from __future__ import annotations

import argparse
import getpass
import json
from collections import deque

from ...kernel.ports import Journal
from ...serve.access.auditor import audit_in, require_audit
from ...stores.audit.chain import AuditEntry
from ...stores.audit.facts import FactFollower
from ...stores.audit.log import AuditLog
from ..last import take_last
from ..main import DONE, FAILED
from ..messages import say, translate
from ..place import config_for, journal_place, names_program
from ..terminal.screen import Screen

_SHOWN = 100  # entries of a list, unless -n says otherwise
_SOURCE = ("run", "fact", "at", "when")  # in the detail, and only of interest to programs
_ERASED = "erased", "消去済み"


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    if not args.file:
        take_last(args, screen)
    log = _log(args)
    if args.action == "verify":
        return _verify(log, args, screen)
    if args.action == "head":
        screen.say(str(log.head or ""))
        return DONE
    names = ("kind", "actor", "subject", "since", "until")
    found = log.entries(**{name: value for name in names if (value := getattr(args, name)) is not None})
    most = args.number or (None if args.json else _SHOWN)
    shown = deque(found, most)
    for entry in shown:
        screen.say(json.dumps(entry.as_json(), ensure_ascii=False) if args.json else _line(entry))
    if not args.json and not log.path.exists():
        screen.tell(f"no audit log yet: {log.path}", f"監査ログはまだありません: {log.path}")
    elif not args.json and not shown:
        screen.tell("no entries", "該当する記録はありません")
    return DONE


def _log(args: argparse.Namespace) -> AuditLog:
    if args.file:
        return AuditLog(args.file)
    config = None if names_program(args) else config_for(args)
    return require_audit(audit_in(config, journal_place(args)))


def _verify(log: AuditLog, args: argparse.Namespace, screen: Screen) -> int:
    broken, head = log.verify(args.head), log.head
    if args.json:
        found = [{"place": one.place, "time": one.time, "what": one.what} for one in broken]
        screen.say(json.dumps({"path": str(log.path), "head": str(head or ""), "broken": found}, ensure_ascii=False))
        return FAILED if broken else DONE
    for one in broken:
        screen.say(translate(one))
    if broken:
        number = len(broken)
        message = say(
            f"{log.path}: {number} breaks. The log was changed.",
            f"{log.path}: {number} か所で壊れています。ログは変更されました。",
        )
        screen.note(message, "red")
        return FAILED
    number = 0 if head is None else head.entries
    screen.say(say(f"{log.path}: whole, {number} entries", f"{log.path}: 正常、{number} 件"))
    screen.say(say(f"head: {head}", f"末尾: {head}")) if head is not None else None
    return DONE


def _line(entry: AuditEntry) -> str:
    erased = f"({say(*_ERASED)})"
    actor = erased if entry.actor is None else entry.actor or "-"
    subject = erased if entry.subject is None else entry.subject
    detail = {name: value for name, value in (entry.detail or {}).items() if name not in _SOURCE and value not in ("", None)}
    parts = [
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for name, value in detail.items()
    ]
    if entry.detail is None:
        parts = [erased]
    return "  ".join([str(entry.place), entry.time[:19] + "Z", entry.kind, actor, *([subject] if subject else []), *parts])


def record_here(args: argparse.Namespace, kind: str, subject: str, user: str = "") -> AuditLog | None:
    """Record what somebody does at the terminal, if a server keeps an audit log here. Raises `AuditError` if it cannot.

    The actor is the account of this machine.
    """
    config = None if names_program(args) else config_for(args)
    log = audit_in(config, journal_place(args))
    if log is None or not log.path.exists():
        return None
    log.record(kind, actor=f"os:{getpass.getuser()}", subject=subject, user=user)
    return log


async def record_deletion(args: argparse.Namespace, journal: Journal, subject: str, user: str = "") -> None:
    """Record a deletion, and what the runs still have to say."""
    if (log := record_here(args, "delete", subject, user)) is not None:
        await FactFollower(log, journal).catch_up()
