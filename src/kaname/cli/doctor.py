"""`kaname doctor`: check everything that can be wrong, and say how to fix it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from .. import __version__
from ..agent.agent import Agent
from ..core.errors import AgentError, JournalCorrupt
from ..core.install import this_command
from ..core.web import BadStatus, open_url
from ..kernel.ports import Journal
from ..models.compatible import with_keys
from ..models.local import weights
from ..models.registry import resolve_all
from ..stores.default import choose
from ..stores.places import is_file, shown_place
from ..stores.sqlite import SqliteJournal
from .agent import agent_from
from .last import take_last
from .main import DONE, FAILED
from .messages import say, translate
from .models import rows
from .place import config_for, journal_place
from .terminal.screen import Screen, pad

Finding = tuple[str, bool | None, str]  # name, good or bad (None: neither), text
_PATIENCE = 5.0
_JOURNAL_NEEDS, _MODEL_NEEDS = 100_000_000, 500_000_000  # bytes
_BYTES_A_SECOND = 10e6  # read from a journal, on a slow machine
_FACTS = 100_000  # that are read without --whole, which takes some seconds


def main(args: argparse.Namespace) -> int:
    screen, logger = Screen(), logging.getLogger("kaname")
    take_last(args, screen)
    level = logger.level
    logger.setLevel(logging.ERROR)  # problems are printed
    try:
        return DONE if _look_at_all(args, screen) else FAILED
    finally:
        logger.setLevel(level)


def _look_at_all(args: argparse.Namespace, screen: Screen) -> bool:
    """Print all findings. Return False if one is bad."""
    good, args.broken = True, False
    for look in (_python, _config, check_journal, _model, check_keys, _servers, _space):
        if args.broken and look in (check_journal, _model, _servers):
            continue  # these checks need a correct file
        for what, fine, told in look(args):
            good = good and fine is not False
            mark, colour = {True: ("✓", "green"), False: ("✗", "red"), None: ("·", "dim")}[fine]
            screen.say_in(colour, mark, f" {pad(what, 16)} {told}")
    return good


def _try(what: str, look: Callable[[], str]) -> Finding:
    try:
        return what, True, look()
    except (AgentError, OSError) as problem:
        return what, False, translate(problem)


def _python(args: argparse.Namespace) -> list[Finding]:
    return [("kaname", sys.version_info >= (3, 11), f"{__version__}, Python {sys.version.split()[0]}, {sys.executable}")]


def _config(args: argparse.Namespace) -> list[Finding]:
    """Check the file and everything that it names: load its tools, look up its models."""
    what = say("configuration", "設定")
    try:
        config = config_for(args)
        if config is None:
            return [
                (what, None, say("no kaname.yaml here: `kaname init` creates one", "ありません。`kaname init` で作成できます"))
            ]
        config.check()
        config.agent(args.agent)
    except AgentError as problem:
        args.broken = True
        return [(what, False, translate(problem))]
    return [(what, True, f"{', '.join(config.files)}: {', '.join(config.agents)}")]


def _announce(path: Path) -> None:
    """Say how long it takes to read a large journal."""
    size = path.stat().st_size
    if (expected := size / _BYTES_A_SECOND) > 2:
        message = f"reading the whole journal ({size / 1e6:.0f} MB) takes about {expected:.0f} s"
        Screen().tell(message, f"ジャーナル全体 ({size / 1e6:.0f} MB) を調べています。約 {expected:.0f} 秒かかります")


def check_journal(args: argparse.Namespace) -> list[Finding]:
    async def look() -> str:
        place = journal_place(args)
        journal = choose(place)
        try:
            runs = sum([one.runs for one in await journal.count()])
            problems: list[str] = []
            facts = await _facts(journal, _FACTS + 1) if not args.whole else 0
            if args.whole and isinstance(journal, SqliteJournal):
                _announce(journal.path)
            if (health := journal.stores.health) is not None:
                problems = await health.verify(0 if facts <= _FACTS else _FACTS)
            if problems:
                raise JournalCorrupt("; ".join(problems[:3]) + (f"; +{len(problems) - 3}" if len(problems) > 3 else ""))
            if facts <= _FACTS:
                return f"{shown_place(place)}: {runs} {say('runs, no damage found', '件、破損なし')}"
            message = (
                f"{runs} runs, no damage found in the newest {_FACTS:,} facts; check all with: {this_command()} doctor --whole"
            )
            japanese = f"{runs} 件、新しい記録 {_FACTS:,} 件に破損なし。すべて調べるには: {this_command()} doctor --whole"
            return f"{shown_place(place)}: {say(message, japanese)}"
        finally:
            await journal.close()

    return [_try(say("journal", "ジャーナル"), lambda: asyncio.run(look()))]


async def _facts(journal: Journal, most: int) -> int:
    """Return the number of facts in the journal, counted up to `most`."""
    found = before = 0
    while found < most and (cards := await journal.runs(before=before, limit=500)):
        found, before = found + sum([card.seq for card in cards]), cards[-1].place
    return found


def _model(args: argparse.Namespace) -> list[Finding]:
    """Check the model that would be used now."""
    what = say("model", "モデル")
    found: list[Finding] = [(name, None, told) for name, told in rows()]
    try:
        if chosen := _chosen_model(args):
            return [*found, (what, True, chosen)]
    except AgentError as problem:
        return [*found, (what, False, translate(problem))]
    usable = weights.find_weights() is not None or any(os.environ.get(key) for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"))
    if usable or os.environ.get("OPENAI_BASE_URL") or with_keys():
        return found
    none = say(
        f"none yet: run `{this_command()} models pull`, or set a key",
        f"まだありません。`{this_command()} models pull` で取得するか、キーを設定してください",
    )
    return [*found, (what, False, none)]


def _chosen_model(args: argparse.Namespace) -> str:
    """Return the name of the model that is chosen by the options, the environment or the file; "" for none or the local one.

    Raises `AgentError` if it cannot be used.
    """
    config, named = config_for(args), args.model or os.environ.get("KANAME_MODEL")
    if named is None and config is not None:
        named = config.agent(args.agent).model or None
    if named is None or named == "local":
        return ""
    of_file = None if config is None or args.model else config.agent(args.agent).parts()["model"]
    models = resolve_all(of_file or named.split(","))
    return named if isinstance(named, str) else ", ".join([one.name for tier in models for one in tier])


def check_keys(args: argparse.Namespace) -> list[Finding]:
    """Try every key that is set, with a request for the list of models, which costs nothing."""
    found: list[Finding] = []
    for key, base, usual in (
        ("OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1"),
        ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com/v1"),
    ):
        secret, address = os.environ.get(key), os.environ.get(base)
        if not secret and not address:
            continue
        url = f"{(address or usual).rstrip('/')}/models"
        headers = {"authorization": f"Bearer {secret}"} if key.startswith("OPENAI") else {"x-api-key": secret or ""}
        found.append(_answers(base if address else key, url, {**headers, "anthropic-version": "2023-06-01"}))
    for server in with_keys().values():
        headers = {"authorization": f"Bearer {server.key}"}
        found.append(_answers(server.variable, f"{server.base_url.rstrip('/')}/models", headers))
    return found


def _answers(what: str, url: str, headers: dict[str, str]) -> Finding:
    try:
        with open_url(url, headers=headers, timeout=_PATIENCE):
            return what, True, f"{url}: {say('reachable', '接続できます')}"
    except BadStatus as refused:
        bad = refused.status in (401, 403)
        message = say("the key was rejected", "キーが拒否されました") if bad else str(refused)
        return what, False if bad else None, f"{url}: {message}"
    except OSError as problem:
        reason = getattr(problem, "reason", problem)
        return what, False, f"{url}: {say('cannot be reached', '接続できません')}: {reason}"


def _servers(args: argparse.Namespace) -> list[Finding]:
    """Start every tool server, and request its tools. Say what the labels of all tools let through."""
    from ..models.providers.scripted import ScriptedModel

    async def look() -> list[Finding]:
        agent: Agent = agent_from(args, Screen(), ScriptedModel([]))
        if agent.servers is None:
            return _flow(agent)
        async with agent:
            problems = agent.servers.problems
            started: list[Finding] = [
                (server.name, server.name not in problems, problems.get(server.name) or f"{len(server.tools)} tools")
                for server in agent.servers.servers
            ]
            return [*started, *_flow(agent)]

    try:
        return asyncio.run(look())
    except AgentError:
        return []  # reported above


def _flow(agent: Agent) -> list[Finding]:
    from ..policies.permission.flow.describe import describe_flow

    return [(name, None, translate(told)) for name, told in describe_flow(agent.recipe.policies, agent.tools)]


def _space(args: argparse.Namespace) -> list[Finding]:
    """Check the free space of the journal's disk, and of the disk of the local model, if that is another."""
    found, models = [], _nearest_folder(weights.folder())
    place = "" if args.broken else journal_place(args)
    journal = _nearest_folder(Path(place).expanduser().absolute()) if place and is_file(place) else None
    if journal is not None:
        found.append(_free(journal, _JOURNAL_NEEDS, say("journal", "ジャーナル")))
    if journal is None or journal.stat().st_dev != models.stat().st_dev:
        found.append(_free(models, 0 if weights.find_weights() else _MODEL_NEEDS, say("local model", "ローカルモデル")))
    return found


def _nearest_folder(place: Path) -> Path:
    """Return the nearest folder that exists."""
    while not place.is_dir() and place != Path(place.anchor):
        place = place.parent
    return place


def _free(place: Path, needed: int, what: str) -> Finding:
    free = shutil.disk_usage(place).free
    size = f"{free / 1e9:.1f} GB" if free >= 1e9 else f"{free / 1e6:.1f} MB"
    message = f"{size} {say('free in', '空き:')} {place} ({what})"
    if free < needed:
        message += say(f"; free some space: at least {needed // 10**6} MB", f"。{needed // 10**6} MB 以上の空きが必要です")
    return say("disk", "ディスク"), free >= needed, message
