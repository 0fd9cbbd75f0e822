"""`kaname cache`: show how much the cache holds, and clear it."""

from __future__ import annotations

import argparse
import json
import sqlite3

from ...core.errors import ConfigError
from ...policies.reuse.cache import default_path
from ...policies.reuse.store import CacheStore
from ..main import DONE
from ..messages import say
from ..place import config_for
from ..terminal.screen import Screen


def main(args: argparse.Namespace) -> int:
    config = None if args.file else config_for(args)
    store = CacheStore(args.file or (default_path() if config is None else config.agent(args.agent).cache_path), 1)
    try:
        if args.action == "clear":
            store.clear()
        entries, held, on_disk = store.figures()
    except (sqlite3.Error, OSError) as problem:
        raise ConfigError.of(
            "cache.cannot_open", "the cache {path} cannot be used: {problem}", path=store.path, problem=problem
        ) from problem
    finally:
        store.close()
    screen = Screen()
    if args.json:
        screen.say(json.dumps({"path": str(store.path), "entries": entries, "bytes": held, "on_disk": on_disk}))
        return DONE
    size = f"{held / 1e6:.1f} MB"
    screen.say(say(f"{store.path}: {entries} entries, {size}", f"{store.path}: {entries} 件、{size}"))
    return DONE
