"""`kaname encrypt` and `kaname user` in a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kaname.core.encryption import keys
from tests import warm
from tests.parts import SOURCE
from tests.protection.planted import USER, found_in_files, plant


@pytest.fixture
async def project(tmp_path):
    await plant(tmp_path / ".kaname")
    (tmp_path / "kaname.yaml").write_text(
        "agents: {desk: {model: local}}\ntrace: {file: {path: .kaname/trace.jsonl, content: true}}\n"
    )
    yield tmp_path
    keys.forget_keys()


def kaname(project, *words, code=0):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KANAME_")}
    done = warm.run(
        [sys.executable, "-m", "kaname.cli.main", *words],
        cwd=project,
        env={**environment, "PYTHONPATH": SOURCE, "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_user_is_exported_and_erased_by_commands(project):
    assert "runs" in kaname(project, "user", "export", USER, "-o", "out.zip")
    assert "there is no terminal" in kaname(project, "user", "erase", USER, code=1)
    assert found_in_files(project / ".kaname")
    told = json.loads(kaname(project, "user", "erase", USER, "--yes", "--json"))
    assert told["pending"] == {}
    assert told["sign_in"] is True
    assert found_in_files(project / ".kaname") == {}
    assert "nothing was stored" in kaname(project, "user", "erase", USER, "--yes")


def test_project_is_encrypted_and_rotated_by_commands(project):
    file = project / "kaname.yaml"
    file.write_text(f"encryption: {{key_file: secret.key}}\n{file.read_text()}")
    assert "cannot be read" in kaname(project, "runs", code=2)
    told = kaname(project, "encrypt", "--new-key")
    assert "Store a copy in a safe place" in told
    secret = (project / "secret.key").read_text().strip()
    assert secret not in told
    left = {name for names in found_in_files(project / ".kaname").values() for name in names}
    assert left <= {"trace.jsonl", "users.json"}
    assert "Mia wants to send" in kaname(project, "runs", "-n", "100")
    kaname(project, "encrypt", "--rotate")
    assert (project / "secret.key").read_text().strip() != secret
    assert "Mia wants to send" in kaname(project, "runs", "-n", "100")
    file.write_text(file.read_text().partition("\n")[2])
    assert "is encrypted, and no key is set" in kaname(project, "runs", code=2)
