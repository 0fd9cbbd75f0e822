"""A hundred runs against a provider that fails in every way. A thousand are in benchmarks/chaos.py."""

import logging

import pytest
from benchmarks import chaos

from kaname.policies.failure import retry
from tests.properties import nightly


@pytest.mark.parametrize(("policies", "runs", "at_least"), [("on", 30, 0.03), *nightly(("on", 70, 0.3), ("off", 30, 0.0))])
async def test_every_run_ends_with_a_result_or_a_typed_reason(policies, runs, at_least, monkeypatch, tmp_path):
    """No exception of another kind, no hang, no payment twice, no word shown twice or lost, no broken reply for nothing, and
    nothing is left reserved."""
    monkeypatch.setattr(retry, "PAUSE", 0.05)
    monkeypatch.setattr(chaos, "DEADLINES", (1.0, 4.0, 6.0))
    monkeypatch.setattr(logging.getLogger("kaname"), "disabled", True)
    did, found = await chaos.run_all(policies, runs, seed=35, rate=0.3, path=str(tmp_path / "j.db"))
    assert found.wrong == []
    assert sum(found.outcomes.values()) == runs
    assert found.outcomes["completed"] >= at_least * runs
    assert len(did.kinds) > 8
    assert max(found.over) < 5.0  # a run that ignored its deadline would wait for an hour
