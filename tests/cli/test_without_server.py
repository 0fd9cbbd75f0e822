"""The terminal works where the packages of the server are not installed."""

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("starlette", "uvicorn", "joserfc"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
import kaname.cli

for found in pkgutil.walk_packages(kaname.cli.__path__, "kaname.cli."):
    importlib.import_module(found.name)
"""


def test_every_command_is_found_without_the_packages_of_the_server():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
