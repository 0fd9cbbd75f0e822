"""Workflow files: YAML as people write it, checked as a whole, every mistake with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...core.durations import seconds
from ...core.errors import ConfigError, nearest
from ...kernel.ports import Action
from ...strategies.graph.check import Problem
from ...strategies.graph.expression import BadExpression, Expression, template
from ...strategies.graph.task import ALWAYS, ON_FAILURE, Task, Use
from ...tools.loading import all_tools
from ...tools.registry import as_action
from ..config.load import Reading, check
from .actions import ASK, RunAgent, RunWorkflow

Where = tuple[str, ...]
_TEXT: dict[str, Any] = {"type": "string"}
_NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": _TEXT}]}
_TIME = {"type": ["string", "number"]}
_USE: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"tool": _TEXT, "args": {"type": "object"}},
            "required": ["tool"],
            "additionalProperties": False,
        },
    ]
}
_STEP: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {**_TEXT, "description": "by which others wait for it, and speak of what it gave"},
        "tool": {**_TEXT, "description": "the tool to use"},
        "args": {"type": "object", "description": "its arguments; ${step.key}, ${params.name} and the like are filled in"},
        "ask": {**_TEXT, "description": "a question to a person; the answer is what the step gives"},
        "options": {"type": "array", "items": _TEXT, "description": "the answers to choose from"},
        "agent": {**_TEXT, "description": "an agent of kaname.yaml"},
        "input": {"description": "what the agent is to do"},
        "workflow": {**_TEXT, "description": "another workflow file"},
        "with": {"type": "object", "description": "its parameters"},
        "depends_on": {**_NAMES, "description": "what it waits for, beside what it speaks of"},
        "condition": {"type": ["string", "boolean"], "description": "always, on_failure, or an expression such as rows > 0"},
        "needs": {"type": ["string", "integer"], "description": "all (as it is), any, or how many of depends_on"},
        "for_each": {"type": ["string", "array"], "description": "once for each item: item and index are filled in"},
        "until": {**_TEXT, "description": "again, until this holds of result"},
        "max_rounds": {"type": "integer", "description": "at most so often (10)"},
        "retries": {"type": "integer", "description": "how often it is tried again"},
        "retry_delay": {**_TIME, "description": "before the first of them; doubled each time"},
        "timeout": {**_TIME, "description": "seconds, or a text such as 30s"},
        "on_failure": {**_TEXT, "enum": ["stop", "skip", "continue", "compensate"], "description": "(stop)"},
        "fallback": {**_USE, "description": "what is tried in its place"},
        "undo": {**_USE, "description": "what takes it back"},
        "parallel": {"type": "boolean", "description": "whether it may run beside others (true)"},
    },
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "workflow.yaml",
    "type": "object",
    "required": ["workflow"],
    "additionalProperties": False,
    "properties": {
        "workflow": {
            "type": "object",
            "required": ["steps"],
            "additionalProperties": False,
            "properties": {
                "name": _TEXT,
                "description": _TEXT,
                "tools": {"type": "array", "items": _TEXT, "description": "module:function, FILE.py, calculator, …"},
                "params": {"type": "object", "description": "what a run is given: a default, or a JSON Schema"},
                "outputs": {"description": "what comes of it; without it, what the last steps give"},
                "max_parallel": {"type": "integer", "description": "how many steps run at once (16)"},
                "steps": {"type": "array", "items": _STEP},
            },
        }
    },
}
_KINDS = ("tool", "ask", "agent", "workflow")
_MOST_ROUNDS = 10


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
    path: Path, tools: Iterable[Any], make: Callable[..., BuiltT], options: Mapping[str, Any], above: tuple[Path, ...] = ()
) -> BuiltT:
    """`above`: the files that have led to this one."""
    reading = Reading(variables=False)
    reading.read(path)
    faulty = set[str]()  # steps whose form is wrong

    def wrong(where: Where, text: str) -> None:
        reading.wrong(where, text)
        faulty.add(where[2] if where[:2] == ("workflow", "steps") and len(where) > 2 else "")

    if not reading.mistakes:
        check(reading.value, SCHEMA, (), wrong)
    if "" in faulty or not faulty:
        reading.raise_all()
    given, agents = reading.value["workflow"], options.get("agents") or {}
    own = {name: value for name, value in options.items() if name != "agents"}
    found = all_tools(given.get("tools") or [], path.parent, lambda n, told: reading.wrong(("workflow", "tools", str(n)), told))
    named = {"name": given.get("name", path.stem), "params": given.get("params"), "description": given.get("description", "")}
    given_tools = [*tools]
    taken = {as_action(one).name for one in given_tools}
    found = [one for one in found if as_action(one).name not in taken]  # those of the file that has led here go first
    made = make(tools=[*given_tools, *found], **named, max_parallel=given.get("max_parallel", 16), **own)
    builder = _Builder(made, reading, path, agents, (*above, path.resolve()), make, own)
    places = dict[str, Where]()
    for number, step in enumerate(given["steps"]):
        where = ("workflow", "steps", str(number))
        if str(number) not in faulty:
            places[str(step.get("name"))] = where
            builder.step(step, where)
        elif isinstance(step, Mapping) and isinstance(step.get("name"), str):
            made.add(Task(step["name"], Use(ASK, {"question": ""})))  # it is there, for those that speak of it
            places[step["name"]] = ()
    made.promise(builder.tried(lambda: template(given["outputs"]), ("workflow", "outputs")) if "outputs" in given else None)
    for problem in made.problems():
        if places.get(problem.task, ("workflow",)):
            reading.wrong(_place(problem, places), problem.text)
    reading.raise_all()
    made.origin = {"workflow": str(path.resolve())}
    return made


def _place(problem: Problem, places: Mapping[str, Where]) -> Where:
    return (*places[problem.task], problem.place) if problem.task in places else ("workflow", problem.place)


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

    def tried(self, read: Callable[[], Any], where: Where) -> Any:
        try:
            return read()
        except (BadExpression, ConfigError) as problem:
            self._reading.wrong(where, "; ".join(getattr(problem, "mistakes", ())) or str(problem))
            return None

    def step(self, step: Mapping[str, Any], where: Where) -> None:
        kinds = [kind for kind in _KINDS if kind in step]
        if len(kinds) != 1:
            told = "a step has one of tool, ask, agent, workflow" + (f", not {' and '.join(kinds)}" if kinds else "")
            self._reading.wrong((*where, kinds[1] if len(kinds) > 1 else "name"), told)
            return
        after = step.get("depends_on") or []
        after = (after,) if isinstance(after, str) else tuple(after)
        use = self._use(kinds[0], step, after, where)
        if use is None:
            return
        self._flow.add(
            Task(
                step["name"],
                use,
                after=after,
                when=self._condition(step.get("condition"), (*where, "condition")),
                needs=self._needs(step.get("needs"), len(after), (*where, "needs")),
                each=self._each(step.get("for_each"), (*where, "for_each")),
                until=self._read(step.get("until"), (*where, "until")),
                rounds=step.get("max_rounds", _MOST_ROUNDS) if "until" in step else 1,
                retries=step.get("retries", 0),
                retry_delay=self._seconds(step.get("retry_delay"), (*where, "retry_delay")) or 0.0,
                timeout=self._seconds(step.get("timeout"), (*where, "timeout")),
                on_failure=step.get("on_failure", "stop"),
                fallback=self._other(step.get("fallback"), use, (*where, "fallback")),
                undo=self._other(step.get("undo"), None, (*where, "undo")),
                alone=step.get("parallel") is False,
                person=kinds[0] == "ask",
            )
        )

    def _use(self, kind: str, step: Mapping[str, Any], after: tuple[str, ...], where: Where) -> Use | None:
        match kind:
            case "ask":
                asked = {"question": step["ask"], "options": step.get("options", [])}
                return Use(ASK, self.tried(lambda: template(asked), (*where, "ask")) or {})
            case "agent":
                return self._agent(step, where)
            case "workflow":
                return self._workflow(step, where)
        if "args" in step or (action := self._flow.tools.get(step["tool"], None)) is None:
            return Use(step["tool"], self.tried(lambda: template(step.get("args") or {}), (*where, "args")) or {})
        return Use(step["tool"], self._implied(action, after))

    def _implied(self, action: Action, after: tuple[str, ...]) -> dict[str, Any]:
        """Without a word on its arguments a tool gets the run's parameters by their names, and what the one step gave that it
        waits for, if it wants one thing more."""
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
            self._reading.wrong((*where, "agent"), f"there is no agent {name!r}" + nearest(name, self._agents))
            return None
        action = self._flow.register(RunAgent(f"agent {name}", self._agents[name]))
        return Use(action.name, self.tried(lambda: template({"input": step.get("input", "")}), (*where, "input")) or {})

    def _workflow(self, step: Mapping[str, Any], where: Where) -> Use | None:
        path = self._path.parent / step["workflow"]
        if path.resolve() in self._above:
            self._reading.wrong((*where, "workflow"), f"{step['workflow']} leads back to itself")
            return None
        options = {**self._options, "agents": self._agents}
        own = [tool for name, tool in self._flow.tools.items() if name != ASK]
        inner = self.tried(lambda: read_workflow(path, own, self._make, options, self._above), (*where, "workflow"))
        if inner is None:
            return None
        action = self._flow.register(RunWorkflow(f"workflow {inner.name}", inner))
        return Use(action.name, self.tried(lambda: template(step.get("with") or {}), (*where, "with")) or {})

    def _other(self, given: Any, use: Use | None, where: Where) -> Use | None:
        if given is None:
            return None
        if isinstance(given, str):
            return Use(given, use.args if use is not None else {})
        return Use(given["tool"], self.tried(lambda: template(given.get("args") or {}), where) or {})

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
        made: Expression | None = self.tried(lambda: Expression(bare), where)
        return made

    def _each(self, given: Any, where: Where) -> Any:
        if given is None or isinstance(given, list):
            return self.tried(lambda: template(given), where)
        return self._read(given, where)

    def _needs(self, given: Any, count: int, where: Where) -> int:
        if given is None or given == "all":
            return 0
        if given == "any":
            return 1
        if isinstance(given, int) and given > 0:
            return given
        self._reading.wrong(where, f"all, any, or a number from 1 to {count}, not {given!r}")
        return 0

    def _seconds(self, given: Any, where: Where) -> float | None:
        return None if given is None else self.tried(lambda: seconds(given), where)
