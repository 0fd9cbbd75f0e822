"""Features that change the structure: teams, sessions, models of one's own, strangers, journals."""

from __future__ import annotations

import random
from typing import Any

from kaname import ModelBase, ModelReply
from kaname.core.messages import Message, Text, Usage

from .draft import Draft, Hidden
from .registry import feature


@feature
def transfer(d: Draft, rng: random.Random) -> None:
    """A member of the team takes the conversation over."""
    _team(d, rng)
    d.words.append(f"Then transfer. {d.order(('transfer_to_agent', {'agent': 'member', 'reason': 'asked'}))}")
    d.words += d.member_words


@feature
def delegate(d: Draft, rng: random.Random) -> None:
    """A member of the team does a part of the work in a child run."""
    if d.team is not None:
        return
    _team(d, rng)
    task = " ".join(d.member_words)
    d.words.insert(0, f"Delegate. {d.order(('delegate_to_agent', {'agent': 'member', 'task': task}))}")


def _team(d: Draft, rng: random.Random) -> None:
    d.team = {}
    if rng.random() < 0.7:
        d.member_tools.setdefault("pay", d.tools["pay"])
        d.member_words.append(d.sentence("pay", {"yen": 120, "to": "club"}))


@feature
def stranger(d: Draft, rng: random.Random) -> None:
    """Another person writes something that reaches the model by the way in, if it has a place for it."""
    text = d.inject(rng, by="bob")
    d.brain.held.add(len(d.brain.orders))
    d.put("other", text)
    d.words.append("Go ahead.")


class _Own(ModelBase):
    """A model as a user writes it: a class with a name."""

    name = "own"

    def __init__(self, brain: Any, owner: str) -> None:
        self._brain, self._owner = brain, owner

    async def reply(self, request: Any, emit: Any) -> ModelReply:
        said = self._brain.reply(request, self.name, f"reply-of-{self._owner}")
        if isinstance(said, str):
            return ModelReply(Message("assistant", (Text(said),)), "end_turn", Usage(10, 5))
        return ModelReply(Message("assistant", tuple(said)), "tool_use", Usage(10, 5))


@feature
def own_model(d: Draft, rng: random.Random) -> None:
    """Each user has a model of their own class."""
    if d.brain.price is not None:
        return
    d.kwargs["model"] = lambda user: _Own(d.brain, user)
    for user in ("ann", "zoe"):
        d.own(f"reply-of-{user}", user)


@feature
def sqlite(d: Draft, rng: random.Random) -> None:
    """The journal is a file."""
    d.sqlite = True


@feature
def session(d: Draft, rng: random.Random) -> None:
    """The runs are turns of one session."""
    d.session = "s"


@feature
def lasting(d: Draft, rng: random.Random) -> None:
    """People like to allow more than one call."""
    d.forms = ("always", "everywhere", "everywhere", "run", "yes", "args")


@feature
def agreeable(d: Draft, rng: random.Random) -> None:
    """People say yes, or say nothing."""
    d.forms = ("yes", "yes", "args", "silence")


@feature
def parallel(d: Draft, rng: random.Random) -> None:
    """The model makes several calls in one reply."""
    d.brain.at_once = rng.choice((2, 3))


@feature
def patient(d: Draft, rng: random.Random) -> None:
    """Instructions of outsiders are obeyed in a later turn only. Until then the model quotes them in its answers."""
    evil = [number for number, order in d.brain.orders.items() if any(one in repr(order) for one in d.rules.foreign)]
    d.brain.held.update(evil)
    d.turns.append("Go ahead.")


@feature
def person(d: Draft, rng: random.Random) -> None:
    """A tool without code: a person gives its result."""
    schema = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    definition = {"name": "ask_boss", "description": "Ask the boss.", "parameters": schema}
    d.tools["ask_boss"] = lambda: definition
    d.ask("ask_boss", what="is it fine")


@feature
def picture(d: Draft, rng: random.Random) -> None:
    """A client sends a picture by its address, where the protocol has a place for it. kaname serve refuses such addresses."""
    address = "http://10.0.0.7/inside.png"
    d.put("picture", address)
    d.rules.hidden.append(Hidden(address, "address"))
