"""Make the parts of an agent from the values of its keys: policies, context parts, stop rules and sinks.

Each row of `keys.py` that makes a part names one of these functions. A maker returns a part or a list of them, and raises what
is wrong with its value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from inspect import isclass
from pathlib import Path
from typing import Any

import kaname.sinks

from ..core.errors import AgentError, ConfigError, nearest
from ..core.notices import notice
from ..core.project import FOLDER
from ..core.record import record
from ..kernel.ports import Policy, Sink
from ..strategies.stop import cost, deadline, max_steps, no_repeats, per_tool
from ..tools.loading import object_from

RULES: dict[str, Any] = {
    "max_steps": max_steps,
    "cost": cost,
    "deadline": deadline,
    "no_repeats": no_repeats,
    "per_tool": per_tool,
}


@record
class Making:
    """What makers know besides the value of their key.

    `names`: the tools of the agent; None if some are not known yet, because they are tools of servers or could not be loaded.
    `alone`: whether this is the only agent of the file. `wrong` reports a mistake at a place below the agent.
    """

    folder: Path
    value: Mapping[str, Any]
    names: frozenset[str] | None
    alone: bool
    cache_path: str
    wrong: Callable[[tuple[str, ...], str], None]

    def make(self, maker: Callable[[Making, Any], Any], name: str) -> list[Any]:
        """Return the parts of a key. What is wrong with its value is reported."""
        made = self.attempt(lambda: maker(self, self.value[name]), name)
        return made if isinstance(made, list) else [] if made is None else [made]

    def attempt(self, make: Callable[[], Any], *where: str) -> Any:
        """Return the result of a function, or report its error and return None."""
        try:
            return make()
        except (AgentError, TypeError) as problem:
            self.wrong(where, str(problem))
            return None

    def check_names(self, names: Iterable[str], *where: str) -> None:
        """Report names that are not the name of a tool: they would guard nothing."""
        for name in names if self.names is not None else ():
            if name not in (self.names or ()):
                self.wrong(
                    where, notice("config.no_tool", "there is no tool {name!r}", name=name) + nearest(name, self.names or ())
                )

    def load(self, places: Iterable[str] | None, *where: str) -> list[Any]:
        """Return the objects that the file names. Those that cannot be loaded are reported."""
        loaded = [
            self.attempt(lambda place=place: object_from(place, self.folder), *where, str(number))  # type: ignore[misc]
            for number, place in enumerate(places or ())
        ]
        return [one for one in loaded if one is not None]


def stops(making: Making, value: Mapping[str, Any]) -> list[Any]:
    return [RULES[name](limit) for name, limit in value.items()]


def tool_search(making: Making, value: Mapping[str, Any]) -> Any:
    return kaname.ToolSearch(**value)


def permissions(making: Making, value: Mapping[str, Any]) -> Policy:
    return permit_of(making.folder, making.alone, **value)


def permit_of(folder: Path, alone: bool, **value: Any) -> Policy:
    """Return the policy that keeps the permissions of a file. `alone`: only one agent has them."""
    files = {key: folder / Path(value[key]).expanduser() for key in ("cedar", "entities") if value.get(key)}
    permit = kaname.Permit(value.get("rules"), roles=value.get("roles"), resources=value.get("resources"), **files)
    permit.checks_names = alone  # otherwise a rule can be about a tool of another agent
    return permit


def policies(making: Making, places: list[str]) -> list[Policy]:
    made = []
    for number, place in enumerate(places):
        where = ("policies", str(number))
        found = making.attempt(lambda place=place: object_from(place, making.folder), *where)  # type: ignore[misc]
        policy = making.attempt(found, *where) if isclass(found) else found
        if isinstance(policy, Policy):
            made.append(policy)
        elif policy is not None:
            making.wrong(
                where, notice("config.no_policy", "{place} is not a policy: derive it from kaname.Policy", place=place)
            )
    return made


def guardrails(making: Making, value: Mapping[str, Any]) -> Policy:
    rules = value.get("tools") or {}
    making.check_names([name for name in rules if name != "*"], "guardrails", "tools")
    checks = ("input_checks", "output_checks", "result_checks")
    loaded = {name: making.load(value.get(name), "guardrails", name) for name in checks}
    return kaname.Guardrails(
        **{**value, **loaded, "tools": [kaname.ToolRule(name, **(rule or {})) for name, rule in rules.items()]}
    )


def flow(making: Making, value: Mapping[str, Any] | str) -> Policy:
    options: dict[str, Any] = {"mode": value} if isinstance(value, str) else dict(value)
    making.check_names(options.get("labels") or (), "flow", "labels")
    return kaname.Flow(**options)


def privacy(making: Making, value: Mapping[str, Any] | bool) -> Policy:
    options = {} if value is True else dict(value or {})
    return kaname.Privacy(**{**options, "detectors": making.load(options.get("detectors"), "privacy", "detectors")})


def approve(making: Making, names: list[str]) -> Policy:
    making.check_names(names, "approve")
    return kaname.Approve(*names, **(making.value.get("approval") or {}))


def equals(making: Making, lists: list[list[str]]) -> list[Any]:
    for number, names in enumerate(lists):
        making.check_names(names, "equals", str(number))
    made = [making.attempt(lambda names=names: kaname.Equals(*names), "equals", str(n)) for n, names in enumerate(lists)]  # type: ignore[misc]
    return [one for one in made if one is not None]


def fallback(making: Making, value: Mapping[str, Any]) -> Policy:
    options = dict(value)
    stand_ins = options.pop("tools", None) or {}
    making.check_names([*stand_ins, *stand_ins.values()], "fallback", "tools")
    return kaname.FallbackStrategy(fallback=stand_ins, **options)


def cache(making: Making, value: Mapping[str, Any] | bool) -> Policy:
    return kaname.Cache(**{**({} if value is True else dict(value or {})), "path": making.cache_path})


def limits(making: Making, value: Mapping[str, Any]) -> list[Policy]:
    """Return the budget, and the policies that make work wait: for the machine, and for the rate limits."""
    budget, machine = value.get("budget"), value.get("machine")
    rates = {name: value[name] for name in ("requests", "tokens", "at_once") if name in value}
    if budget is not None:
        making.check_names(budget.get("tools") or (), "limits", "budget", "tools")
    made = [
        making.attempt(lambda: kaname.Budget(**budget), "limits", "budget") if budget is not None else None,
        making.attempt(lambda: kaname.Machine(**machine), "limits", "machine") if machine is not None else None,
        kaname.Pace(**rates) if rates else None,
    ]
    return [policy for policy in made if policy is not None]


def project(making: Making, value: bool | str) -> Any:
    return kaname.ProjectContext(making.folder.resolve() / (value if isinstance(value, str) else "."))


def compact(making: Making, tokens: int) -> Any:
    return kaname.Compact(tokens)


def results(making: Making, value: Mapping[str, Any] | bool) -> Any:
    return kaname.LargeResults(**(value if isinstance(value, Mapping) else {}))


def todo(making: Making, value: bool) -> Any:
    return kaname.Todo()


def memory(making: Making, learn: Any) -> Any:
    return kaname.Memory(making.folder.resolve() / FOLDER / "memory", learn=learn)


def lessons(making: Making, mode: Any) -> Any:
    return kaname.Lessons(mode)


def sinks(trace: Mapping[str, Any], folder: Path, wrong: Callable[[str, str], None]) -> list[Sink]:
    """Make the sinks that `trace:` asks for. The agents of one file share them."""
    made: list[Sink] = []
    for name, value in trace.items():
        try:
            made.append(_sink(name, json.dumps(value, sort_keys=True), str(folder.resolve())))
        except AgentError as problem:
            wrong(name, str(problem))
    return made


@lru_cache(maxsize=64)
def _sink(name: str, text: str, folder: str) -> Sink:
    value: Any = json.loads(text)
    if name == "console":
        return kaname.sinks.Console(**(value if isinstance(value, dict) else {"level": value}))
    if name == "file":
        options = dict(value) if isinstance(value, dict) else {"path": value}
        return kaname.sinks.JsonLines(Path(folder) / Path(options.pop("path")).expanduser(), **options)
    return kaname.sinks.OpenTelemetry(**(value if isinstance(value, dict) else {"endpoint": value}))


def trace_from(words: str) -> Sink:
    """Return the sink that an option names: `console`, `console=debug`, `otel`, `otel=http://localhost:4318`, or a path."""
    name, _, value = words.partition("=")
    if name == "console":
        return _sink("console", json.dumps(value or "info"), ".")
    if name == "otel":
        return _sink("otel", json.dumps(value), ".")
    if "=" in words or "://" in words or not any(mark in words for mark in "./\\"):  # a word that is not a path
        raise ConfigError.of("trace.place", "a trace must go to console, otel=URL or a file, not {words!r}", words=words)
    return _sink("file", json.dumps(words), str(Path.cwd()))
