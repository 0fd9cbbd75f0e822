import os

import pytest


@pytest.fixture(autouse=True)
def _own_world(tmp_path, monkeypatch):
    """Every test has a journal folder and a language of its own, and none of the user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KANAME_LANG", "en")
    monkeypatch.delenv("KANAME_JOURNAL", raising=False)


def pytest_report_header():
    return f"kaname: {os.cpu_count()} cores"
