"""Turn a function into a tool: plain, async, a generator of either kind, or a method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from ..core.durations import dollars, seconds
from ..core.errors import BadArguments, ConfigError, Signal, UnknownParameter, nearest
from ..core.events import Effect
from ..core.messages import ToolCall, ToolResult
from ..core.notices import notice
from ..core.record import replace
from ..kernel.bases import ActionBase, ToolOptions
from ..kernel.boundary import Failure, attempt
from ..kernel.ports import Repair, ToolContext
from ..kernel.threads import off_loop, runs_on_loop
from .arguments.prepare import read_arguments
from .to_json import to_json, to_result

if TYPE_CHECKING:
    from ..core.people.labels import ToolLabels
    from .signature import Signature

P = ParamSpec("P")
R = TypeVar("R")
EFFECTS: tuple[Effect, ...] = ("pure", "idempotent", "compensable", "irreversible")
DEFAULT_TIMEOUT = 300.0
_PLAIN = frozenset({str, int, bool, type(None)})  # the same as JSON; a float may be none


_OPTIONS = ("effect", "name", "description", "timeout", "undo", "reconcile", "labels", "background", "price")
_APPROVE = 'Agent(policies=[Approve("…")])'
_RETRIES = "Agent(policies=[FallbackStrategy(max_retries=2)])"
PEERS = {  # what the options of other libraries' decorators are here
    "name_override": '@tool(name="…")',
    "title": '@tool(name="…")',
    "description_override": '@tool(description="…")',
    "requires_approval": _APPROVE,
    "needs_approval": _APPROVE,
    "requires_confirmation": _APPROVE,
    "retries": _RETRIES,
    "max_retries": _RETRIES,
    "timeout_seconds": '@tool(timeout="10s")',
}


def check_effect(name: str, effect: Any) -> Effect:
    for known in EFFECTS:
        if effect == known:
            return known
    where = f"tool {name}" if name else "@tool"
    message = notice("tool.effect", "{where}: effect {effect!r} is unknown", where=where, effect=effect)
    raise ConfigError(message + nearest(str(effect), EFFECTS))


class FunctionTool(ActionBase, Generic[P, R]):
    """An `Action`. It can still be called as the function that it was made from."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        effect: Effect = "irreversible",
        name: str = "",
        description: str = "",
        timeout: float | str | None = DEFAULT_TIMEOUT,
        undo: Callable[..., Any] | None = None,
        reconcile: Callable[..., Any] | None = None,
        labels: ToolLabels | Mapping[str, Any] | None = None,
        background: bool = False,
        price: float | str = 0.0,
        describe: Callable[..., Any] | None = None,
        bound_to: Any = None,
        decorated: bool = True,
    ) -> None:
        inner: Any = function.function if isinstance(function, FunctionTool) else function
        self._static, self._of_class = isinstance(inner, staticmethod), isinstance(inner, classmethod)
        self.function: Callable[..., Any] = inner.__func__ if self._static or self._of_class else inner
        if not callable(self.function) or isinstance(self.function, type):
            raise ConfigError.of(
                "tool.not_function", "@tool must be applied to a function, not to {function!r}", function=self.function
            )
        self.name = name or _name_of(self.function)
        self.effect: Effect = check_effect(self.name, effect)
        self._own_description, self._bound_to, self._decorated = description, bound_to, decorated
        self._undo, self._reconcile, self._describe = undo, reconcile, describe
        self.options = ToolOptions(
            None if timeout is None or (background and timeout is DEFAULT_TIMEOUT) else seconds(timeout),
            self._repair(undo),
            self._repair(reconcile),
            self._description_of_call(describe),
            None if labels is None else labels_of(labels, self.name),
            dollars(price) if price else 0.0,
            background,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        called: R = self._callable(self.function)(*args, **kwargs)
        return called

    def __get__(self, instance: Any, owner: type | None = None) -> FunctionTool[..., R]:
        """A tool in a class body is a method: taken from an instance, it is bound to it."""
        if self._static or (instance is None and not self._of_class):
            return self
        return FunctionTool(
            self.function,
            effect=self.effect,
            name=self.name,
            description=self._own_description,
            timeout=self.options.timeout,
            undo=self._undo,
            reconcile=self._reconcile,
            labels=self.options.labels,
            background=self.options.background,
            price=self.options.price,
            describe=self._describe,
            bound_to=owner if self._of_class else instance,
        )

    def __repr__(self) -> str:
        return f"<tool {self.name} ({self.effect})>"

    def undoes(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: how to take the effect back. It takes the tool's own arguments and may be called more than once."""
        self._undo, self.options = function, replace(self.options, undo=self._repair(function))
        return function

    def reconciles(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: look up whether an interrupted call took effect. It returns the result, or `None` if it did not."""
        self._reconcile, self.options = function, replace(self.options, reconcile=self._repair(function))
        return function

    def describes(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: what a call will do, as text for the person who is asked. It takes the tool's own arguments."""
        self._describe, self.options = function, replace(self.options, describe=self._description_of_call(function))
        return function

    @cached_property
    def description(self) -> str:
        from .signature import parse, plain_function

        return self._own_description or parse(plain_function(self.function))[0] or self.name.replace("_", " ")

    @cached_property
    def signature(self) -> Signature:
        from .signature import read_signature

        return read_signature(self._callable(self.function), self.name)

    @cached_property
    def wanted_deps(self) -> Any:
        from .signature import wanted_deps

        return wanted_deps(self.function, self.name)

    @property
    def identity(self) -> Any:
        return self.function if self._bound_to is None else (self.function, self._bound_to)

    @property
    def takes_context(self) -> bool:  # type: ignore[override]
        return bool(self.signature.context)

    @property
    def parameters(self) -> Any:
        return self.signature.parameters

    def prepare(self, call: ToolCall) -> dict[str, Any]:
        return self.signature.bind(self.name, read_arguments(call))

    def shown(self, prepared: dict[str, Any]) -> dict[str, Any]:
        plain = _PLAIN.issuperset(map(type, prepared.values()))
        return prepared if plain else {name: to_json(value, whole=True) for name, value in prepared.items()}

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        if names := self.signature.context:
            prepared = {**prepared, **dict.fromkeys(names, context)}
        result = await run_function(self._callable(self.function), prepared, context, on_loop=self._on_loop)
        failed = not self._decorated and isinstance(result.output, str) and result.output.startswith("Error:")
        return ToolResult(error=result.output[6:].strip()) if failed else result  # how plain functions tell it

    @cached_property
    def _on_loop(self) -> bool:
        return runs_on_loop(self.function)

    async def execute(self, input_text: str) -> ToolResult:
        """Outside of a run, as the smallest tool protocol has it: a JSON object, or plain text for a tool of one argument."""
        if self.signature.context:
            raise ConfigError.of(
                "tool.needs_context",
                "tool {name} needs the context of a run and cannot be executed directly. Pass it to an agent.",
                name=self.name,
            )
        try:
            prepared = self.prepare(ToolCall("", self.name, self._from_text(input_text)))
        except BadArguments as problem:
            return ToolResult(error=str(problem))
        result = await attempt(run_function, self._callable(self.function), prepared, None, passing=(Signal,))
        return ToolResult(error=str(result)) if isinstance(result, Failure) else result

    def _from_text(self, text: str) -> Any:
        required = self.parameters.get("required") or list(self.parameters.get("properties", {}))
        plain = not text.lstrip().startswith("{") and len(required) == 1
        return {required[0]: text} if plain else text

    def _repair(self, function: Callable[..., Any] | None) -> Repair | None:
        return None if function is None else as_repair(self._callable(function), function)

    def _description_of_call(self, describe: Callable[..., Any] | None) -> Callable[[dict[str, Any]], Any] | None:
        return None if describe is None else lambda prepared: self._callable(describe)(**prepared)

    def _callable(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function if self._bound_to is None else partial(function, self._bound_to)


def labels_of(given: Any, tool: str) -> ToolLabels:
    from ..core.people.labels import read_labels  # most tools have none

    return read_labels(given, tool)


def _name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def context_parameters(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters that want the run's context."""
    from .signature import is_context, plain_function

    hints = inspect.get_annotations(plain_function(function), eval_str=True)
    return [name for name, hint in hints.items() if name != "return" and is_context(hint)]


def as_repair(function: Callable[..., Any], declared: Callable[..., Any]) -> Repair:
    """Adapt a function that undoes a call or looks it up. It gets those arguments of the call that it has parameters for.

    Args:
        function: The function, bound to its object if it is a method.
        declared: The function before it was bound. Its annotations are read when it is called first: they can name what the
            module defines later.
    """

    async def run(prepared: dict[str, Any], context: ToolContext) -> ToolResult | None:
        wanted = inspect.signature(function).parameters
        every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in wanted.values())
        takes_context = context_parameters(declared)
        args = {name: value for name, value in prepared.items() if every or name in wanted}
        args |= dict.fromkeys(takes_context, context)
        result = await run_function(function, args, None)
        return None if result.output is None and not result.is_error and not result.media else result

    return run


async def run_function(
    function: Callable[..., Any], args: dict[str, Any], context: ToolContext | None, *, on_loop: bool | None = None
) -> ToolResult:
    """Async functions on the loop, the others off it. What a generator yields is shown at once and is the result together."""
    if on_loop is None:
        on_loop = runs_on_loop(function)
    value = function(**args) if on_loop else await off_loop(_call_in_thread, function, args)
    if type(value) is _Done:
        return value.result
    if type(value) is CoroutineType or inspect.isawaitable(value):
        value = await value
    if inspect.isasyncgen(value):
        value = _join_pieces([await _report(piece, context) async for piece in value])
    elif inspect.isgenerator(value):
        value = await _run_generator(value, context)
    return to_result(value)


class _Done:
    """A result that was made where the function ran, off the loop."""

    def __init__(self, result: ToolResult) -> None:
        self.result = result


def _call_in_thread(function: Callable[..., Any], args: dict[str, Any]) -> Any:
    value = function(**args)
    live = inspect.isawaitable(value) or inspect.isasyncgen(value) or inspect.isgenerator(value)
    return value if live else _Done(to_result(value))


async def _run_generator(generator: Any, context: ToolContext | None) -> Any:
    pieces: list[Any] = []
    ended: list[Any] = []

    def step() -> Any:
        try:
            return next(generator)
        except StopIteration as end:
            ended.append(end.value)
            return None

    while True:
        piece = await off_loop(step)
        if ended:
            return _join_pieces(pieces) if ended[0] is None else ended[0]
        pieces.append(await _report(piece, context))


async def _report(piece: Any, context: ToolContext | None) -> Any:
    if context is not None:
        await context.progress(piece if isinstance(piece, str) else str(piece))
    return piece


def _join_pieces(pieces: list[Any]) -> Any:
    return "".join(pieces) if pieces and all(isinstance(piece, str) for piece in pieces) else pieces


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    effect: Effect = ...,
    name: str = ...,
    description: str = ...,
    timeout: float | str | None = ...,
    undo: Callable[..., Any] | None = ...,
    reconcile: Callable[..., Any] | None = ...,
    labels: ToolLabels | Mapping[str, Any] | None = ...,
    background: bool = ...,
    price: float | str = ...,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: `@tool`, or `@tool(effect="pure", timeout="10s")`.

    Args:
        function: The function. Its type hints and its docstring describe the tool to the model.
        effect: The effect of a call, which decides about a call that a crash interrupted. A "pure" or "idempotent" call runs
            again. A "compensable" call is undone first. An "irreversible" call (default) is looked up with `reconcile`, or a
            person is asked.
        name: The name of the tool (default: that of the function).
        description: The description for the model (default: the docstring).
        timeout: Seconds, or a text such as "10s" (default: 300 s; no timeout with `background=True`).
        undo: A function that takes back a call. It gets the arguments of the call.
        reconcile: A function that finds out whether a call happened. It returns the result of the call, or None.
        labels: The labels that `Flow` needs, as `ToolLabels` or a mapping.
        background: True if a call returns at once while the function continues. The model gets a message when the function has
            ended, and collects the result with the tool `tasks`.
        price: The highest price of a call, such as "$0.04" (default: free). It is charged for every call, unless the call
            reports its cost in `ToolResult.usage`. A call that a limit on money cannot pay is refused. Agents that the tool
            runs are charged in addition.
    """
    for name in options:
        if name not in _OPTIONS:
            raise UnknownParameter("tool", name, PEERS.get(name, ""), _OPTIONS)
    if function is not None:
        return FunctionTool(function, **options)
    check_effect(options.get("name", ""), options.get("effect", "irreversible"))
    return partial(FunctionTool, **options)
