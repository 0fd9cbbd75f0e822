"""Promises hold when features meet: random agents, held against the reference monitor."""

import os
import random
from itertools import combinations

import pytest

from kaname import Agent, Approve, ScriptedModel, tool
from kaname.testing import combine
from kaname.testing.combine.ledger import OutsideLedger, PersonAnswer
from kaname.testing.combine.monitor import find_broken
from kaname.testing.combine.rules import ApprovalRule, DeclaredRules, Hidden, ToolFacts
from tests.properties import nightly

from .case import chosen, names, run_case, shrink

FIRST = 1  # KANAME_SEED=new tries new seeds: about one case in a thousand still breaks, so CI does not
KNOWN: set[int] = set()  # seeds whose cause is not known


@pytest.mark.slow
@pytest.mark.parametrize("cases", [60, *nightly(2000)])
def test_random_combinations_break_no_promise(cases):
    given = os.environ.get("KANAME_SEED", str(FIRST))
    first = random.SystemRandom().randrange(10**9) if given == "new" else int(given)
    for seed in range(first, first + cases):
        outcome = run_case(seed)
        if outcome.broken and seed not in KNOWN:
            small = shrink(outcome, outcome.broken[0].rule)
            told = "\n".join(str(one) for one in small.broken)
            pytest.fail(
                f"seed {seed}, features {','.join(small.features)}:\n{told}\nRepeat it with: "
                f"python -m tests.doors --cases 1 --seed {seed} --features {','.join(small.features)} --show"
            )


def test_seed_repeats_a_case_exactly():
    for seed in (3, 28, 7163):
        one, other = run_case(seed), run_case(seed)
        assert one.features == other.features
        assert [found.rule for found in one.broken] == [found.rule for found in other.broken]


def test_every_pair_of_features_comes_up():
    seen = {pair for seed in range(20_000) for pair in combinations(chosen(seed), 2)}
    every = set(combinations(names(), 2))
    ways = {pair for pair in every if pair[0].startswith("way:") and pair[1].startswith("way:")}  # a case has one way in
    assert every - ways <= seen


def _rules(**more):
    return DeclaredRules({"pay": ToolFacts("pay", defaults={"note": "rent"})}, head="desk", **more)


def _yes(ledger, by, **more):
    ledger.answers.append(
        PersonAnswer(ledger.now(), "r", "approve:c1", "yes", by, "pay", {"yen": 1}, user="ann", accepted=True, **more)
    )


@pytest.mark.parametrize(
    ("by", "rule", "expected"),
    [
        ("boss", ApprovalRule(frozenset({"pay"}), by="other"), []),
        ("ann", ApprovalRule(frozenset({"pay"}), by="other"), ["approval-by-other"]),
        ("", ApprovalRule(frozenset({"pay"}), by="other"), ["approval-by-other"]),
        ("ann", ApprovalRule(frozenset({"pay"})), []),
        (None, ApprovalRule(frozenset({"pay"})), ["approval-missing"]),
    ],
)
def test_monitor_knows_who_can_approve(by, rule, expected):
    ledger = OutsideLedger()
    if by is not None:
        _yes(ledger, by)
    ledger.write("pay", {"yen": 1.0, "note": "rent"}, run="r", user="ann", agent="desk", key="r:c1")
    assert [one.rule for one in find_broken(_rules(approvals=[rule]), ledger)] == expected


def test_monitor_wants_a_yes_for_each_call():
    ledger = OutsideLedger()
    _yes(ledger, "boss")
    for key in ("r:c1", "r:c2"):
        ledger.write("pay", {"yen": 1}, run="r", user="ann", agent="desk", key=key)
    assert [one.rule for one in find_broken(_rules(approvals=[ApprovalRule()]), ledger)] == ["approval-used-twice"]


def test_monitor_finds_hidden_text_at_rest():
    ledger = OutsideLedger(rest={"queue": b"... secret-1 ..."})
    assert [one.rule for one in find_broken(_rules(hidden=[Hidden("secret-1")]), ledger)] == ["blocked-text-at-rest"]


def test_combine_tries_an_agent_without_running_its_tools():
    @tool
    def pay(yen: int, to: str) -> str:
        """Pay."""
        raise AssertionError("a tool must not run")

    agent = Agent(ScriptedModel(["x"]), [pay], name="desk", policies=[Approve("pay")], journal="memory")
    report = combine(agent, cases=20, seed=5, moves=("equal", "again", "kill"))
    assert report, report
    assert "20 cases from seed 5" in str(report)
