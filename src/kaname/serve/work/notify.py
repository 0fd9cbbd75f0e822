"""Notify people that a question waits for them: by a webhook, a command or a mail, again and again until it is answered.

A notification names the agent and holds a link. It never holds the question, the call or the conversation: mail and chat rooms
have other readers than the journal. Whoever follows the link signs in, and sees what their roles allow.
"""

from __future__ import annotations

import asyncio
import json
import os
import smtplib
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from email.message import EmailMessage
from functools import partial
from hashlib import sha256
from logging import getLogger
from typing import Any
from urllib.parse import urlsplit

from ...core.durations import seconds
from ...core.errors import AgentError, ConfigError
from ...core.notices import notice
from ...core.record import mutable, record
from ...core.runs import UNDER_WAY, RunInfo
from ...core.web import open_url
from ..service import Service
from ..users import Caller, is_role
from .hooks import read_secrets, sign

_EVERY, _PAUSE, _AGAIN = 3600.0, 5.0, 30.0  # seconds: between reminders, between two looks, after a failure
_SECONDS = 20.0  # of one notification
_MOST = 1_000  # waiting runs that are looked at
log = getLogger("kaname.serve.notify")


@record
class WaitingQuestions:
    """A run with questions for a person, as a notification names it."""

    run_id: str
    agent: str
    questions: int
    since: float
    reminder: int  # 0 for the first notification
    link: str

    @property
    def delivery(self) -> str:
        """Return an id that is the same in every process that sends this notification: receivers drop the second one."""
        return sha256(f"{self.run_id}\n{self.since}\n{self.questions}\n{self.reminder}".encode()).hexdigest()[:32]

    @property
    def subject(self) -> str:
        message = notice(
            "notify.subject", "{agent}: {count} question(s) wait for an answer", agent=self.agent, count=self.questions
        )
        return " ".join(message.split())

    @property
    def json(self) -> bytes:
        data = {name: getattr(self, name) for name in ("run_id", "agent", "questions", "since", "reminder", "link")}
        return json.dumps({"type": "question.waiting", "id": self.delivery, "data": data}, ensure_ascii=False).encode()


@mutable
class Reminders:
    """What was sent about one run."""

    since: float
    due: float = 0.0
    count: int = 0
    seq: int = 0
    questions: int = 0


class Notifier:
    """One entry of `notify` in the configuration.

    Args:
        name: The name of the entry.
        given: The entry: one of `url`, `command` and `mail`, and which questions it is for.
        agents: The names of the agents that are served.

    Raises:
        ConfigError: If the entry names none or several ways, an unknown agent or role, or if a variable is missing.
    """

    def __init__(self, name: str, given: Mapping[str, Any], agents: Mapping[str, Any]) -> None:
        self.name, self._given = name, given
        ways: dict[str, Callable[[WaitingQuestions], Awaitable[None]]] = {
            "url": self._post,
            "command": self._call,
            "mail": self._mail,
        }
        named = [way for way in ways if given.get(way)]
        if len(named) != 1 or (given.get("mail") and not given.get("from")):
            raise _wrong(name, notice("notify.ways", "name one of url, command and mail; a mail also needs from"))
        self._send = ways[named[0]]
        self._agents = [*given.get("agents", [])]
        if unknown := [one for one in self._agents if one not in agents]:
            raise _wrong(name, notice("notify.agent", "there is no agent {agent!r}", agent=unknown[0]))
        self._reader = _reader(name, str(given.get("user", "")), str(given.get("role", "approve:all")))
        self._every, self._link = seconds(given.get("every", _EVERY)), str(given["link"]).rstrip("/")
        if urlsplit(self._link).scheme not in ("http", "https"):
            raise _wrong(
                name, notice("notify.link", "link must be the address of this server, such as https://kaname.example.com")
            )
        self._secrets = read_secrets(f"notify.{name}", given["secret_env"]) if given.get("secret_env") else []
        if given.get("url") and not self._secrets:
            raise _wrong(name, notice("notify.secret", "a webhook is signed: name the variable of its secret in secret_env"))
        self._sent: dict[str, Reminders] = {}  # by run

    def concerns(self, card: RunInfo, agent: str) -> bool:
        """Return True if the people who are notified can answer the questions of this run."""
        return (not self._agents or agent in self._agents) and self._reader.can_answer(card.user, agent)

    def is_answerable(self, user: str, by: str) -> bool:
        """Return True if the reader is not the one person who must not answer."""
        return by != "other" or not self._reader.name or self._reader.name != user

    async def notify(self, cards: Mapping[str, tuple[RunInfo, str]], now: float) -> None:
        """Send what is due: for new questions at once, for others when the interval has passed."""
        self._sent = {run_id: one for run_id, one in self._sent.items() if run_id in cards}
        for run_id, (card, agent) in cards.items():
            known = self._sent.get(run_id)
            if known is None or (card.seq != known.seq and card.questions >= known.questions):  # else some were answered
                known = self._sent[run_id] = Reminders(card.updated)
            known.seq, known.questions = card.seq, card.questions
            if now >= known.due:
                link = f"{self._link}/#/inbox"
                sent = await self._try(WaitingQuestions(run_id, agent, card.questions, known.since, known.count, link))
                known.count += sent
                known.due = now + (self._every if sent else min(_AGAIN, self._every))

    async def _try(self, waiting: WaitingQuestions) -> bool:
        try:
            async with asyncio.timeout(_SECONDS):
                await self._send(waiting)
        except (OSError, TimeoutError, smtplib.SMTPException, AgentError) as problem:
            log.warning("notify.%s: the notification was not sent (%s: %s)", self.name, type(problem).__name__, problem)
            return False
        return True

    async def _post(self, waiting: WaitingQuestions) -> None:
        stamp, body = str(int(time.time())), waiting.json
        signatures = [sign(secret, waiting.delivery, stamp, body) for secret in self._secrets]
        headers = {"webhook-id": waiting.delivery, "webhook-timestamp": stamp, "webhook-signature": " ".join(signatures)}
        headers["content-type"] = "application/json"
        await asyncio.to_thread(lambda: open_url(self._given["url"], body, headers, timeout=_SECONDS).close())

    async def _call(self, waiting: WaitingQuestions) -> None:
        """Run the command without a shell. It gets the notification as JSON on its standard input."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._given["command"], stdin=pipe, stdout=asyncio.subprocess.DEVNULL)
        try:
            await process.communicate(waiting.json)
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise ConfigError.of("notify.command", "the command ended with {code}", code=process.returncode)

    async def _mail(self, waiting: WaitingQuestions) -> None:
        mail = EmailMessage()
        mail["To"], mail["From"], mail["Subject"] = ", ".join(self._given["mail"]), self._given["from"], waiting.subject
        mail["Message-ID"] = f"<{waiting.delivery}@{urlsplit(self._link).hostname}>"
        mail.set_content(f"{waiting.subject}\n{waiting.link}\n")
        await asyncio.to_thread(partial(_deliver, self._given, mail))


def _reader(name: str, user: str, role: str) -> Caller:
    """Return the people who are notified. Raise `ConfigError` if they cannot answer the questions of others."""
    if not is_role(role):
        raise _wrong(name, notice("notify.role", "there is no role {role!r}", role=role))
    if role in ("read", "talk") or (role == "approve" and not user):
        raise _wrong(name, notice("notify.who", "name a role that answers questions of others, such as approve:all, or a user"))
    return Caller(user, frozenset([role]))


class Notifiers:
    """All entries of `notify`, and the look at the journal that they share."""

    def __init__(self, service: Service, given: Mapping[str, Any], pause: float = _PAUSE) -> None:
        self._service, self._pause = service, pause
        self._every = [Notifier(name, one, service.agents) for name, one in given.items()]

    async def keep_notifying(self) -> None:
        """Look for waiting questions until the server shuts down."""
        while self._every:
            try:
                await self.look()
            except AgentError as problem:  # the journal may be away; the next look finds the questions
                log.warning("notify: %s", problem)
            await asyncio.sleep(self._pause)

    async def look(self) -> None:
        """Look once, and send what is due."""
        found = [card for card in await self._service.journal.runs(status="waiting", limit=_MOST) if card.questions]
        above = {card.run_id: await self._agent_of(card) for card in found}
        for one in self._every:
            mine = {card.run_id: (card, above[card.run_id]) for card in found if one.concerns(card, above[card.run_id])}
            due = {run_id: both for run_id, both in mine.items() if both[1] and await self._answerable(one, both[0])}
            await one.notify(due, time.time())

    async def _agent_of(self, card: RunInfo) -> str:
        """Return the agent whose people answer; "" if the questions of a child run are asked by its parent."""
        if not card.parent:
            return card.agent
        above = await self._service.journal.runs(run_id=card.parent, limit=1)
        return above[0].agent if above and above[0].status not in UNDER_WAY else ""

    async def _answerable(self, one: Notifier, card: RunInfo) -> bool:
        if one.is_answerable(card.user, "other"):
            return True
        asked = (await self._service.agent_result(card.run_id)).questions.values()
        return any(one.is_answerable(card.user, question.by) for question in asked)


def _deliver(given: Mapping[str, Any], mail: EmailMessage) -> None:
    host, _, port = str(given.get("smtp", "localhost")).partition(":")
    with smtplib.SMTP(host, int(port or 25), timeout=_SECONDS) as server:
        if given.get("user_env"):
            server.starttls(context=ssl.create_default_context())  # a password is never sent in the open
            server.login(os.environ.get(given["user_env"], ""), os.environ.get(given.get("password_env", ""), ""))
        server.send_message(mail)


def _wrong(name: str, why: str) -> ConfigError:
    return ConfigError.of("notify.wrong", "notify.{name}: {why}", name=name, why=why)
