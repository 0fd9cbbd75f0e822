"""`Workflow`: tasks that wait for each other, written in Python or read from a file; checked, run, resumed like any run."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property, partial
from keyword import iskeyword
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast, get_args, overload

from ..agent.agent import Agent
from ..core.durations import is_whole, seconds
from ..core.errors import ConfigError, nearest
from ..core.notices import join_notices, notice
from ..core.record import replace
from ..core.values import plain_text
from ..kernel.bases import options_of
from ..kernel.load import load
from ..kernel.ports import Action, Journal, Policy, Recipe, Sink
from ..people.person import ASK, AskPerson
from ..run.child import Parent
from ..run.run import Run
from ..strategies.graph.check import Problem, problems
from ..strategies.graph.expression import BadExpression, Expression
from ..strategies.graph.progress import Progress
from ..strategies.graph.strategy import GraphStrategy
from ..strategies.graph.task import ALWAYS, ON_FAILURE, Graph, OnFailure, Task, Use
from ..strategies.stop import max_steps, no_repeats
from ..tools.arguments.schema import problems as unfit
from ..tools.registry import ToolRegistry, as_action
from .actions import RunAgent, RunWorkflow, TaskLimits, Undo, undo_name
from .handle import Handle, as_template, expression_of, task_of
from .misuse import misuse
from .parameters import parameter_problems, schema_of

P = ParamSpec("P")
T = TypeVar("T")
_REPEATED = ("pure", "idempotent")


class Workflow:
    """Tasks with dependencies. Add them with `task`. Pass the output of a task to another one, and that one waits for it.

    Args:
        name: The name, in records and errors.
        tools: The tools that tasks can name.
        params: The parameters of a run: a JSON Schema's `properties`, or defaults.
        outputs: The output, as a template (default: the outputs of the tasks that no other task waits for).
        max_parallel: How many tasks run at once (default: 16).
        description: What it does, for an agent or a workflow that uses it.
        policies, stops, journal, sinks, model: As for an `Agent`.

    Raises:
        ConfigError: A value cannot be used.
    """

    def __init__(
        self,
        name: str = "workflow",
        tools: Iterable[Any] = (),
        *,
        params: Mapping[str, Any] | None = None,
        outputs: Any = None,
        max_parallel: int = 16,
        description: str = "",
        policies: Iterable[Policy] = (),
        stops: Any = None,
        journal: Journal | str | Path | None = None,
        sinks: Iterable[Sink] = (),
        model: Any = None,
    ) -> None:
        if not isinstance(max_parallel, int) or max_parallel < 1:
            raise ConfigError.of(
                "workflow.max_parallel", "max_parallel must be an integer of at least 1, not {given!r}", given=max_parallel
            )
        self.name, self.description, self._outputs = name, description, outputs
        self._registry = ToolRegistry([*tools])
        self._registry.register(AskPerson(ASK))
        self.parameters = schema_of(params or {})
        self._max_parallel, self._tasks = max_parallel, list[Task]()
        self._parts: dict[str, Any] = {"journal": journal, "sinks": tuple(sinks), "model": model}
        self._policies, self._stops = tuple(policies), stops
        self.origin: Mapping[str, Any] = {}

    @classmethod
    def from_file(cls, path: str | Path, tools: Iterable[Any] = (), **options: Any) -> Workflow:
        """Read a workflow from a YAML or JSON file.

        Raises `ConfigError` with all mistakes, each with its file and line.
        """
        from .file import read_workflow

        return read_workflow(Path(path), tools, cls, options)

    # Writing it

    def options(self, **given: Any) -> Options:
        """Set options of the next task: `name`, `after`, `when`, `needs`, `each`, `until`, `rounds`, `retries`, `retry_delay`,
        `timeout`, `on_failure`, `fallback`, `undo`, `alone`; see `Task`."""
        return Options(self, given)

    @overload
    def task(self, tool: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def task(self, tool: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def task(self, tool: str, /, **kwargs: Any) -> Any: ...
    def task(self, tool: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Add a task: a tool and its arguments.

        Returns:
            A handle for the output of the task: pass it to another task. Type checkers see the type that the tool returns.
        """
        return Options(self, {}).task(tool, *args, **kwargs)

    def ask(self, question: Any, options: Iterable[str] = (), **given: Any) -> Any:
        """Add a question to a person. It is asked when nothing else is left to do. The output of the task is the answer."""
        return Options(self, {"name": "ask", **given, "person": True}).task(ASK, question=question, options=[*options])

    def param(self, name: str) -> Any:
        """Return a handle for a parameter of the run."""
        if name not in self.parameters["properties"]:
            message = notice("workflow.unknown_parameter", "there is no parameter {name!r}", name=name)
            raise ConfigError(message + nearest(name, self.parameters["properties"]))
        return Handle(f"params[{name!r}]")

    def handle(self, task: str) -> Any:
        """Return the handle of the task with that name."""
        plain = task.isidentifier() and not iskeyword(task)
        return Handle(task if plain else f"steps[{task!r}].output")

    item: Any = Handle("item")  # in a task for each item: the item, and its place
    index: Any = Handle("index")
    last: Any = Handle("last")  # in a task that is done again: what it gave the last time (or null), and which round it is
    round: Any = Handle("round")

    def add(self, task: Task) -> None:
        """Add a `Task`."""
        if "agent" in self.__dict__:
            raise ConfigError.of(
                "workflow.running",
                "{name} has already been run, so no task can be added: create another workflow",
                name=self.name,
            )
        self._tasks.append(task)

    def promise(self, outputs: Any) -> None:
        """Set the output of the workflow, as a template."""
        self._outputs = outputs

    def free_name(self, wanted: str) -> str:
        """Return that name, or the first one with a number after it that is free."""
        taken = {task.name for task in self._tasks}
        if wanted not in taken:
            return wanted
        return next(name for number in range(2, len(taken) + 3) if (name := f"{wanted}_{number}") not in taken)

    def register(self, tool: Any) -> Action:
        """Register a tool for the tasks, or an agent or another workflow as a tool."""
        if isinstance(tool, Agent):
            tool = RunAgent(tool.name, tool)
        elif isinstance(tool, Workflow):
            tool.check()
            tool = RunWorkflow(tool.name, tool)
        action = as_action(tool)
        if not _same(self._registry.get(action.name, None), action):
            self._registry.register(action)  # it objects to another tool of the same name
        return self._registry[action.name]

    # Checking it

    @property
    def tools(self) -> Mapping[str, Action]:
        return self._registry

    @property
    def graph(self) -> Graph:
        outputs = None if self._outputs is None else as_template(self._outputs)
        params = tuple(self.parameters["properties"])
        tasks = tuple([self._with_undo(task) for task in self._tasks])
        return Graph(self.name, tasks, self._max_parallel, outputs, params, self.description)

    def _with_undo(self, task: Task) -> Task:
        """Return the task with the undo of its tool, if the task names none and calls the tool once."""
        tool = self._registry.get(task.use.tool, None)
        own = tool is not None and tool.effect == "compensable" and options_of(tool).undo is not None
        return (
            replace(task, undo=Use(undo_name(task.use.tool), task.use.args))
            if own and not (task.undo or task.until or task.fallback)
            else task
        )

    def problems(self) -> list[Problem]:
        """Return all mistakes that can be found before a run: names, cycles, expressions, tools and their arguments."""
        found = [*problems(self.graph), *parameter_problems(self.parameters)]
        undone = any(one.undo for one in self.graph.tasks)
        for task in self._tasks:
            for place, use in (("tool", task.use), ("fallback", task.fallback), ("undo", task.undo)):
                if use is not None:
                    found += [
                        Problem(task.name, inner if place == "tool" else place, text)
                        for inner, text in misuse(use, self._registry)
                    ]
            action = self._registry.get(task.use.tool, None)
            if action is not None and task.retries and action.effect not in _REPEATED:
                message = notice(
                    "workflow.not_repeated",
                    "retries: {tool} is {effect}, so it is not retried automatically. Declare it pure or idempotent if it is "
                    "safe to repeat",
                    tool=task.use.tool,
                    effect=action.effect,
                )
                found.append(Problem(task.name, "retries", message))
            if task.on_failure == "compensate" and not undone:
                message = notice(
                    "workflow.undoes_nothing",
                    "on_failure: compensate has nothing to undo: no step has an undo, and no tool is compensable",
                )
                found.append(Problem(task.name, "on_failure", message))
        return found

    def check(self) -> Workflow:
        """Return this workflow. Raises `ConfigError` with all mistakes in it."""
        if found := self.problems():
            listed = join_notices("\n", ["  " + str(one) for one in found])
            raise ConfigError.of("workflow.mistakes", "errors in workflow {name}:\n{listed}", name=self.name, listed=listed)
        return self

    def complete_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a run, with their defaults. Raises `ConfigError` for values that do not fit."""
        known = self.parameters["properties"]
        whole = {name: held["default"] for name, held in known.items() if "default" in held} | dict(params)
        if wrong := unfit(whole, self.parameters, "params"):
            raise ConfigError(f"{self.name}: " + join_notices("; ", wrong))
        return whole

    def as_input(self, given: Any) -> str:
        """Return the recorded input of a run: its parameters with their defaults, from a mapping or the JSON text of one."""
        try:
            params = json.loads(given or "{}") if isinstance(given, str) else given
        except ValueError:
            params = None
        if not isinstance(params, Mapping):
            raise ConfigError.of("serve.params", "workflow {name} needs a JSON object with its parameters", name=self.name)
        return plain_text(self.complete_params(params))

    # Running it

    @cached_property
    def agent(self) -> Agent[Any]:
        """Return the agent that runs it: its strategy is the graph. Its journal, forks and replays are those of any agent."""
        self.check()
        graph = self.graph
        undone = [task.use.tool for task in graph.tasks if task.undo and task.undo.tool == undo_name(task.use.tool)]
        tools = [*self._registry.values(), *[Undo(self._registry[name]) for name in dict.fromkeys(undone)]]
        parts = {**self._parts, "name": self.name, "strategy": GraphStrategy(graph)}
        stops = [max_steps(None), no_repeats(None), *([] if self._stops is None else [self._stops])]
        made: Agent[Any] = Agent(parts.pop("model"), tools, policies=(*self._policies, TaskLimits(graph)), stops=stops, **parts)
        made.origin = self.origin
        return made

    def run(self, params: Mapping[str, Any] | None = None, **options: Any) -> Run[Any]:
        """Run it: `await` the result, or `async for` the chunks. `options`: those of `Agent.run`, except a session."""
        return self.agent.run(self.as_input(params or {}), **options)

    def run_sync(self, params: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Run it and wait for the result, in code without an event loop."""
        return self.agent.run_sync(self.as_input(params or {}), **options)

    def resume(self, run_id: str, answers: Mapping[str, Any] | None = None, **options: Any) -> Run[Any]:
        """Continue a run after a crash, a stop or a question."""
        return self.agent.resume(run_id, answers, **options)

    def resume_sync(self, run_id: str, answers: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Resume a run and wait for the result, in code without an event loop."""
        return self.agent.resume_sync(run_id, answers, **options)

    async def stop(self, run_id: str, reason: str = "") -> bool:
        """Stop a run, wherever it is executed, also one that waits for an answer. Return False if it was over already."""
        return await self.agent.stop(run_id, reason)

    @property
    def recipe(self) -> Recipe:
        return self.agent.recipe

    def run_on(
        self, journal: Journal, recipe: Recipe, run_id: str, given: Any, answers: Mapping[str, Any], parent: Parent
    ) -> Run[Any]:
        """Run it inside a tool call: what `ToolContext.run_child` does. `given` are the parameters."""
        return self.agent.run_on(journal, recipe, run_id, self.as_input(given), answers, parent)

    async def progress(self, run_id: str) -> Progress:
        """Return the progress of a run from its facts: `nodes`, `settled`."""
        progress = GraphStrategy(self.graph).progress(await load(self.agent.journal, run_id))
        progress.calls()  # undoings are asked for last, and only then it is seen which are done
        return progress


class Options:
    """Options of one task; see `Workflow.options`."""

    def __init__(self, workflow: Workflow, given: Mapping[str, Any]) -> None:
        self._workflow, self._given = workflow, dict(given)

    @overload
    def task(self, tool: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def task(self, tool: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def task(self, tool: str, /, **kwargs: Any) -> Any: ...
    def task(self, tool: Any, /, *args: Any, **kwargs: Any) -> Any:
        flow, given = self._workflow, dict(self._given)
        action = flow.register(tool) if not isinstance(tool, str) else flow.tools.get(tool, None)
        name = tool if isinstance(tool, str) else cast(Action, action).name
        if args:
            known = list((action.parameters.get("properties") or {}) if action is not None else {})
            if len(args) > len(known) or set(known[: len(args)]) & set(kwargs):
                raise ConfigError.of(
                    "workflow.positional",
                    "{name} takes {n} arguments, each only once; {given} were passed by position",
                    name=name,
                    n=len(known),
                    given=len(args),
                )
            kwargs = {**dict(zip(known, args, strict=False)), **kwargs}
        wanted = given.pop("name", name)
        task = Task(flow.free_name(wanted), Use(name, as_template(kwargs)), **_read(flow, given))
        flow.add(task)
        return flow.handle(task.name)


def _pause(value: Any) -> float | None:
    return None if value is None else seconds(value)


def _source(value: Any) -> Any:
    return _expression(value) if isinstance(value, str) else as_template(value)


def _names(value: Any) -> tuple[str, ...]:
    return tuple([_name(one) for one in (value if isinstance(value, list | tuple) else [value])])


def _read(flow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task as the fields of a `Task`."""
    readers: dict[str, Callable[[Any], Any]] = {
        "after": _names,
        "when": lambda value: value if isinstance(value, str) and value in (ALWAYS, ON_FAILURE) else _expression(value),
        "until": _expression,
        "each": _source,
        **dict.fromkeys(("fallback", "undo"), partial(_other_use, flow)),
        **dict.fromkeys(("timeout", "retry_delay"), _pause),
        **{key: partial(_count, key) for key in ("needs", "rounds", "retries")},
        **dict.fromkeys(("on_failure", "alone", "person"), lambda value: value),
    }
    if unknown := [key for key in given if key not in readers]:
        message = notice("workflow.option", "unknown option {key!r}", key=unknown[0])
        raise ConfigError(message + nearest(unknown[0], [*readers, "name"]))
    made = {key: readers[key](value) for key, value in given.items()}
    if "until" in made:
        made.setdefault("rounds", 10)
    if made.get("on_failure", "stop") not in get_args(OnFailure):
        raise ConfigError.of("workflow.on_failure", "on_failure must be one of {listed}", listed=", ".join(get_args(OnFailure)))
    return made


def _other_use(flow: Workflow, given: Any) -> Use:
    """Return the use of another tool: `tool`, or `(tool, arguments)`."""
    tool, args = given if isinstance(given, tuple) else (given, {})
    return Use(tool if isinstance(tool, str) else flow.register(tool).name, as_template(args))


def _count(key: str, value: Any) -> int:
    if key == "needs" and value in ("any", "all"):
        return 1 if value == "any" else 0
    if not is_whole(value, least := int(key == "rounds")):
        raise ConfigError.of(
            "workflow.count", "{key} must be an integer of at least {least}, not {it!r}", key=key, least=least, it=value
        )
    return value


def _same(known: Any, action: Any) -> bool:
    """Return True if both are made from the same function, agent or workflow."""
    if known is None:
        return False
    made_from = ("function", "made_from")
    return known is action or any(hasattr(known, n) and getattr(known, n) == getattr(action, n, None) for n in made_from)


def _expression(value: Any) -> Expression:
    try:
        return Expression(expression_of(value) if isinstance(value, Handle) else str(value))
    except BadExpression as problem:
        raise ConfigError(str(problem)) from problem


def _name(value: Any) -> str:
    return task_of(value) if isinstance(value, Handle) else str(value)
