"""Workflow files: YAML as people write it, checked as a whole, every mistake with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..config.keys import block, key
from ..config.load import Reading, check
from ..core.durations import seconds
from ..core.errors import ConfigError, nearest
from ..core.notices import join_notices, notice
from ..kernel.ports import Action
from ..people.person import ASK
from ..strategies.graph.check import Problem
from ..strategies.graph.expression import BadExpression, Expression, template
from ..strategies.graph.task import ALWAYS, ON_FAILURE, Task, Use
from ..tools.loading import all_tools
from ..tools.registry import as_action
from .actions import RunAgent, RunWorkflow

Where = tuple[str, ...]
_MOST_ROUNDS = 10
_NAMES: dict[str, Any] = {"anyOf": [key("string"), key("strings")]}
_TIME = "string|number"
_USE = {"anyOf": [key("string"), block("", "", {"tool": key("string"), "args": key("object")}, required=["tool"])]}
# fmt: off
_STEP = block("", "", {
    "name": key("string", "The name, for steps that wait for this one or use its output."),
    "tool": key("string", "The tool to use."),
    "args": key("object", "Its arguments; ${step.key}, ${params.name} and the like are filled in."),
    "ask": key("string", "A question to a person; the answer is the output of the step."),
    "options": key("strings", "The answers to choose from."),
    "agent": key("string", "An agent of kaname.yaml."),
    "input": key("", "The input of the agent."),
    "workflow": key("string", "Another workflow file."),
    "with": key("object", "Its parameters."),
    "depends_on": {**_NAMES, **key("", "Steps to wait for, in addition to those that its expressions reference.")},
    "condition": key("string|boolean", "always, on_failure, or an expression such as rows > 0."),
    "needs": key("string|integer", "How many of depends_on must succeed: all, any, or a number.", default="all"),
    "for_each": key("string|array", "Run once for each item; item and index are filled in."),
    "until": key("string", "Repeat until this holds for result."),
    "max_rounds": key("integer", "The most repetitions.", default=_MOST_ROUNDS),
    "retries": key("integer", "The number of retries.", default=0),
    "retry_delay": key(_TIME, "The pause before the first retry, doubled each time: seconds, or a text such as 30s."),
    "timeout": key(_TIME, "The timeout: seconds, or a text such as 30s."),
    "on_failure": key("string", "What to do if it fails.", default="stop", enum=["stop", "skip", "continue", "compensate"]),
    "fallback": {**_USE, **key("", "The tool to try if it fails.")},
    "undo": {**_USE, **key("", "The tool that undoes it.")},
    "parallel": key("boolean", "Whether it can run at the same time as other steps.", default=True),
}, required=["name"])
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "workflow.yaml",
    **block("", "", {"workflow": block("", "", {
        "name": key("string", "The name (default: the name of the file)."),
        "description": key("string", "What the workflow does, for people and models."),
        "tools": key("strings", "module:function, FILE.py, calculator, …"),
        "params": key("object", "The parameters of a run: a default, or a JSON Schema, for each."),
        "outputs": key("", "The output (default: the outputs of the last steps)."),
        "max_parallel": key("integer", "Steps that run at the same time.", default=16),
        "steps": key("array", "The steps.", items=_STEP),
    }, required=["steps"])}, required=["workflow"]),
}
# fmt: on
_KINDS = ("tool", "ask", "agent", "workflow")
_OWN_KEYS = {"tool": ("args",), "ask": ("options",), "agent": ("input",), "workflow": ("with",)}


class Built(Protocol):
    """A workflow, as far as a file can write it."""

    name: str
    parameters: dict[str, Any]
    origin: Mapping[str, Any]

    @property
    def tools(self) -> Mapping[str, Action]: ...
    def add(self, task: Task) -> None: ...
    def register(self, tool: Any) -> Action: ...
    def promise(self, outputs: Any) -> None: ...
    def problems(self) -> list[Problem]: ...


BuiltT = TypeVar("BuiltT", bound=Built)


def read_workflow(
    path: Path,
    tools: Iterable[Any],
    make: Callable[..., BuiltT],
    options: Mapping[str, Any],
    above: tuple[Path, ...] = (),
    text: str | None = None,
) -> BuiltT:
    """`above`: the files that have led to this one. `text`: what to read in the place of the file."""
    reading = Reading(variables=False)
    reading.read(path, text)
    if reading.mistakes:
        reading.raise_all()
    content, faulty = _well_formed(reading)
    agents = options.get("agents") or {}
    own = {name: value for name, value in options.items() if name != "agents"}
    made = _make(content, reading, path, [*tools], partial(make, **own))
    builder = _Builder(made, reading, path, agents, (*above, path.resolve()), make, own)
    places = _add_steps(builder, made, content["steps"], faulty)
    made.promise(builder.read_template(content["outputs"], ("workflow", "outputs")) if "outputs" in content else None)
    for one in made.problems():
        if places.get(one.task, ("workflow",)):
            reading.wrong(_place(one, places), one.text)
    reading.raise_all()
    made.origin = {"workflow": str(path.resolve())} if text is None else {}
    return made


def _make(content: Mapping[str, Any], reading: Reading, path: Path, tools: list[Any], make: Callable[..., BuiltT]) -> BuiltT:
    """Make the workflow without its steps. Tools of the file that has led to this one go before tools of the same name."""
    taken = {as_action(one).name for one in tools}
    listed = content.get("tools") or []
    own = all_tools(listed, path.parent, lambda number, problem: reading.wrong(("workflow", "tools", str(number)), problem))
    named = {"name": _name(content, path), "params": content.get("params"), "description": content.get("description", "")}
    every = [*tools, *[one for one in own if as_action(one).name not in taken]]
    try:
        return make(tools=every, **named, max_parallel=content.get("max_parallel", 16))
    except ConfigError as problem:
        reading.wrong(("workflow", "max_parallel" if "max_parallel" in str(problem) else "tools"), str(problem))
        reading.raise_all()
        raise


def _add_steps(builder: _Builder, made: Built, steps: Iterable[Any], faulty: Mapping[str, set[str]]) -> dict[str, Where]:
    """Add the steps, and return the place of each; () for a faulty step, which is added for others that reference it."""
    places = dict[str, Where]()
    for number, step in enumerate(steps):
        where: Where = ("workflow", "steps", str(number))
        wrong = faulty.get(str(number), set())
        left = {key: value for key, value in step.items() if key not in wrong} if isinstance(step, Mapping) else {}
        if not isinstance(name := left.get("name"), str):
            continue
        if "" not in wrong and builder.step(left, where):
            places[name] = where
        else:
            made.add(Task(name, Use(ASK, {"question": ""})))
            places[name] = ()
    return places


def name_in(path: Path) -> str:
    """Return the name of the workflow in a file. The rest of the file is not checked."""
    reading = Reading(variables=False)
    reading.read(path)
    given = reading.value.get("workflow") if isinstance(reading.value, Mapping) else None
    return _name(given if isinstance(given, Mapping) else {}, path)


def _name(given: Mapping[str, Any], path: Path) -> str:
    name = given.get("name", path.stem)
    return name if isinstance(name, str) else path.stem


def _well_formed(reading: Reading) -> tuple[Mapping[str, Any], dict[str, set[str]]]:
    """Return the definition without the values of a wrong form, and the wrong keys by the number of their step."""
    faulty, above = dict[str, set[str]](), set[str]()

    def wrong(where: Where, text: str) -> None:
        reading.wrong(where, text)
        if where[:2] == ("workflow", "steps") and len(where) > 2:
            faulty.setdefault(where[2], set()).add(where[3] if len(where) > 3 else "")
        else:
            above.add(where[1] if len(where) > 1 else "")

    check(reading.value, SCHEMA, (), wrong)
    if above & {"", "steps", "params"} or not isinstance(reading.value["workflow"].get("steps"), list):
        reading.raise_all()
    return {key: value for key, value in reading.value["workflow"].items() if key not in above}, faulty


def _place(problem: Problem, places: Mapping[str, Where]) -> Where:
    place = tuple(problem.place.split(".", 1))
    return (*places[problem.task], *place) if problem.task in places else ("workflow", *place)


class _Builder:
    def __init__(
        self,
        workflow: Built,
        reading: Reading,
        path: Path,
        agents: Mapping[str, Any],
        above: tuple[Path, ...],
        make: Callable[..., Built],
        options: Mapping[str, Any],
    ) -> None:
        self._flow, self._reading, self._path, self._agents = workflow, reading, path, agents
        self._above, self._make, self._options = above, make, options
        self._inner: dict[Path, Action] = {}  # workflows that were read already

    def try_read(self, read: Callable[[], Any], where: Where) -> Any:
        try:
            return read()
        except (BadExpression, ConfigError) as problem:
            self._reading.wrong(where, join_notices("; ", getattr(problem, "mistakes", ())) or str(problem))
            return None

    def read_template(self, value: Any, where: Where) -> Any:
        """A template; of a mapping each value by itself, so that one mistake hides no other. What cannot be read is nothing."""
        if isinstance(value, Mapping):
            return {str(name): self.read_template(one, (*where, str(name))) for name, one in value.items()}
        made = self.try_read(lambda: template(value), where)
        return Expression("null") if made is None and value is not None else made

    def step(self, step: Mapping[str, Any], where: Where) -> bool:
        """Read a step. Return True if it could be read."""
        kinds = [kind for kind in _KINDS if kind in step]
        if len(kinds) != 1:
            told = notice("workflow.one_kind", "a step must have exactly one of {kinds}", kinds=", ".join(_KINDS))
            told += notice("workflow.not_these", ", not {given}", given=" + ".join(kinds)) if kinds else ""
            self._reading.wrong((*where, kinds[1] if len(kinds) > 1 else "name"), told)
            return False
        for name in [name for kind, names in _OWN_KEYS.items() if kind != kinds[0] for name in names if name in step]:
            message = notice("workflow.not_beside", "{key!r} cannot be used in a step with {kind!r}", key=name, kind=kinds[0])
            self._reading.wrong((*where, name), message)
        after = step.get("depends_on") or []
        after = (after,) if isinstance(after, str) else tuple(after)
        use = self._use(kinds[0], step, after, where)
        if use is None:
            return False
        self._flow.add(
            Task(
                step["name"],
                use,
                after=after,
                when=self._condition(step.get("condition"), (*where, "condition")),
                needs=self._needs(step.get("needs"), len(after), (*where, "needs")),
                each=self._each(step.get("for_each"), (*where, "for_each")),
                until=self._read(step.get("until"), (*where, "until")),
                rounds=self._rounds(step, where),
                retries=self._whole(step.get("retries", 0), 0, (*where, "retries")),
                retry_delay=self._seconds(step.get("retry_delay"), (*where, "retry_delay")) or 0.0,
                timeout=self._seconds(step.get("timeout"), (*where, "timeout")),
                on_failure=step.get("on_failure", "stop"),
                fallback=self._other(step.get("fallback"), use, (*where, "fallback")),
                undo=self._other(step.get("undo"), None, (*where, "undo")),
                alone=step.get("parallel") is False,
                person=kinds[0] == "ask",
            )
        )
        return True

    def _rounds(self, step: Mapping[str, Any], where: Where) -> int:
        if "max_rounds" in step and "until" not in step:
            message = notice("workflow.no_rounds", "max_rounds has no effect without 'until': the step runs once")
            self._reading.wrong((*where, "max_rounds"), message)
        most = self._whole(step.get("max_rounds", _MOST_ROUNDS), 1, (*where, "max_rounds"))
        return most if "until" in step else 1

    def _whole(self, given: int, least: int, where: Where) -> int:
        if given < least:
            self._reading.wrong(
                where,
                notice("workflow.too_small", "must be an integer of at least {least}, not {given}", least=least, given=given),
            )
        return max(given, least)

    def _use(self, kind: str, step: Mapping[str, Any], after: tuple[str, ...], where: Where) -> Use | None:
        match kind:
            case "ask":
                asked = {"question": step["ask"], "options": step.get("options", [])}
                return Use(ASK, self.read_template(asked, (*where, "ask")))
            case "agent":
                return self._agent(step, where)
            case "workflow":
                return self._workflow(step, where)
        if "args" in step or (action := self._flow.tools.get(step["tool"], None)) is None:
            return Use(step["tool"], self.read_template(step.get("args") or {}, (*where, "args")))
        return Use(step["tool"], self._implied_arguments(action, after))

    def _implied_arguments(self, action: Action, after: tuple[str, ...]) -> dict[str, Any]:
        """Return the arguments of a tool whose step names none: the run's parameters of the same names, and for the one
        parameter that is left the output of its only dependency."""
        known = action.parameters.get("properties") or {}
        args: dict[str, Any] = {
            name: Expression(f"params[{name!r}]") for name in known if name in self._flow.parameters["properties"]
        }
        wanted = [name for name in action.parameters.get("required") or () if name not in args]
        if len(wanted) == 1 and len(after) == 1:
            args[wanted[0]] = Expression(f"steps[{after[0]!r}].output")
        return args

    def _agent(self, step: Mapping[str, Any], where: Where) -> Use | None:
        name = step["agent"]
        if name not in self._agents:
            message = notice("config.no_agent", "there is no agent {name!r}", name=name) + nearest(name, self._agents)
            self._reading.wrong((*where, "agent"), message)
            return None
        action = self._flow.register(RunAgent(f"agent {name}", self._agents[name]))
        return Use(action.name, {"input": self.read_template(step.get("input", ""), (*where, "input"))})

    def _workflow(self, step: Mapping[str, Any], where: Where) -> Use | None:
        path = self._path.parent / step["workflow"]
        if path.resolve() in self._above:
            message = notice(
                "workflow.inside_itself", "{file} includes itself, directly or through another workflow", file=step["workflow"]
            )
            self._reading.wrong((*where, "workflow"), message)
            return None
        given = self.read_template(step.get("with") or {}, (*where, "with"))
        if (known := self._inner.get(path.resolve())) is not None:
            return Use(known.name, given)
        options = {**self._options, "agents": self._agents}
        own = [tool for name, tool in self._flow.tools.items() if name != ASK]
        inner = self.try_read(lambda: read_workflow(path, own, self._make, options, self._above), (*where, "workflow"))
        if inner is None:
            return None
        self._inner[path.resolve()] = action = self._flow.register(RunWorkflow(f"workflow {inner.name}", inner))
        return Use(action.name, given)

    def _other(self, given: Any, use: Use | None, where: Where) -> Use | None:
        if given is None:
            return None
        if isinstance(given, str):
            return Use(given, use.args if use is not None else {})
        return Use(given["tool"], self.read_template(given.get("args") or {}, (*where, "args")))

    def _condition(self, given: Any, where: Where) -> Any:
        if given is None or given is True:
            return ""
        if given in (ALWAYS, ON_FAILURE):
            return given
        return self._read("false" if given is False else given, where) or ""

    def _read(self, given: Any, where: Where) -> Expression | None:
        """`rows > 0`, and `${rows > 0}`."""
        if given is None:
            return None
        text = str(given).strip()
        bare = text[2:-1] if text.startswith("${") and text.endswith("}") else text
        made: Expression | None = self.try_read(lambda: Expression(bare), where)
        return made

    def _each(self, given: Any, where: Where) -> Any:
        if given is None or isinstance(given, list):
            return self.try_read(lambda: template(given), where)
        return self._read(given, where)

    def _needs(self, given: Any, count: int, where: Where) -> int:
        if given is None or given == "all":
            return 0
        if given == "any":
            return 1
        if isinstance(given, int) and given > 0:
            return given
        message = notice(
            "workflow.no_need", "must be all, any, or a number from 1 to {count}, not {given!r}", count=count, given=given
        )
        self._reading.wrong(where, message)
        return 0

    def _seconds(self, given: Any, where: Where) -> float | None:
        return None if given is None else self.try_read(lambda: seconds(given), where)
