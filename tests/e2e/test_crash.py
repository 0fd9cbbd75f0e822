"""Real processes, killed with SIGKILL at every fact, right before, right after, twice, and at random moments."""

import pytest

from kaname import ConfigError
from kaname.testing import crash
from tests.properties import nightly

AGENTS = "tests.crash_agents.agents"
LONG = ("orchestrated", "own_parts", "compacting", "several_models")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("agent", "deaths"),
    [
        ("with_a_bank", 1),
        *nightly(
            ("parallel", 2),
            *[(name, 1) for name in ("timeouts", "undecodable_at_first", "at_a_limit", "orchestrated", "own_parts", "team")],
        ),
        *nightly(*[(name, 1) for name in ("compacting", "several_models", "parallel", "approvals")], ("approvals", 2)),
    ],
)
def test_killed_at_every_fact(agent, deaths):
    # Right after a fact and right before the next differ only where something is done in between: the short agents show it. And
    # both moments of the first death are what deaths=1 tries.
    moments = ("before",) if agent in LONG or deaths == 2 else ("before", "after")
    report = crash.check(f"{AGENTS}:{agent}", "go", deaths=deaths, moments=moments, random_kills=4 if deaths == 1 else 0)
    assert report.kills >= 18, "twelve of these and a workflow make the 300 that are promised; a random kill may come too late"
    assert report.problems == ()
    assert report.kills >= report.facts * len(moments) * deaths
    if agent == "with_a_bank":
        assert report.reconciled > 0
        assert report.in_doubt == 0
    if agent == "parallel":
        assert report.in_doubt > 0


@pytest.mark.nightly
def test_workflow_is_killed_at_every_fact():
    """Twenty tasks in parallel, with a question to a person and a failure after which what was paid is paid back."""
    report = crash.check(f"{AGENTS}:workflow", "{}", answers={"task:": "yes"}, moments=("before",))
    assert report.problems == ()
    assert report.kills >= 50
    assert report.in_doubt > 0


def test_the_check_notices_a_broken_promise():
    with pytest.raises(crash.CrashCheckFailed, match=r"pay \(irreversible\) took effect 2 times"):
        crash.check(f"{AGENTS}:broken", "go")


@pytest.mark.nightly
def test_the_check_notices_a_death_that_did_not_happen():
    with pytest.raises(crash.CrashCheckFailed, match="after-9: nobody died there"):
        crash.check(f"{AGENTS}:shorter_than_at_first", "go", moments=("after",))


@pytest.mark.nightly
def test_the_check_takes_a_function_and_says_when_it_cannot():
    from tests.crash_agents.agents import undecodable_at_first

    report = crash.check(undecodable_at_first, "go", moments=("after",))
    assert report.kills == report.facts
    with pytest.raises(ConfigError, match="cannot be imported by another process"):
        crash.check(lambda: None, "go")
    with pytest.raises(crash.CrashCheckFailed, match="could not be carried out"):
        crash.check("tests.crash_agents.agents:nothing", "go")


@pytest.mark.nightly
def test_a_tool_that_hangs_or_ends_its_process_is_named():
    with pytest.raises(crash.CrashCheckFailed, match="hung for 1 s"):
        crash.check(f"{AGENTS}:hanging", "go", life_seconds=1)
    with pytest.raises(crash.CrashCheckFailed, match="ended by itself"):
        crash.check(f"{AGENTS}:leaving", "go")
    with pytest.raises(crash.CrashCheckFailed, match="not done after 1 s"):
        crash.check(f"{AGENTS}:hanging", "go", timeout=1)


@pytest.mark.nightly
def test_a_tool_that_stood_in_for_another_goes_on_and_the_other_is_not_run_again():
    report = crash.check("tests.crash_agents.stand_in:make", "go", random_kills=5)
    assert report.problems == ()


@pytest.mark.parametrize(("agent", "kills"), [("parallel", 16), *nightly(("parallel", 40), ("with_a_bank", 40))])
def test_two_lanes_of_processes_on_one_file_killed_at_random_times(agent, kills):
    report = crash.check_shared(f"{AGENTS}:{agent}", "go", kills=kills)
    assert report.problems == ()
    assert report.kills >= kills
    assert report.runs > 4  # several lives of several runs, however slow the machine is
    assert report.resumed > 3


@pytest.mark.nightly
def test_the_shared_check_notices_facts_that_are_lost():
    with pytest.raises(crash.CrashCheckFailed, match=r"fact 1 of lane-\d+-\d+-\d+ was acknowledged and is lost"):
        crash.check_shared(f"{AGENTS}:vandal", "go", kills=10)
