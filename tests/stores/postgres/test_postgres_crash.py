"""Real processes, killed with SIGKILL at every fact, on a journal in PostgreSQL."""

import pytest

from kaname.testing import crash
from tests.properties import nightly

AGENTS = "tests.crash_agents.agents"


@pytest.mark.parametrize(
    ("agent", "moments", "at_random"),
    [("parallel", (), 5), *nightly(("with_a_bank", ("before", "after"), 0), ("parallel", ("before",), 0))],
)
def test_killed_at_every_fact(server, agent, moments, at_random):
    """By day at a few random moments."""
    report = crash.check(f"{AGENTS}:{agent}", "go", moments=moments, random_kills=at_random, journal=f"{server}&ttl=0.4")
    assert report.problems == ()
    assert report.runs >= at_random
    assert report.kills >= max(report.facts * len(moments), 1)
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
