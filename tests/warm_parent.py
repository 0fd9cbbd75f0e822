"""The process behind `tests/warm.py`: it has imported kaname and forks a process for each order that it is sent."""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import termios
import threading
import time
import types
import warnings
from contextlib import suppress
from typing import Any

MODULES = (
    "asyncio",
    "csv",
    "encodings.utf_16_be",
    "http.client",
    "importlib.resources",
    "kaname",
    "kaname.cli.evals.command",
    "kaname.cli.main",
    "kaname.cli.many.worker",
    "kaname.cli.messages.eval_options",
    "kaname.cli.messages.learn_options",
    "kaname.cli.messages.protection_options",
    "kaname.cli.messages.usage",
    "kaname.cli.messages.work_options",
    "kaname.cli.parser",
    "kaname.cli.records.audit",
    "kaname.cli.records.one_run",
    "kaname.cli.records.reading",
    "kaname.cli.records.runs",
    "kaname.cli.run",
    "kaname.cli.server",
    "kaname.designs.orchestrator.orchestrator",
    "kaname.kernel.identity",
    "kaname.memory.compact",
    "kaname.models.prices",
    "kaname.models.prompted.choice_schema",
    "kaname.models.providers.openai",
    "kaname.models.providers.scripted",
    "kaname.people.person",
    "kaname.policies.content.guardrails.folded",
    "kaname.policies.content.privacy.scan",
    "kaname.policies.names",
    "kaname.policies.permission.approve",
    "kaname.policies.permission.lasting",
    "kaname.policies.permission.permit",
    "kaname.run.figures",
    "kaname.run.partial",
    "kaname.run.peers.names",
    "kaname.run.replay",
    "kaname.serve.application",
    "kaname.serve.dialects.mcp",
    "kaname.serve.dialects.responses",
    "kaname.serve.page",
    "kaname.serve.server",
    "kaname.serve.work.routes",
    "kaname.stores.sqlite",
    "kaname.strategies.graph.asking",
    "kaname.strategies.orchestrate",
    "kaname.tools.arguments.schema",
    "kaname.tools.signature",
    "kaname.workflows.configured",
    "prompt_toolkit",
    "pydantic.json_schema",
    "pydantic.type_adapter",
    "pydantic.types",
    "regex",
    "starlette.applications",
    "sysconfig",
    "urllib.request",
    "uvicorn",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvloop",
    "yaml",
    "zipfile",
    "zoneinfo",
)
BASE = [entry for entry in sys.path[1:] if entry not in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
FILTERS = list(warnings.filters)


def next_order(channel: socket.socket) -> tuple[dict[str, Any], list[int], list[int]]:
    """Fork a process for each order, and return in it: the order, its streams, and what is not its own. The parent ends when the channel is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at pytest's terminal is for pytest
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is channel:
                    data, fds, _, _ = socket.recv_fds(channel, 1 << 20, 4)
                    if not data:
                        os._exit(0)
                    if (pid := os.fork()) == 0:
                        others = [one.data[1] for one in selector.get_map().values() if one.data]
                        return json.loads(data), fds, [channel.detach(), *others]
                    for fd in fds[:3]:
                        os.close(fd)
                    os.write(fds[3], pid.to_bytes(4, "big"))
                    watched = os.pidfd_open(pid)
                    selector.register(watched, selectors.EVENT_READ, (pid, fds[3]))
                else:
                    pid, told = key.data
                    _, status = os.waitpid(pid, 0)
                    selector.unregister(key.fileobj)
                    os.close(key.fileobj)  # type: ignore[arg-type]
                    with suppress(OSError):  # the one who asked is gone
                        os.write(told, status.to_bytes(4, "big"))
                    os.close(told)


def adopt(order: dict[str, Any], fds: list[int], others: list[int]) -> None:
    """Become the process that was ordered: its streams, folder, environment, path and warnings."""
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.closerange(3, max([*fds, *others, 64]) + 64)
    if order["session"]:
        os.setsid()
    if order["tty"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # the suite may have been started with `nohup`, which programs inherit, and heed
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    buffered = not os.environ.get("PYTHONUNBUFFERED")
    encoding, _, errors = (os.environ.get("PYTHONIOENCODING") or "utf-8").partition(":")
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        raw = open(number, f"{mode}b", closefd=False)  # noqa: SIM115
        lines = name == "stderr" or raw.isatty()
        how = errors or ("backslashreplace" if name == "stderr" else "strict")
        made = io.TextIOWrapper(raw, encoding, how, line_buffering=lines, write_through=not buffered)
        made.mode = mode  # type: ignore[misc]
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)
    warnings.filters[:] = FILTERS  # type: ignore[index]
    given = [entry for entry in os.environ.get("PYTHONWARNINGS", "").split(",") if entry]
    warnings._processoptions(given)  # type: ignore[attr-defined]
    sys.warnoptions[:] = given


def become_main(argv: list[str]) -> None:
    """Run `-m module`, `-c code` or a file as `__main__`."""
    alone = argv[0] == "-I"  # of the environment and the folder
    argv = argv[alone:]
    first = {"-m": os.getcwd(), "-c": ""}.get(argv[0], os.path.dirname(os.path.abspath(argv[0])))
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = BASE if alone else [first, *given, *BASE]
    sys.path_importer_cache.clear()
    if argv[0] == "-c":
        sys.argv[:] = ["-c", *argv[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__builtins__ = __builtins__
        exec(compile(argv[1], "<string>", "exec"), main.__dict__)
    elif argv[0] == "-m":
        sys.argv[:] = argv[1:]
        if not hasattr(sys.modules.get(argv[1]), "__path__"):  # of a package, its `__main__` is run
            sys.modules.pop(argv[1], None)
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = argv
        runpy.run_path(argv[0], run_name="__main__")


def leave(code: int) -> None:
    """End as Python ends, but do not take the modules apart: that would copy the whole memory of the parent, for 50 ms of CPU.

    An error of the streams is left to Python.
    """
    for end in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        end()
    if vars(main := sys.modules["__main__"]) is not globals():
        vars(main).clear()  # what the program still has is closed, and complains
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code & 0xFF)


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in filter(None, (*MODULES, *sys.argv[2].split(","))):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    gc.collect()
    gc.freeze()
    order, *fds = next_order(channel)
    adopt(order, *fds)
    code: Any = None
    try:
        become_main(order["argv"])
    except SystemExit as end:
        code = end.code
        if not (code is None or isinstance(code, int)):
            raise
    leave(code or 0)


main()
