"""The features of random agents. Each is one function on the draft; `rng` is its own source of chance.

To add one, write a function with `@feature`. It must make sense with every other feature, and must declare in `draft.rules`
what the docs promise about it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kaname import Approve, Flow, Guardrails, Permit, Privacy, ToolFallback

from .draft import ApprovalRule, Draft, Hidden, ToolContext, ToolFacts, ToolLabels, tool

Feature = Callable[[Draft, random.Random], None]
FEATURES: dict[str, Feature] = {}


def feature(function: Feature) -> Feature:
    """Register a feature under the name of its function."""
    FEATURES[function.__name__] = function
    return function


# Tools


@feature
def _base(d: Draft, rng: random.Random) -> None:
    """A tool that acts and one that looks up, and a user who asks for both."""
    ledger = d.ledger
    background = d.has("background")
    effect: Any = d.rng("effect").choice(("irreversible", "irreversible", "idempotent"))

    def pay() -> Any:
        @tool(effect=effect, background=background, labels=ToolLabels(result="trusted"))
        async def pay(yen: float, to: str, context: ToolContext, note: str = "rent") -> str:
            """Pay an amount to somebody."""
            ledger.deed("pay", {"yen": yen, "to": to, "note": note}, context)
            return "paid"

        return pay

    def lookup() -> Any:
        @tool(effect="pure", labels=ToolLabels(result="trusted"))
        async def lookup(q: str, context: ToolContext) -> str:
            """Look something up."""
            ledger.deed("lookup", {"q": q}, context)
            return f"nothing about {q}"

        return lookup

    d.add_tool(ToolFacts("pay", effect, {"note": "rent"}), pay)
    d.add_tool(ToolFacts("lookup", "pure", acts=False), lookup)
    if rng.random() < 0.8:
        d.ask("pay", yen=rng.choice((100, 250)), to="shop")
    if rng.random() < 0.4:
        d.ask("lookup", q="prices")


@feature
def equal_call(d: Draft, rng: random.Random) -> None:
    """The user asks for an equal call again, written in another way."""
    d.ask("pay", **rng.choice(({"yen": 100.0, "to": "shop"}, {"yen": 100, "to": "shop", "note": "rent"})))


@feature
def mail(d: Draft, rng: random.Random) -> None:
    """A tool whose result other people write, with an instruction in it."""
    ledger, text = d.ledger, d.inject(rng)

    def read_mail() -> Any:
        @tool(effect="pure", labels=ToolLabels(result="untrusted"))
        async def read_mail(context: ToolContext) -> str:
            """Read the mails."""
            ledger.deed("read_mail", {}, context)
            return text

        return read_mail

    d.add_tool(ToolFacts("read_mail", "pure", acts=False, outside=True), read_mail)
    d.words.insert(0, d.sentence("read_mail", {}))


@feature
def secret(d: Draft, rng: random.Random) -> None:
    """A tool with a secret argument."""
    from pydantic import SecretStr

    ledger, background = d.ledger, d.has("background")

    def login() -> Any:
        @tool(background=background, labels=ToolLabels(result="trusted"))
        async def login(host: str, password: SecretStr, context: ToolContext) -> str:
            """Log in."""
            ledger.deed("login", {"host": host, "password": password.get_secret_value()}, context)
            return "in"

        return login

    d.add_tool(ToolFacts("login", secrets=frozenset({"password"})), login)
    d.ask("login", host="db", password="hunter2-77")


@feature
def background(d: Draft, rng: random.Random) -> None:
    """Tools work in the background (read by the tools above)."""
    d.session = d.session or "s"


# Policies


def _approve(d: Draft, rng: random.Random, **more: Any) -> None:
    tools = rng.choice((("pay",), ("pay",), ()))
    d.rules.approvals.append(
        ApprovalRule(frozenset(tools), more.get("by", ""), "expires" in more, more.get("then", "refuse"), agent="desk")
    )
    d.policies.append(lambda: Approve(*tools, **more))
    if "expires" in more:
        d.waits = 0.03


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
    _approve(d, rng, expires=0.02, then=rng.choice(("refuse", "approve")))


@feature
def flow(d: Draft, rng: random.Random) -> None:
    """A written Flow."""
    mode: Any = rng.choice(("strict", "strict", "everything"))
    d.rules.flow = mode
    d.policies.append(lambda: Flow(mode))


# Moves


@feature
def fork(d: Draft, rng: random.Random) -> None:
    """Somebody forks a run of the case, at a random fact."""

    async def move(stage: Any, d: Draft) -> None:
        for run_id, user in stage.runs[:1]:
            cards = await stage.agent.journal.runs(run_id=run_id)
            if not cards:
                continue
            at = rng.randint(2, max(2, cards[0].seq))
            run = stage.agent.fork(run_id, at)
            stage.ledger.forks[run.run_id] = run_id
            result = await stage.attempt("fork", _await(run))
            if result is not None:
                await stage.settle(result, user)

    d.moves.append(move)


async def _await(run: Any) -> Any:
    return await run


@feature
def replay(d: Draft, rng: random.Random) -> None:
    """A recorded run is replayed with the same agent."""

    async def move(stage: Any, d: Draft) -> None:
        for run_id, _ in stage.runs:
            done = await stage.attempt("replay", d.make().replay(run_id))
            if done is not None and not done.same:
                stage.ledger.replays.append((run_id, str(done.differences[0]) if getattr(done, "differences", None) else str(done)))

    d.moves.append(move)


@feature
def kill(d: Draft, rng: random.Random) -> None:
    """The process is killed at a random fact."""

    async def move(stage: Any, d: Draft) -> None:
        stage.journal.die_after(rng.randint(0, 12), written=rng.random() < 0.5)

    d.before.append(move)


@feature
def again(d: Draft, rng: random.Random) -> None:
    """The user asks again in another run."""
    d.turns.append(d.sentence("pay", {"yen": 100, "to": "shop"}))
