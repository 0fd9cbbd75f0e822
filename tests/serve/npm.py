"""JavaScript packages that tests need, from npm: the protocols' clients, and a checker of accessibility."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def packages() -> Path:
    """A folder with the packages, outside the checkout, installed once a machine."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not here: the JavaScript packages were NOT tried")
    files = [SCRIPTS / "package.json", SCRIPTS / "package-lock.json"]
    mark = hashlib.sha256(b"".join([file.read_bytes() for file in files])).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kaname-tests"
    folder = cache / f"node-{mark}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as new:
            _install(files, Path(new) / "made")
            _take_its_place(Path(new) / "made", folder)
    return folder


def _install(files: list[Path], folder: Path) -> None:
    folder.mkdir()
    for file in files:
        shutil.copy(file, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install them: the JavaScript packages were NOT tried ({done.stderr[-300:]})")


def _take_its_place(new: Path, folder: Path) -> None:
    """Whole, or not at all: another process may be doing the same."""
    try:
        new.rename(folder)
    except OSError:
        if not folder.exists():
            raise
