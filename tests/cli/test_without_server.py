"""The terminal works where the packages of the server are not installed."""

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        missing = name.partition(".")[0] in ("starlette", "uvicorn", "joserfc")
        return None if missing else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(one) for one in sys.meta_path]
import kaname.cli

for found in pkgutil.walk_packages(kaname.cli.__path__, "kaname.cli."):
    if found.name != "kaname.cli.server":  # which `kaname serve` loads if they are there
        importlib.import_module(found.name)
sys.exit(kaname.cli.main.main(sys.argv[1:]))
"""


def test_every_command_is_found_without_the_packages_of_the_server():
    def run(*words):
        return subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=300)

    done = run("--version")
    assert done.returncode == 0, done.stderr
    done = run("serve")
    assert (done.returncode, "kaname serve needs additional packages" in done.stderr) == (2, True), done.stderr
