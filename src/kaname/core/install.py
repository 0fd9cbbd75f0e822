"""Commands that work on this machine: with the running Python, and from where this kaname was installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def this_command() -> str:
    """Return the command that runs `kaname`: its name, or its path if the name is not on `PATH`."""
    import shlex
    import shutil

    own = Path(sys.executable).with_name("kaname")
    return "kaname" if shutil.which("kaname") or not own.exists() else shlex.quote(str(own))


def install_command(extra: str) -> str:
    """Return the command that installs a missing extra."""
    import shlex
    import shutil

    source, editable = _source()
    wanted = ("-e " if editable else "") + shlex.quote(f"{source or 'kaname'}[{extra}]")
    python = shlex.quote(sys.executable)
    if find_spec("pip") is not None:
        return f"{python} -m pip install {wanted}"
    own = Path(source or "", ".uv", "bin", "uv")  # where scripts/with-uv put it
    uv = "uv" if shutil.which("uv") or not own.exists() else shlex.quote(str(own))
    return f"{uv} pip install --python {python} {wanted}"


def _source() -> tuple[str, bool]:
    """Return the source of this installation of kaname, and True if it runs from there.

    The source is a folder or an address, or "" for a registry.
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote

    try:
        told = distribution("kaname").read_text("direct_url.json")
    except PackageNotFoundError:  # it runs from a checkout that was never installed
        return str(Path(__file__).parents[3]), True
    if told is None:
        return "", False
    origin = json.loads(told)
    return unquote(origin["url"].removeprefix("file://")), bool(origin.get("dir_info", {}).get("editable"))
