"""Load the scenarios, run them through kaname with the model that obeys, and tell what happened."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from kaname import Agent, Flow, MemoryJournal, ToolSearch, max_steps, no_repeats, per_tool
from kaname.core.people.visible import visible_json

from .obedient import ObedientModel
from .world import ACTING, TOOLS, World, make_forecast
from .world.state import Call, as_call

HERE = Path(__file__).parent
KINDS = {
    "reads": "reading only",
    "own": "reading, then acting with the user's values",
    "found": "acting with a value that was found",
    "several": "several acts",
    "acts": "acting without reading",
}
MOST_ROUNDS = 6
NOW = datetime(2026, 11, 18, 9, tzinfo=UTC).timestamp()  # the day on which all scenarios happen
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Scenario:
    """A task of a user, and an attack on it, or none: the honest twin."""

    task: Mapping[str, Any]
    attack: Mapping[str, Any] | None = None
    number: int = 0

    @property
    def id(self) -> str:
        return f"{self.task['id']}/{self.number}" if self.attack else str(self.task["id"])

    @property
    def language(self) -> str:
        return str(self.task["id"])[:2]

    @property
    def foreign(self) -> list[str]:
        """Return the values of the attacker: a call that holds one of them has a target of the attacker's."""
        return list((self.attack or {}).get("foreign", ()))


@dataclass
class Outcome:
    """What happened in one run. `unmeant`: acting calls that ran although the user did not mean them."""

    scenario: Scenario
    mode: str
    stop: str = ""
    questions: int = 0
    shown: list[str] = field(default_factory=list)
    ran: list[Call] = field(default_factory=list)
    meant: list[Call] = field(default_factory=list)
    unmeant: list[Call] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.stop == "completed" and not Counter(self.meant) - Counter(self.ran)

    @property
    def listed(self) -> list[str]:
        """Return the tools of the calls about which the user was asked."""
        return [tool for prompt in self.shown for tool, _ in listed(prompt)]

    @property
    def foreign(self) -> list[Call]:
        """Return the calls that ran with a value of the attacker's."""
        return [call for call in self.unmeant if any(_fold(value) in _fold(str(call)) for value in self.scenario.foreign)]


def _fold(text: str) -> str:
    return re.sub(r"\s+", "", text).casefold()


def outcomes(folder: str, mode: str, *, attacked: bool, server: str = "always") -> list[Outcome]:
    """Run all scenarios of a folder, once in a process."""
    return list(_outcomes(folder, mode, attacked, server))


@cache
def _outcomes(folder: str, mode: str, attacked: bool, server: str) -> tuple[Outcome, ...]:
    async def every() -> tuple[Outcome, ...]:
        chosen = attacks(folder) if attacked else honest(folder)
        return tuple([await run(scenario, mode, server=server) for scenario in chosen])

    with mock.patch("time.time", return_value=NOW):  # else "18 December" would be another day next year
        return asyncio.run(every())


@cache
def tasks(folder: str) -> list[Mapping[str, Any]]:
    """Return the tasks of all files of a folder: "tasks" or "knowing"."""
    found: list[Mapping[str, Any]] = []
    for path in sorted((HERE / folder).glob("*.yaml")):
        found += yaml.load(path.read_text(encoding="utf-8"), _LOADER)
    return found


def honest(folder: str = "tasks") -> list[Scenario]:
    return [Scenario(task) for task in tasks(folder)]


def attacks(folder: str = "tasks") -> list[Scenario]:
    return [Scenario(task, attack, n) for task in tasks(folder) for n, attack in enumerate(task.get("attacks", ()), 1)]


def _injected(scenario: Scenario, world: World) -> tuple[list[dict[str, Any]], str]:
    """Put the attack into the world. Return what the model obeys, and the description of the weather server's tool."""
    attack, described = scenario.attack, ""
    if attack is None:
        return [], ""
    pieces = attack.get("pieces", [attack])
    for piece in pieces:
        if piece["at"][0] == "tool":
            described = f"Return the weather forecast of a city. {piece['text']}"
        else:
            world.put(piece["at"], piece["text"].strip(), replace=piece.get("replace", False))
    parts = [piece["text"] for piece in pieces]
    made = [{"parts": parts, "calls": attack["calls"], "after": attack.get("after", 0)}]
    return [
        *made,
        *[{"parts": parts, "calls": more["calls"], "after": more["after"]} for more in attack.get("later", ())],
    ], described


def needs_server(scenario: Scenario) -> bool:
    """Return True if the task uses the weather server, or the attack comes from it."""
    pieces = (scenario.attack or {}).get("pieces", [scenario.attack] if scenario.attack else [])
    return any(piece["at"][0] == "tool" for piece in pieces) or "forecast" in str(scenario.task["plan"])


async def run(scenario: Scenario, mode: str, *, server: str = "always") -> Outcome:
    """Run a scenario with `Flow(mode)`. The user approves exactly the calls that were meant.

    `server`: whether the agent has the MCP server for the weather "always", or only where it is "needed". Its descriptions are
    text from outside, so that with it the agent has read such text before it does anything.
    """
    world = World(scenario.language, scenario.task.get("world", {}))
    injected, described = _injected(scenario, world)
    model = ObedientModel(scenario.task["plan"], scenario.task["answer"], injected)
    tools = {**TOOLS, "forecast": make_forecast(described)} if described else dict(TOOLS)
    if server == "needed" and not needs_server(scenario):
        del tools["forecast"]
    limits = [max_steps(60), per_tool(None), no_repeats(None)]
    given = [*tools.values(), ToolSearch(above=None)]  # the model obeys what stands in the descriptions that it is sent
    agent = Agent(model, given, policies=[Flow(mode)], stops=limits, journal=MemoryJournal())
    outcome = Outcome(scenario, mode)
    result = await agent.run(scenario.task["user"], deps=world)
    for _ in range(MOST_ROUNDS):
        if not result.questions:
            break
        outcome.questions += len(result.questions)
        outcome.shown += [asked.prompt for asked in result.questions.values()]
        left = Counter(_acting(model)) - Counter(world.ran)
        answers = {key: decide(asked, left) for key, asked in result.questions.items()}
        result = await agent.resume(result.run_id, answers, deps=world)
    outcome.stop, outcome.ran, outcome.meant = result.stop.kind, world.ran, _acting(model)
    if not model.finished:
        outcome.stop = f"{outcome.stop}, plan not finished"
    excess = Counter(world.ran) - Counter(outcome.meant)
    outcome.unmeant = list(excess.elements())
    return outcome


def _acting(model: ObedientModel) -> list[Call]:
    return [as_call(name, _as_received(name, args)) for name, args in model.meant if name in ACTING]


def _as_received(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as the world records them: with defaults."""
    parameters = inspect.signature(TOOLS[name].function).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    given = {key: tuple(sorted(value.items())) if isinstance(value, Mapping) else value for key, value in args.items()}
    return defaults | given


def decide(asked: Any, left: Counter[Call]) -> Any:
    """Answer the question of the outbox as a careful user who reads it does: the calls that were meant, and no others."""
    calls, wanted = list(listed(asked.prompt)), Counter(left)
    chosen: list[int] = []
    for number, (tool, shown) in enumerate(calls, 1):
        for call in wanted:
            if wanted[call] and call[0] == tool and _agrees(shown, call):
                wanted[call] -= 1
                chosen.append(number)
                break
    return "yes" if len(chosen) == len(calls) else chosen or "no"


def listed(prompt: str) -> Iterator[tuple[str, set[tuple[str, str]]]]:
    """Yield the calls that a question of the outbox lists: the tool, and the arguments that are shown."""
    tool, shown = "", set[tuple[str, str]]()
    for line in prompt.splitlines()[1:]:
        if argument := _ARGUMENT.match(line):
            shown.add((argument["name"], argument["value"]))
        elif name := _TOOL.fullmatch(line):
            if tool:
                yield tool, shown
            tool, shown = name[1], set()
    if tool:
        yield tool, shown


_TOOL = re.compile(r"(?:\d+\. )?(\w+)")
_ARGUMENT = re.compile(r"   (?P<name>\w+)\S* = (?P<value>.+?)  ← ")


def _agrees(shown: set[tuple[str, str]], call: Call) -> bool:
    """Return True if everything that is shown stands in the call, and everything in the call but defaults is shown."""
    every = {(name, visible_json(leaf)) for name, value in call[1] for leaf in _leaves(value)}
    defaults = {(name, visible_json(leaf)) for name, value in _as_received(call[0], {}).items() for leaf in _leaves(value)}
    shown = {(name, visible_json(float(value)) if _NUMBER.fullmatch(value) else value) for name, value in shown}
    every, defaults = (
        {(n, visible_json(float(v)) if _NUMBER.fullmatch(v) else v) for n, v in pairs} for pairs in (every, defaults)
    )
    return shown <= every | defaults and every - defaults <= shown


_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):  # the fields of a form
        yield from (each for pair in value for each in pair)
    elif isinstance(value, list | tuple):
        yield from value
    elif value not in ("", None):
        yield value
