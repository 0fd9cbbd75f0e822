"""`AdaptiveAgent`: an agent that chooses between alternatives by what they have achieved (Thompson sampling).

agent = AdaptiveAgent("openai/gpt-5.4", [search], alternatives={"short": {"instructions": "Answer in one sentence."}})

The journal is the only memory. Each run records its alternative in its first fact, and rewards are computed from the facts of
the last runs. So no reward is lost, however many processes there are, and a rating counts whenever it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from copy import copy
from math import inf
from random import Random
from typing import Any

from ..agent.agent import Agent
from ..core.codec import digest
from ..core.errors import ConfigError, RunNotFound, nearest
from ..core.events import Asked, Custom, Opened, Stopped
from ..core.notices import notice
from ..core.record import record
from ..core.runs import UNDER_WAY, is_own_run
from ..kernel.channel import Channel
from ..kernel.load import list_runs, read_run
from ..kernel.ports import Recipe
from ..kernel.scope import Scope
from ..run.figures import RATING
from ..run.input import check_argument
from ..run.opener import Opener
from ..run.recipe import changed_recipe
from ..run.request import RunRequest
from ..run.result import OutputT
from ..tools.registry import ToolRegistry
from .case import without_address

DEFAULT = "default"  # the agent without changes
CHOICE = "choice"  # the key of a choice in the description of the agent, in the first fact of a run
_CHANGES = ("instructions", "model", "tools", "settings")


@record
class Reward:
    """Say what counts, and how much. The reward of a run is the mean of what is known of it, by these weights, from 0 to 1.

    `outcome`: 1 if the run completed. `rating`: 1 for good, 0 for bad. `cost` and `time`: 1 for nothing, 0.5 for the median of
    the last runs, and less for more. The time of runs that asked a person, and the outcome of cancelled runs, do not count.
    """

    outcome: float = 1.0
    rating: float = 1.0
    cost: float = 0.0
    time: float = 0.0


@record
class Standing:
    """Say what an alternative has achieved: the number of runs of this kind, those with a reward, and their mean reward."""

    kind: str
    alternative: str
    runs: int
    rewarded: int
    reward: float | None


@record
class _Trial:
    seq: int
    choice: Mapping[str, Any]
    terms: Mapping[str, float]  # outcome and rating from 0 to 1, cost in dollars, time in seconds


class _Opener(Opener):
    """Records the choice with the description of the agent, in the first fact."""

    choice: Mapping[str, Any]

    async def _description(self) -> Mapping[str, Any]:
        return {**await super()._description(), CHOICE: self.choice}


class AdaptiveAgent(Agent[OutputT]):
    """An agent that chooses between alternatives by what they have achieved.

    Args:
        model, tools, options: Those of `Agent`. The agent as it is given is the alternative "default".
        alternatives: Changes by name: `instructions`, `model`, `settings`, `tools` (the names of those that it has).
        reward: What counts (default: the outcome and people's ratings, equally).
        kind_of: A function from the text of a request to the kind of task (default: all tasks are alike).
        explore: The share of runs that try something other than the best alternative so far (default: 0.2 at most).
        window: How many of the last runs count, so that what changes over time is noticed (default: 300).
        seed: For the same choices each time, in tests.

    A run that is resumed keeps its alternative, and so does a conversation. Runs with a model or settings of their own
    (`run(…, model=…)`) choose nothing.
    """

    def __init__(
        self,
        model: Any = None,
        tools: Iterable[Any] = (),
        *,
        alternatives: Mapping[str, Mapping[str, Any]],
        reward: Reward | None = None,
        kind_of: Callable[[str], str] | None = None,
        explore: float = 0.2,
        window: int = 300,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, tools, **options)
        _check(alternatives, reward, kind_of, explore, window, seed)
        self._reward, self._kind_of, self._explore, self._window = reward or Reward(), kind_of, explore, window
        self._random, self._trials = Random(seed), dict[str, _Trial]()
        self._recipes = {DEFAULT: self.recipe}
        for name, changes in alternatives.items():
            self._recipes[name] = self._with_changes(name, changes)
        self._versions = {name: _version(recipe) for name, recipe in self._recipes.items()}

    @property
    def alternatives(self) -> tuple[Recipe, ...]:
        """Return the recipes that it can choose in addition to its own."""
        return tuple([recipe for name, recipe in self._recipes.items() if name != DEFAULT])

    def _with_changes(self, name: str, changes: Mapping[str, Any]) -> Recipe:
        tools = changes.get("tools", ())
        wrong = [one for one in changes if one not in _CHANGES] + [one for one in tools if one not in self.tools]
        if wrong or name in self._recipes:
            what = wrong[0] if wrong else name
            message = notice("adaptive.alternative", "the alternative {name!r} cannot have {what!r}", name=name, what=what)
            raise ConfigError(message + nearest(what, [*_CHANGES, *self.tools]))
        made = changed_recipe(self.recipe, changes.get("model"), changes.get("settings"), changes.get("instructions"))
        return made.with_changes(tools=ToolRegistry([self.tools[one] for one in tools])) if "tools" in changes else made

    async def standings(self) -> list[Standing]:
        """Return the results of each alternative in the last runs, by kind of task."""
        trials = await self._read()
        return [one for kind in sorted({one.choice["kind"] for one in trials}) for one in self._standings(kind, trials)]

    def _standings(self, kind: str, trials: Iterable[_Trial]) -> list[Standing]:
        own = [one for one in trials if one.choice["kind"] == kind]
        usual = {name: _middle([one.terms[name] for one in own if name in one.terms]) for name in ("cost", "time")}
        made = list[Standing]()
        for name in self._recipes:
            of = [one for one in own if one.choice["alternative"] == name]
            rewards = [reward for one in of if (reward := self._reward_of(one, usual)) is not None]
            mean = sum(rewards) / len(rewards) if rewards else None
            made.append(Standing(kind, name, len(of), len(rewards), mean))
        return made

    def _reward_of(self, trial: _Trial, usual: Mapping[str, float]) -> float | None:
        known = {name: (1 / (1 + value / usual[name]) if usual[name] else 1.0) if name in usual else value
                 for name, value in trial.terms.items() if getattr(self._reward, name)}  # fmt: skip
        weight: float = sum([getattr(self._reward, name) for name in known])
        return sum([getattr(self._reward, name) * value for name, value in known.items()]) / weight if weight else None

    async def _read(self) -> list[_Trial]:
        """Return the last runs with a choice between the alternatives of today. Only runs that have changed are read."""
        trials = dict[str, _Trial]()
        for card in await list_runs(self.journal, is_own_run, agent=self.name, limit=self._window):
            trial = self._trials.get(card.run_id)
            if trial is None or (trial.seq != card.seq and card.status not in UNDER_WAY):
                trial = await self._read_trial(card.run_id, card.cost)
            trials[card.run_id] = trial
        self._trials, versions = trials, self._versions.items()
        return [one for one in trials.values() if (one.choice.get("alternative"), one.choice.get("version")) in versions]

    async def _read_trial(self, run_id: str, cost: float | None) -> _Trial:
        try:
            events = await read_run(self.journal, run_id)
        except RunNotFound:  # deleted since
            return _Trial(0, {}, {})
        opened, terms = events[0].body, dict[str, float]()
        for event in events:
            match event.body:
                case Stopped(stop) if stop.kind != "cancelled":
                    terms |= {"outcome": float(stop.kind == "completed"), "time": event.time - events[0].time}
                    terms |= {} if cost is None else {"cost": cost}
                case Custom(name, data) if name == RATING and isinstance(data, dict):
                    terms["rating"] = float(data.get("rating") == "good")
        if any(isinstance(event.body, Asked) for event in events):
            terms.pop("time", None)
        return _Trial(events[-1].seq, opened.recipe.get(CHOICE, {}) if isinstance(opened, Opened) else {}, terms)

    async def _choose(self, text: str) -> dict[str, Any]:
        """Choose an alternative for a task, and say why."""
        kind = str(self._kind_of(text)) if self._kind_of is not None else ""
        trials = await self._read()
        standings = self._standings(kind, trials)
        explored = len([one for one in trials if one.choice["kind"] == kind and one.choice["explored"]])
        chosen, best = choose(standings, explored, self._explore, self._random)
        seen = {one.alternative: [one.rewarded, one.reward and round(one.reward, 3)] for one in standings}
        what = {"alternative": chosen, "version": self._versions[chosen], "kind": kind}
        return {**what, "best": best, "explored": chosen != best, "seen": seen}

    async def _choice_of(self, run_id: str) -> dict[str, Any]:
        """Return the choice of a run; empty if there is no such run, or it has chosen nothing."""
        try:
            opened = (await read_run(self.journal, run_id, 1))[0].body
        except RunNotFound:
            return {}
        return dict(opened.recipe.get(CHOICE, {})) if isinstance(opened, Opened) else {}

    async def _open_run(self, opener: Opener, request: RunRequest, channel: Channel, stack: AsyncExitStack) -> Scope:
        if opener.recipe is self.recipe:
            opener = await self._opener_for(opener, request)
        return await super()._open_run(opener, request, channel, stack)

    async def _opener_for(self, opener: Opener, request: RunRequest) -> Opener:
        """Return an opener with the alternative of the run, of the run that it continues, or with a new choice."""
        source = request.source[0] if request.how == "fork" else request.run_id
        if request.how != "new" and ((choice := await self._choice_of(source)) or request.how != "either"):
            return self._opener(self._recipes.get(choice.get("alternative", ""), self.recipe))
        cards = await self.journal.runs(session=request.session, agent=self.name, user=request.user, limit=1)
        choice = await self._choice_of(cards[0].run_id) if cards and request.session else {}
        if not choice or self._versions.get(choice["alternative"]) != choice["version"]:
            choice = await self._choose(request.messages[-1].text)
        made = _Opener(self._recipes[choice["alternative"]], opener.journal, opener.sinks, self._description, self._recent)
        made.choice = choice
        return made

    async def replay(self, run_id: str, **options: Any) -> Any:
        """Replay a run with its alternative: see `Agent.replay`."""
        plain = copy(self)
        plain.recipe = self._recipes.get((await self._choice_of(run_id)).get("alternative", ""), self.recipe)
        return await Agent.replay(plain, run_id, **options)


def refuse_alternatives(agent: Agent[Any]) -> None:
    """Raise `ConfigError` for an agent that chooses its own texts: a change of them would not be what is measured."""
    if isinstance(agent, AdaptiveAgent):
        raise ConfigError.of(
            "adaptive.fixed", "an AdaptiveAgent chooses between its alternatives. Improve an Agent, and add the result"
        )


def choose(standings: Sequence[Standing], explored: int, explore: float, random: Random) -> tuple[str, str]:
    """Return the alternative to use, and the best one so far: Thompson sampling, unless enough has been explored.

    Args:
        standings: The alternatives. The first one is the best as long as no run has a reward.
        explored: How many of the runs have tried something other than the best alternative at their time.
        explore: The share of runs that can do so.
        random: Where chance comes from.
    """
    best = max(standings, key=lambda one: -1.0 if one.reward is None else one.reward).alternative
    if explored > explore * sum([one.runs for one in standings], 1):
        return best, best
    drawn = dict[str, float]()
    for one in standings:
        good = (one.reward or 0.0) * one.rewarded
        drawn[one.alternative] = random.betavariate(1 + good, 1 + one.rewarded - good)
    return max(drawn, key=lambda name: drawn[name]), best


def explain_choice(description: Mapping[str, Any]) -> str:
    """Return in words what was chosen and why, from the description of the agent in the first fact; "" without a choice."""
    choice = description.get(CHOICE)
    if not choice:
        return ""
    seen = "; ".join([f"{name} {'-' if mean is None else mean} ({runs})" for name, (runs, mean) in choice["seen"].items()])
    name, kind, best = choice["alternative"], choice["kind"] or "-", choice["best"]
    return notice("adaptive.chosen", "{name} (best so far: {best}; kind of task: {kind}; mean rewards and runs: {seen})",
                  name=name, best=best, kind=kind, seen=seen)  # fmt: skip


def _check(alternatives: Any, reward: Any, kind_of: Any, explore: Any, window: Any, seed: Any) -> None:
    """Check what an `AdaptiveAgent` was given. Raises `ConfigError`."""

    def check(fits: bool, name: str, what: str, given: Any) -> None:
        check_argument(fits, f"AdaptiveAgent({name}=…)", what, given)

    check(isinstance(alternatives, Mapping), "alternatives", "a mapping of names to changes", alternatives)
    for name, changes in alternatives.items():
        check(isinstance(changes, Mapping), f"alternatives[{name!r}]", 'a mapping such as {"instructions": "…"}', changes)
        for part, kind, what in (("tools", list | tuple | set, "a list of names"), ("settings", Mapping, "a mapping"),
                                 ("instructions", str, "a text")):  # fmt: skip
            fits = part not in changes or isinstance(changes[part], kind)
            check(fits, f'alternatives[{name!r}]["{part}"]', what, changes.get(part))
    weights = [1.0] if reward is None else [getattr(reward, one, None) for one in Reward.__match_args__]
    good = all(isinstance(one, int | float) and 0 <= one < inf for one in weights) and any(weights)
    check(good, "reward", "a Reward with weights from 0 up, and one above 0", reward)
    check(kind_of is None or callable(kind_of), "kind_of", "a function of a text", kind_of)
    check(isinstance(explore, int | float) and 0 <= explore <= 1, "explore", "a number from 0 to 1", explore)
    check(isinstance(window, int) and window >= 1, "window", "a number of runs from 1 up", window)
    check(seed is None or isinstance(seed, int), "seed", "a whole number", seed)


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def _version(recipe: Recipe) -> str:
    """Return a fingerprint of what an alternative can change. Runs of a changed alternative do not count for it."""
    model = "" if recipe.model is None else recipe.model.name
    return digest([recipe.instructions, model, [*recipe.tools], without_address(repr(recipe.settings))])[:12]
