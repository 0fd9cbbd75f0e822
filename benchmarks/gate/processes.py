"""Fresh processes in an environment that is the same for everybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = 900  # seconds after which a process hangs
_LEFT_OUT = ("KANAME_", "OPENAI_", "PYTHON", "XDG_")
_PROXIES = {"http_proxy", "https_proxy", "all_proxy"}


def environment(folder: str) -> dict[str, str]:
    """Return an environment with the code of this checkout, an empty home and no settings of the user."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT) and name.lower() not in _PROXIES
    }
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks")])
    return {**kept, "HOME": folder, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "NO_PROXY": "127.0.0.1"}


def output_of(arguments: list[str], environment: dict[str, str], python: str = sys.executable) -> Any:
    """Run Python with these arguments and return the JSON that it prints last."""
    command = [python, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
