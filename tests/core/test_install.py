"""A remedy is a command that works: with the Python that runs, from where this kaname came."""

import shlex
import subprocess

import pytest

from kaname import ConfigError
from kaname.core.install import install_command
from kaname.tools.database.engines.base import require


@pytest.mark.network
def test_install_command_works_as_it_is_written():
    command = [*shlex.split(install_command("testing")), "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "kaname" in done.stderr + done.stdout


def test_remedy_of_a_missing_package_is_that_command():
    with pytest.raises(ConfigError) as told:
        require("no_such_package", "postgres")
    assert str(told.value) == f"no_such_package is not installed. Install it with: {install_command('postgres')}"
    assert "[postgres]" in install_command("postgres")
