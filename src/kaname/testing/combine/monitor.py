"""The reference monitor: says which promises of the docs a case has broken.

It is written from `docs/guarantees.md` and its neighbours, not from the code of kaname. It reads the declared rules and the
ledger, and nothing else. Each check is one function that yields what is broken; to add a promise, add a function to `CHECKS`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import AgentError
from ...core.events import RESULT
from .ledger import ModelSaw, OutsideLedger, PersonAnswer, Ran
from .rules import ApprovalRule, DeclaredRules

YES = ("yes", "ok", "はい", "承認します")


@dataclass(frozen=True)
class Breach:
    """A broken promise: the short name of the rule, and what happened."""

    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


def find_broken(rules: DeclaredRules, ledger: OutsideLedger) -> list[Breach]:
    """Return the promises that a case has broken, each rule once per detail."""
    found = [one for check in CHECKS for one in check(rules, ledger)]
    return list(dict.fromkeys(found))


# How an answer reads


def approves(value: Any) -> bool:
    """Return True if a value is a clear yes by the table in docs/approvals.md."""
    if isinstance(value, str):
        return value.strip().rstrip(".。").lower() in YES
    if isinstance(value, Mapping):
        return value.get("approved") is True or (isinstance(value.get("args"), Mapping) and "approved" not in value)
    return value is True


def declines(value: Any) -> bool:
    """Return True if a value is a clear no."""
    return value in ("no", "いいえ", False) or (isinstance(value, Mapping) and value.get("approved") is False)


def is_lasting(answer: PersonAnswer) -> str:
    """Return "run" or "always" if the answer allows later calls, else ""."""
    value = answer.value
    return str(value.get("for", "")) if isinstance(value, Mapping) and value.get("approved") is True else ""


def is_about(rules: DeclaredRules, answer: PersonAnswer, deed: Ran) -> bool:
    """Return True if the person who answered was shown this call, or wrote its arguments."""
    if isinstance(answer.value, Mapping) and isinstance(answer.value.get("args"), Mapping):
        return answer.tool == deed.tool and _same(rules, deed, answer.value["args"], answer.args or {})
    if answer.tool == deed.tool and answer.args is not None:
        return _same(rules, deed, answer.args, answer.args)
    usual = rules.tools[deed.tool].defaults if deed.tool in rules.tools else {}
    shown = [value for name, value in deed.args.items() if isinstance(value, str) and value and usual.get(name) != value]
    return not answer.tool and deed.tool in answer.prompt and all(value in answer.prompt for value in shown)


def _same(rules: DeclaredRules, deed: Ran, args: Mapping[str, Any], _shown: Mapping[str, Any]) -> bool:
    return rules.canonical(deed.tool, deed.args) == rules.canonical(deed.tool, args)


def _conversation(ledger: OutsideLedger, run: str) -> set[str]:
    """Return a run and the runs that it came from as a fork, without their children."""
    found = [_top(run)]
    while found[-1] in ledger.forks:
        found.append(ledger.forks[found[-1]])
    return set(found)


# Approvals


def approvals(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """A tool that needs an approval runs only after a clear yes, by a person who is allowed to give it, once for each yes."""
    used: dict[tuple[int, int], str] = {}  # the call that an answer was used for, by the answer and the rule
    for deed in [one for one in ledger.deeds if one.run]:  # of a call whose run is unknown nothing can be said
        defaults = rules.tools[deed.tool].defaults if deed.tool in rules.tools else {}
        for number, rule in enumerate(rules.approvals):
            if _applies(rules, rule, deed) and rule.covers(deed.tool, {**defaults, **deed.args}):
                why = _find_lack(rules, ledger, rule, deed, number, used)
                if why:
                    yield Breach(why, f"{deed.tool}({dict(deed.args)}) by {deed.agent} in run {deed.run[:8]}")


def _find_lack(
    rules: DeclaredRules, ledger: OutsideLedger, rule: ApprovalRule, deed: Ran, number: int, used: dict[tuple[int, int], str]
) -> str:
    """Return the name of what is wrong with the approval of a call under one rule, or "" if it was approved."""
    run = _top(deed.run)
    given = [one for one in ledger.answers if one.accepted and one.at < deed.at and approves(one.value)]
    mine = [one for one in given if _top(one.run) == run and is_about(rules, one, deed)]
    fitting = [one for one in mine if _is_admissible(rule, one) and not (one.expired and rule.expires)]
    for one in fitting:
        if is_lasting(one) or used.setdefault((id(one), number), deed.key) == deed.key:
            return ""
    lapsed = {of for at, of in ledger.expired if at < deed.at}
    if any(_is_granted(rules, rule, one, deed) for one in given) or (rule.then == "approve" and run in lapsed):
        return ""
    return "approval-used-twice" if fitting else _mistaken_for(rules, ledger, rule, deed, (given, mine, lapsed))


def _mistaken_for(
    rules: DeclaredRules,
    ledger: OutsideLedger,
    rule: ApprovalRule,
    deed: Ran,
    known: tuple[list[PersonAnswer], list[PersonAnswer], set[str]],
) -> str:
    """Return the name of the finding: what seems to have been mistaken for an approval."""
    given, mine, lapsed = known
    before = _conversation(ledger, deed.run) - {_top(deed.run)}
    grants = [one for one in given if is_lasting(one)]
    reasons = {
        "fork-reuses-approval": any(one.run in before and is_about(rules, one, deed) for one in given)
        or (rule.expires and lapsed & before),
        "approval-by-other": mine,
        "revoked-approval-used": any(one.revoked and one.revoked < deed.at for one in grants),
        "grant-for-other-tool": any(one.made != deed.made for one in grants),
        "grant-answers-other-rule": grants,
        "expiry-answers-other-rule": _top(deed.run) in lapsed,
    }
    return next((name for name, holds in reasons.items() if holds), "approval-missing")


def _top(run: str) -> str:
    """Return the run that a child run belongs to."""
    return run.split("/")[0]


def _applies(rules: DeclaredRules, rule: ApprovalRule, deed: Ran) -> bool:
    """A transfer keeps the rules of both agents; a child run has those of its own agent."""
    run, agent = _called_by(rules, deed)
    return rule.agent in ("", agent) or (rule.agent == rules.head and "/" not in run)


def _called_by(rules: DeclaredRules, deed: Ran) -> tuple[str, str]:
    """Return the run and the agent that made a call. One in the background works in a run of its own, named after the tool."""
    if deed.agent != deed.tool or "/" not in deed.run:
        return deed.run, deed.agent or rules.head
    run = deed.run.rsplit("/", 2)[0]
    return run, run.rsplit("/", 1)[1] if "/" in run else rules.head


def _is_admissible(rule: ApprovalRule, answer: PersonAnswer) -> bool:
    return not rule.by or answer.by not in ("", answer.user)


def _is_granted(rules: DeclaredRules, rule: ApprovalRule, answer: PersonAnswer, deed: Ran) -> bool:
    lasting = is_lasting(answer)
    if not lasting or answer.tool != deed.tool or not _is_admissible(rule, answer):
        return False
    if (answer.revoked and answer.revoked < deed.at) or answer.made != deed.made:
        return False
    if lasting == "run" and _top(answer.run) != _top(deed.run):
        return False
    if lasting == "always" and answer.user != deed.user:
        return False
    where = answer.value.get("where")
    return where == {} or (where is None and answer.args is not None and _same(rules, deed, answer.args, {}))


def refusals(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """A call that a person declined does not run, and a call that a permit or a rule refuses runs for nobody."""
    for deed in ledger.deeds:
        text = f"{deed.tool}({dict(deed.args)}) in run {deed.run[:8]}"
        about = [
            one
            for one in ledger.answers
            if one.accepted and one.run == deed.run and one.at < deed.at and is_about(rules, one, deed)
        ]
        sent = sum(rules.canonical(*call) == rules.canonical(deed.tool, deed.args) for one in ledger.seen for call in one.calls)
        if about and all(declines(one.value) for one in about) and sent < 2:
            yield Breach("refused-but-ran", text)
        if rules.permit is not None and deed.tool not in rules.permit and deed.tool in rules.tools:
            yield Breach("not-permitted-but-ran", text)
        if rules.refused is not None and "/" not in deed.run and rules.refused(deed.tool, deed.args):
            yield Breach("rule-refuses-but-ran", text)


def stops(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """A run that was stopped while it waited does not act any more, until somebody resumes it without an answer."""
    for deed in ledger.deeds:
        stopped = ledger.stopped.get(deed.run, deed.at)
        if stopped < deed.at and not any(run == deed.run and stopped < at < deed.at for at, run in ledger.restarted):
            yield Breach("stopped-but-ran", f"{deed.tool} ran in run {deed.run[:8]} after it was stopped")


def check_answers(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """An answer that was refused leaves its question open, and one that was accepted is acted on."""
    for one in ledger.answers:
        if not one.accepted and one.problem.startswith("InvalidState") and one.open_after is False and not one.expired:
            yield Breach("answer-lost", f"{one.value!r} to {one.tool or one.key}: {one.problem[:120]}; the question is closed")
        edited = isinstance(one.value, Mapping) and isinstance(one.value.get("args"), Mapping)
        restricted = rules.permit is not None or rules.refused is not None or rules.hidden
        allowed = one.key.startswith("approve:") and all(_is_admissible(rule, one) for rule in rules.approvals)
        open_ = one.open_after and not one.expired and "was stopped" not in one.problem
        if edited and allowed and not one.accepted and open_ and not restricted:
            yield Breach("valid-answer-refused", f"{one.value!r} to {one.tool}: {one.problem[:120]}")


# Text from outside


def flow(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """After text from outside was read, an acting call with a value of an outsider runs only if a person has said yes to it."""
    if not rules.flow:
        return
    for deed in ledger.deeds:
        facts = rules.tools.get(deed.tool)
        if facts is None or not facts.acts:
            continue
        words = repr(dict(deed.args))
        if any(value in words and author != deed.user for value, author in rules.foreign.items()):
            shown = [one for one in ledger.answers if one.accepted and one.at < deed.at and approves(one.value)]
            if not any(is_about(rules, one, deed) for one in shown):
                yield Breach("flow-unasked-action", f"{deed.tool}({dict(deed.args)}) by {deed.agent}: nobody was asked")


# What a tool receives


def arguments(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """A tool receives what the model sent or what a person wrote, and not what people were shown."""
    sent = {rules.canonical(name, args, masked=False) for one in ledger.seen for name, args in one.calls}
    for answer in ledger.answers:
        if isinstance(answer.value, Mapping) and isinstance(answer.value.get("args"), Mapping):
            sent.add(rules.canonical(answer.tool, answer.value["args"], masked=False))
    for deed in ledger.deeds:
        if deed.tool not in rules.tools or not sent or rules.planned:
            continue
        stood_for = rules.stand_ins.get(deed.tool, deed.tool)
        if not {rules.canonical(name, deed.args, masked=False) for name in (deed.tool, stood_for)} & sent:
            masked = any("***" in str(deed.args.get(name)) for name in rules.tools[deed.tool].secrets)
            yield Breach("shown-value-ran" if masked else "other-arguments-ran", f"{deed.tool} received {dict(deed.args)}")


# Money and numbers


def money(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """Once a limit is spent, by whomever, no further paid call starts.

    Calls of one reply start together. What a tool costs is known when it reports it, and counts from the next request on.
    """
    if rules.limit is None:
        return
    spent: dict[str, float] = defaultdict(float)
    reported: dict[str, float] = defaultdict(float)
    entries: list[Ran | ModelSaw] = [*ledger.deeds, *ledger.seen]
    for one in sorted(entries, key=lambda entry: entry.at):
        run = ledger.run_of(one)
        if isinstance(one, ModelSaw):
            spent[run] += reported.pop(run, 0.0)
        if one.cost and spent[run] > rules.limit * 1.0001 and run not in ledger.resumed:
            what = one.tool if isinstance(one, Ran) else f"model {one.model}"
            yield Breach("budget-overrun", f"{what} was paid although ${spent[run]:.4f} of ${rules.limit:.4f} was spent")
            return
        (reported if isinstance(one, Ran) else spent)[run] += one.cost


def quotas(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """A tool runs at most as often as its quota says, and is not refused before.

    The quotas are those of the head: a member has its own rules in a child run. After a kill, a call that had been recorded as
    started counts, although its code may not have run.
    """
    own = [one for one in ledger.deeds if "/" not in _called_by(rules, one)[0]]
    deeds = [one for one in own if ledger.run_of(one) not in ledger.resumed]
    for name, most in rules.quotas.items():
        counts = Counter(ledger.run_of(one) for one in deeds if one.tool == name)
        if counts and max(counts.values()) > most:
            yield Breach("quota-counts", f"{name} ran {max(counts.values())} times in a run, {most} allowed")
        for seen in ledger.seen:
            if f"limit of calls to {name} is reached" in seen.last[1] and ledger.run_of(seen) not in ledger.resumed:
                turn = _conversation(ledger, ledger.run_of(seen))  # a fork goes on with the turn that it was made from
                count = sum(one.tool == name and ledger.run_of(one) in turn and one.at < seen.at for one in own)
                if count < most:
                    yield Breach("quota-refuses-early", f"{name} ran {count} times, and is refused although {most} are allowed")
                break
    for name, most in rules.shared_quotas.items():
        count = sum(one.tool == name for one in ledger.deeds)
        if count > most and not ledger.deaths:  # a kill can lose the entry of one call
            yield Breach("quota-counts", f"{name} ran {count} times in all runs together, {most} allowed")


# What is kept, and who sees it


def check_stores(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """Text that a rule hides is in no request and in no store."""
    for hidden in rules.hidden:
        if hidden.agent and not any(one.model == hidden.agent and hidden.text not in one.text for one in ledger.seen):
            continue
        if hidden.agent and any(one.model != hidden.agent and hidden.text in one.text for one in ledger.seen):
            continue  # the member had not taken over when the text came
        for seen in ledger.seen:
            if hidden.text in seen.text:
                yield Breach("blocked-text-seen", f"{hidden.how}: the model {seen.model} was sent {hidden.text}")
                break
        data = hidden.text.encode()
        for place, content in ledger.rest.items():
            if data in content and not (hidden.how == "check" and place.startswith(("facts", "journal"))):
                yield Breach("blocked-text-at-rest", f"{hidden.how}: {place} holds {hidden.text}")


def users(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """A user gets no text of another user."""
    for got in ledger.got:
        for text, owner in [*rules.owned.items(), *rules.replies.items()]:
            if text in got.text and owner != got.user:
                yield Breach("foreign-user-sees", f"{got.user or '(nobody)'} got {text} of {owner}")


def check_declines(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """A no refuses a call. It is not given to the model as the words of the user or as the result of a tool."""
    for answer in ledger.answers:
        if not (answer.accepted and isinstance(answer.value, Mapping) and declines(answer.value)):
            continue  # "no" as a text is an answer like any other, if the question is not about a call
        supplied = [one.value for one in ledger.answers if one.key.startswith(RESULT)]  # by the caller, as its own words
        for seen in ledger.seen:
            role, text = seen.last
            if text.strip() in supplied:
                continue
            if (
                seen.at > answer.at
                and seen.root == answer.root
                and text.strip().lower() in ("no", "false", "decline", "cancel")
            ):
                yield Breach("declined-as-words", f"the model got {text.strip()!r} as the words of the {role}")
                break


def acted_on(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """A yes that was accepted is acted on, unless something else that is declared stops the call."""
    limited = rules.quotas or rules.shared_quotas or rules.limit is not None
    if limited or rules.permit is not None or rules.refused or rules.hidden or ledger.deaths:
        return
    ended = {got.run for got in ledger.got if got.kind == "completed"}
    given = {(one.run, one.key.removeprefix(RESULT)) for one in ledger.answers if one.key.startswith(RESULT)}
    for answer in ledger.answers:
        if (answer.run, answer.key.rpartition(":")[2]) in given:
            continue  # the caller has given the result
        if answer.run not in ended or answer.run in ledger.stopped or not answer.accepted or not approves(answer.value):
            continue
        if answer.tool not in rules.tools or rules.tools[answer.tool].effect == "pure" or answer.args is None:
            continue  # the result of a pure tool can come from a cache
        if any(one.run == answer.run and one.key.startswith("outbox:") and not approves(one.value) for one in ledger.answers):
            continue  # `Flow` can ask about the same call at the end, and this question does not name its calls
        same = [one for one in ledger.answers if one.run == answer.run and one.tool == answer.tool and one.args == answer.args]
        if any(not approves(one.value) for one in same if one.accepted) or any(run == answer.run for _, run in ledger.expired):
            continue
        done = [one for one in ledger.deeds if one.run.startswith(answer.run) and one.tool == answer.tool]
        if not any(is_about(rules, one, deed) for one in same for deed in done):
            yield Breach("answer-accepted-not-acted", f"{answer.value!r} to {answer.tool}({dict(answer.args)}) and nothing ran")


def check_audit(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """The audit log says of every clear answer what it was, and who gave it."""
    for actor, decision in ledger.audit:
        if decision == "unclear":
            yield Breach("audit-unclear", f"an answer of {actor} that was accepted is recorded as unclear")


def check_repeats(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """A revised plan does not repeat an effect, and a repeated delivery of one call has one effect."""
    if not rules.planned:
        return
    counts: Counter[tuple[Any, ...]] = Counter()
    retried = {answer.run for answer in ledger.answers if answer.value in ("retry", "skip")}  # a person knows of it
    for deed in ledger.deeds:
        if deed.tool in rules.tools and rules.tools[deed.tool].effect == "irreversible" and deed.run not in retried:
            counts[deed.run, rules.canonical(deed.tool, deed.args)] += 1
    for (_, called), count in counts.items():
        planned = [sum(rules.canonical(*call) == called for call in one.calls) for one in ledger.seen]
        if count > max([1, *planned]):
            yield Breach("plan-repeats-effect", f"{called} ran {count} times")


# The run itself


def readable(rules: DeclaredRules, ledger: OutsideLedger) -> Iterator[Breach]:
    """Every run can be read, every replay is the same, and a caller gets typed errors only."""
    for _, error in ledger.unreadable:
        yield Breach("unreadable-run", f"{type(error).__name__}: {str(error)[:100]}")
    for _, difference in ledger.replays:
        yield Breach("replay-differs", difference[:160])
    for failure in ledger.failures:
        if not isinstance(failure.error, AgentError):
            yield Breach("raw-exception", f"{type(failure.error).__name__} during {failure.during}: {str(failure.error)[:120]}")


CHECKS: list[Callable[[DeclaredRules, OutsideLedger], Iterator[Breach]]] = [
    approvals,
    refusals,
    stops,
    check_answers,
    flow,
    arguments,
    money,
    quotas,
    check_stores,
    users,
    check_declines,
    acted_on,
    check_audit,
    check_repeats,
    readable,
]
