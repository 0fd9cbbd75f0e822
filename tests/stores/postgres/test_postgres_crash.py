"""Real processes, killed with SIGKILL at every fact, on a journal in PostgreSQL."""

import pytest

from kaname.testing import crash

AGENTS = "tests.crash_agents.agents"


@pytest.mark.nightly  # by day a worker on PostgreSQL is killed: `work/test_fleet.py`
@pytest.mark.parametrize(("agent", "moments"), [("with_a_bank", ("before", "after")), ("parallel", ("before",))])
def test_killed_at_every_fact(server, agent, moments):
    report = crash.check(f"{AGENTS}:{agent}", "go", moments=moments, journal=f"{server}&ttl=0.4")
    assert report.problems == ()
    assert report.kills >= report.facts * len(moments)
    if agent == "with_a_bank":
        assert report.reconciled > 0


@pytest.mark.nightly
def test_two_lanes_of_processes_on_one_database_killed_at_random_times(server):
    report = crash.check_shared(f"{AGENTS}:parallel", "go", kills=20, longest=2.0, journal=f"{server}&ttl=0.4")
    assert report.problems == ()
    assert report.kills >= 20
    assert report.resumed > 1


@pytest.mark.nightly
def test_the_shared_check_notices_facts_that_are_lost(server):
    with pytest.raises(crash.CrashCheckFailed, match="was acknowledged and is"):
        crash.check_shared(f"{AGENTS}:vandal", "go", kills=4, longest=2.0, journal=f"{server}&ttl=0.4")
