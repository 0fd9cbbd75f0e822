"""Features that are policies and limits, with what the docs promise about them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from kaname import (
    Approve,
    Budget,
    Cache,
    Equals,
    Flow,
    Guardrails,
    Permit,
    Privacy,
    Retry,
    Timeout,
    ToolFallback,
    ToolRule,
    cost,
    per_tool,
)

from .draft import ApprovalRule, Draft, Hidden, ToolContext, ToolFacts, ToolLabels, tool
from .registry import feature
from .tools import PRICE

SLOTS = ("user", "user", "system", "assistant", "tool", "file", "answer", "say")


def _add(d: Draft, rng: random.Random, build: Any) -> str:
    """Give a policy to the agent, or to the member of its team, or to both. Return the agents that have it."""
    where = rng.choice(("desk", "desk", "member", "both")) if d.has("transfer", "delegate") else "desk"
    if where in ("desk", "both"):
        d.policies.append(build)
    if where in ("member", "both"):
        d.member_policies.append(build)
    return where


def _approve(d: Draft, rng: random.Random, **more: Any) -> None:
    named = [name for name in d.rules.tools if d.rules.tools[name].acts and name != "fetch"]
    tools: tuple[str, ...] = rng.choice((("pay",), ("pay",), (rng.choice(named),), tuple(named), ()))
    if d.search or d.has("background"):
        tools = tools or ("pay",)
    rule = {"by": more.get("by", ""), "expires": "expires" in more, "then": more.get("then", "refuse")}
    where = _add(d, rng, lambda: Approve(*tools, **more))
    when = (lambda args: args.get("yen", 0) > 99) if "when" in more else None
    for agent in ("desk", "member"):
        if where in (agent, "both"):
            d.rules.approvals.append(ApprovalRule(frozenset(tools), agent=agent, when=when, **rule))
    if "expires" in more:
        d.waits = 4000.0


@feature
def approve(d: Draft, rng: random.Random) -> None:
    """A person must agree."""
    _approve(d, rng)


@feature
def approve_other(d: Draft, rng: random.Random) -> None:
    """Another person must agree."""
    _approve(d, rng, by="other")


@feature
def approve_expires(d: Draft, rng: random.Random) -> None:
    """A question expires, and the call is refused or made."""
    _approve(d, rng, expires="1h", then=rng.choice(("refuse", "approve")))


@feature
def flow(d: Draft, rng: random.Random) -> None:
    """A written Flow, in the agent or in the member of its team."""
    mode: Any = rng.choice(("strict", "strict", "everything"))
    d.rules.flow = mode
    _add(d, rng, lambda: Flow(mode))


@feature
def permit(d: Draft, rng: random.Random) -> None:
    """A permit that allows some tools."""
    allowed = sorted(name for name in d.rules.tools if rng.random() < 0.8)
    d.rules.permit = set(allowed)
    more = [{"handoff": "*"}] if d.has("transfer", "delegate") else []
    d.policies.append(lambda: Permit([*[{"tool": name} for name in allowed], {"tool": "tasks"}, {"tool": "find_tools"}, *more]))


@feature
def tool_rule(d: Draft, rng: random.Random) -> None:
    """A rule on the arguments of a tool: small amounts only."""
    d.rules.refused = lambda name, args: name == "pay" and args.get("yen", 0) > 200
    d.policies.append(lambda: Guardrails(tools=[ToolRule("pay", arguments={"yen": lambda yen: yen <= 200})]))


@feature
def quota(d: Draft, rng: random.Random) -> None:
    """A tool can be called only so often in a run."""
    name = rng.choice([one for one in d.rules.tools if one in ("weather", "forum", "lookup", "pay", "price", "order", "paint")])
    most, kind = rng.choice((1, 2)), rng.choice(("rule", "budget", "stop"))
    if kind == "rule":
        d.rules.quotas[name] = most
        d.policies.append(lambda: Guardrails(tools=[ToolRule(name, max_calls=most)]))
    elif kind == "budget":
        d.rules.shared_quotas[name] = most
        d.policies.append(lambda: Budget(tools={name: f"{most} calls"}))
    else:
        d.stops.append(lambda: per_tool(most))
        d.rules.quotas |= dict.fromkeys(d.rules.tools, most)
    if name in ("lookup", "price"):
        for q in ("a", "b", "a"):
            d.ask(name, **{"q" if name == "lookup" else "item": q})


@feature
def money(d: Draft, rng: random.Random) -> None:
    """A limit on money for a run."""
    d.brain.price = PRICE
    d.rules.limit = 0.3
    if rng.random() < 0.5:
        d.stops.append(lambda: cost("$0.3"))
    else:
        d.policies.append(lambda: Budget(run="$0.3", longest_reply=500))


def _hide(d: Draft, rng: random.Random, hidden: Hidden, *, results: bool, member: bool) -> None:
    """Plant a text that a rule hides: in what comes in, or in a tool result."""
    d.rules.hidden.append(replace(hidden, agent="member" if member else ""))
    if member and d.has("transfer") and rng.random() < 0.5:
        d.session = d.session or "s"
        d.turns.append(f"Remember {hidden.text} well.")  # the member answers the next turn
        return
    if (results and rng.random() < 0.4) or member:
        ledger = d.ledger

        def papers() -> Any:
            @tool(effect="pure", labels=ToolLabels(result="trusted"))
            async def papers(context: ToolContext) -> str:
                """Read the papers of the user."""
                ledger.write("papers", {}, context)
                return f"The number is {hidden.text} for sure."

            return papers

        d.add_tool(ToolFacts("papers", "pure", acts=False), papers, member=member)
        (d.member_words if member else d.words).append(d.sentence("papers", {}))
        return
    slot = rng.choice(SLOTS)
    text = f"Remember {hidden.text} well."
    if slot == "user":
        d.words.append(text)
    elif slot == "answer":
        d.reason = text
    else:
        d.put(slot, text)


@feature
def pattern(d: Draft, rng: random.Random) -> None:
    """A guardrail with a blocked pattern."""
    where = _add(d, rng, lambda: Guardrails(blocked_patterns=[r"TOPSECRET-\d+"])) if d.has("transfer") else "desk"
    if not d.has("transfer"):
        d.policies.append(lambda: Guardrails(blocked_patterns=[r"TOPSECRET-\d+"]))
    if where == "member":
        d.rules.hidden.append(Hidden("TOPSECRET-4711", "pattern", "member"))
        d.session = d.session or "s"
        d.turns.append("Remember TOPSECRET-4711 well.")  # the member answers the next turn
    else:
        _hide(d, rng, Hidden("TOPSECRET-4711", "pattern"), results=False, member=False)


@feature
def check(d: Draft, rng: random.Random) -> None:
    """A guardrail with a check on the input."""
    d.policies.append(lambda: Guardrails(input_checks=[lambda text: "no" if "forbidden-4712" in text else None]))
    _hide(d, rng, Hidden("forbidden-4712", "check"), results=False, member=False)


@feature
def privacy(d: Draft, rng: random.Random) -> None:
    """Personal data that is masked, removed or blocked."""
    how: Any = rng.choice(("mask", "remove", "block"))
    where = _add(d, rng, lambda: Privacy({"employee": how}, patterns={"employee": "E[0-9]{6}"}))
    _hide(d, rng, Hidden("E471300", "privacy"), results=True, member=where == "member")


@feature
def fallback(d: Draft, rng: random.Random) -> None:
    """A tool that fails is tried again, and another one stands in."""
    stand_in = {"weather": "forum"} if "weather" in d.rules.tools else {}
    retries = rng.choice((0, 1, 2))
    d.policies.append(lambda: ToolFallback(max_retries=retries, fallback=stand_in, backoff=0.0, degrade=False))


@feature
def equals(d: Draft, rng: random.Random) -> None:
    """Two tools count as equal, and the better one runs. The journal knows that one of them fails."""
    if "weather" not in d.rules.tools:
        return
    d.policies.append(lambda: Equals("weather", "forum"))

    async def practise(stage: Any, d: Draft) -> None:
        words = " ".join(d.sentence(name, {"q": str(number)}) for number in range(6) for name in ("weather", "forum"))
        from kaname import Agent, max_steps, no_repeats

        tools = [d.tools["weather"](), d.tools["forum"]()]
        made = Agent(
            d.brain.model(),
            tools,
            name="desk",
            journal=d.journal,
            stops=[max_steps(30), no_repeats(None)],
            policies=[Flow("off")],
        )
        await stage.attempt("practice", _run(made, words))
        d.ledger.deeds.clear()
        d.ledger.seen.clear()

    d.before.insert(0, practise)


async def _run(agent: Any, words: str) -> Any:
    return await agent.run(words)


@feature
def cache(d: Draft, rng: random.Random) -> None:
    """Replies and results are cached in a file."""
    path = str(d.folder / "cache.db") if d.folder is not None else None
    models = rng.random() < 0.5
    d.policies.append(lambda: Cache(path=path, models=models))


@feature
def wrapped(d: Draft, rng: random.Random) -> None:
    """Retry and Timeout stand around everything."""
    d.policies += [lambda: Retry(2, 0.0), lambda: Timeout("1m")]
