"""`kaname serve`: say which packages are missing, or let `server.py` serve."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from ..core.install import install_command
from .messages import config_error


def main(args: argparse.Namespace) -> int:
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        command = install_command("serve")
        raise config_error(
            f"kaname serve needs additional packages. Install them with: {command}",
            f"kaname serve には追加のパッケージが必要です。次のコマンドでインストールしてください: {command}",
        )
    from .server import main as serve

    return serve(args)
