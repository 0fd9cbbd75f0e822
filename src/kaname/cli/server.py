"""`kaname serve`: serve the agents of the configuration over HTTP, and manage the users."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import logging
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..config.makers import trace_from
from ..core.install import this_command
from ..designs.orchestrator.orchestrator import agent_behind
from ..serve.access.auditor import audit_in, note_roles
from ..serve.application import Application, app
from ..serve.server import bind, serve
from ..serve.users import Users, users_file, users_named_by
from ..serve.workers import WorkerProcesses, inherited_socket
from ..stores.default import check_server
from ..tools.loading import object_from
from .agent import agent_from, origin_of_program
from .last import remember
from .main import DONE, USAGE
from .many.worker import note_local_files
from .messages import config_error, say
from .place import config_for, journal_place, names_program
from .terminal.screen import Screen

_LOCAL = ("127.0.0.1", "::1", "localhost")


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    if args.action == "users":
        return _users(args, screen)
    return _serve(args, screen)


def _serve(args: argparse.Namespace, screen: Screen) -> int:
    settings = _settings(args)
    host, port = args.host or settings.get("host", "127.0.0.1"), args.port
    port = settings.get("port", 8000) if port is None else port
    made = _app(args, settings, host, screen)  # mistakes are reported before the address is printed
    if made.open and host not in _LOCAL:
        command = f"{this_command()} serve users add NAME --role talk"
        raise config_error(
            f"other machines can reach {host}: add a user first ({command}), or set KANAME_TOKEN",
            f"{host} はほかのマシンからも接続できます。先にユーザーを追加するか ({command})、KANAME_TOKEN を設定してください",
        )
    _configure_logs(args.log_level)
    taken, workers = inherited_socket(), args.workers or max(1, settings.get("workers", 1))
    if taken is None:
        asyncio.run(check_server(made.service.journal))
        taken = bind("127.0.0.1" if host == "localhost" else host, port)
        _print_address(screen, taken.getsockname(), made.open)
        note_local_files(made.service.journal.stores.place, screen)
        if workers > 1:
            return WorkerProcesses(sys.argv[1:], taken, workers, made.service.grace).run()
    serve(made, taken)
    return DONE


def _app(args: argparse.Namespace, settings: Mapping[str, Any], host: str, screen: Screen) -> Application:
    agents: Any = config_for(args) if not args.agent and not args.model else None
    if names_program(args):
        agents = object_from(args.agent, Path.cwd())
        for one in agents if isinstance(agents, list | tuple) else [agents]:
            if (agent := agent_behind(one)) is not None:  # `app` reports what is wrong with the others
                agent.origin = {**origin_of_program(args.agent, agents), **agent.origin}
                remember(args, agent.journal)
    elif agents is None:
        agents = agent_from(args, screen)
    hosts = [*settings.get("hosts", []), *args.allow_host]
    if host not in _LOCAL and not hosts:
        hosts = ["*"]  # a token is needed, so any host name is safe
    return app(
        agents,
        users=Users.from_environment(named) if (named := _named_users(args)) else None,  # None: next to the journal
        journal=args.journal,
        hosts=hosts,
        origins=[*settings.get("origins", []), *args.allow_origin],
        proxies=[*settings.get("proxies", []), *args.proxy],
        sinks=[trace_from(words) for words in args.trace],
        recover=not args.no_recover,
        on_disconnect=args.on_disconnect,
        approvers_see=args.approvers_see,
        grace=args.grace,
    )


def _settings(args: argparse.Namespace) -> Mapping[str, Any]:
    config = None if names_program(args) else config_for(args)
    return {} if config is None else config.value.get("serve") or {}


def _users_file(args: argparse.Namespace) -> Path:
    """Return the users file of a server with the same options."""
    return _named_users(args) or users_file(journal_place(args))


def _named_users(args: argparse.Namespace) -> Path | None:
    """Return the users file that the options or the configuration name, or None."""
    config = None if names_program(args) else config_for(args)
    return Path(args.users).expanduser() if args.users else None if config is None else users_named_by(config)


def _print_address(screen: Screen, address: Any, is_open: bool) -> None:
    host, port = address[0], address[1]
    place = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    screen.say(say(f"kaname is listening on {place}", f"kaname は {place} で待ち受けています"))
    more = [f"   /{name}" for name, package in (("mcp", "fastmcp"), ("a2a", "a2a")) if find_spec(package) is not None]
    screen.tell(f"  in the browser: {place}/", f"  ブラウザー: {place}/")
    screen.note("  /openapi.json   /v1 (OpenAI)   /ag-ui   /vercel" + "".join(more))
    if is_open:
        screen.tell(
            "  accepts requests from this machine only; no token is needed",
            "  このマシンからの要求だけを受け付けます (トークン不要)",
        )


def _configure_logs(level: str) -> None:
    """Send the log of the server and the access log (one JSON object per line) to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    plain = logging.StreamHandler(sys.stderr)
    plain.setFormatter(logging.Formatter("%(message)s"))
    for name, how in (("kaname", handler), ("uvicorn", handler), ("kaname.access", plain)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [how], False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel("WARNING")


def _users(args: argparse.Namespace, screen: Screen) -> int:
    users = Users(_users_file(args))
    action, *names = args.what or ["list"]
    if action == "list" and not names:
        for name, roles in users.all().items():
            screen.say(f"{name}  {', '.join(roles)}")
        if not users.all():
            screen.tell("no users yet", "まだユーザーがいません")
        return DONE
    if action not in ("add", "remove") or len(names) != 1:
        screen.tell("serve users list | add NAME | remove NAME", "serve users list | add 名前 | remove 名前", colour="red")
        return USAGE
    _audit(args, None)  # if it cannot be recorded, nothing is changed
    if action == "remove":
        users.remove(names[0])
        _audit(args, users)
        screen.tell(f"removed {names[0]}", f"{names[0]} を削除しました")
        return DONE
    again = names[0] in users.all()
    token = users.add(names[0], args.role)
    _audit(args, users)
    if again:
        message = say(
            f"{names[0]} already existed: the old token is no longer valid, and the roles were replaced",
            f"{names[0]} はすでに登録されていました。以前のトークンは無効になり、役割は置き換えられました",
        )
        screen.note(message, "yellow")
    listed = ", ".join(users.all()[names[0]])
    screen.tell(f"saved {names[0]} ({listed}) in {users.path}", f"{names[0]} ({listed}) を {users.path} に保存しました")
    screen.tell("the token, shown only this once:", "トークン (表示は今回だけです):")
    screen.say(token)
    return DONE


def _audit(args: argparse.Namespace, users: Users | None) -> None:
    """Record changed roles in the audit log, if the server has one, with the account of this machine as the actor.

    Without users, only check that it can be written.
    """
    config = None if names_program(args) else config_for(args)
    if (log := audit_in(config, journal_place(args))) is not None:
        log.probe() if users is None else note_roles(log, users, actor=f"os:{getpass.getuser()}")
