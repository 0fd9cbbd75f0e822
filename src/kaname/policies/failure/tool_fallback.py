"""When a tool fails: try again, try another, and in the end let the model answer without it.

What may be tried again depends on the tool's effect: pure and idempotent calls are, a compensable one is undone first, an
irreversible one is not, because nobody knows what it has already done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ...core.durations import backoff, is_number, is_whole
from ...core.errors import BadArguments, ConfigError, Signal, UnexpectedError
from ...core.messages import ToolCall, ToolResult
from ...core.notices import notice
from ...core.record import record, replace
from ...core.values import plain_text
from ...kernel.bases import PolicyInfo, options_of
from ...kernel.boundary import Failure, attempt
from ...kernel.chain import overrides
from ...kernel.ports import Action, Policy, Tool, ToolHandler
from ...kernel.results import own_result, timeout_result
from ..names import known_tools

if TYPE_CHECKING:
    from ...kernel.view import RunView

_RETRIED = ("pure", "idempotent")
_UNKNOWN = "undeclared"  # a tool of the smallest protocol says nothing of effects, and is retried, as its design has it


@record
class FallbackResult:
    """The result of a tool after retries and fallbacks.

    In a run, an error that the model can correct, such as `1/0`, is not `degraded`: the model reads it and continues.

    Attributes:
        output: The output of the tool.
        error: The error message, or None.
        attempts: The number of tries.
        degraded: True if all tries failed, so that the answer has to do without this tool.
        tool: The tool that returned the output, if it was used in place of another.
    """

    output: Any = None
    error: str | None = None
    attempts: int = 1
    degraded: bool = False
    tool: str = ""

    @property
    def is_error(self) -> bool:
        return self.error is not None


@record
class RecoveryStep:
    """What to do about a failure: retry after `wait` seconds, use `tool` instead, or report `message`."""

    action: Literal["retry", "fallback", "report"]
    message: str = ""
    wait: float = 0.0
    tool: str = ""


class FallbackStrategy(Policy):
    """Retry a tool that failed, then call another tool, then let the model answer without it.

    If a root and a member of its team both have one, the member's repeats the member's calls; the root's stand-ins follow.

    It stands around your other policies, so that they see each try and each stand-in as a call of its own.

    A subclass that overrides `execute_with_fallback` is asked to execute every call of a run. The tool that it gets stands for
    the call with everything that is around it; `fallback={…}` is not used then, and is refused.

    Args:
        max_retries: The number of retries (default 2). Only pure and idempotent tools are retried, and a compensable tool after
            its undo.
        fallback: The tool to call with the same arguments when a tool has failed for good: `{"tool_a": "tool_b"}`.
        backoff: Seconds before the first retry (default 0.5). The pause doubles with each further one, and is shortened at
            random.
        longest_wait: The longest pause in seconds (default 30).
        degrade: True (default) to let the model answer without tools in the end; False to show it the error, so that it can
            call other tools.

    Raises:
        ConfigError: A number or a name cannot be used, or the names form a circle.
    """

    place = "choice"
    about = PolicyInfo(replayed=False)  # the recorded result is what came of all tries

    def __init__(
        self,
        max_retries: int = 2,
        fallback: Mapping[str, str] | None = None,
        *,
        backoff: float = 0.5,
        longest_wait: float = 30.0,
        degrade: bool = True,
    ) -> None:
        if not is_whole(max_retries, 0):
            raise ConfigError.of(
                "fallback.max_retries",
                "max_retries must be an integer of at least 0, not {max_retries!r}",
                max_retries=max_retries,
            )
        for what, seconds in (("backoff", backoff), ("longest_wait", longest_wait)):
            if not is_number(seconds, 0):
                raise ConfigError.of(
                    "fallback.seconds",
                    "{what} must be a number of seconds of at least 0, not {seconds!r}",
                    what=what,
                    seconds=seconds,
                )
        self.max_retries, self.degrade = max_retries, degrade
        if fallback is not None and not isinstance(fallback, Mapping):
            raise ConfigError.of(
                "fallback.names_not",
                'fallback must map names of tools to names of tools, such as fallback={{"tool_a": "tool_b"}}, not {fallback!r}',
                fallback=fallback,
            )
        self.fallback = dict(fallback or {})
        if not all(isinstance(name, str) and name for pair in self.fallback.items() for name in pair):
            raise ConfigError.of(
                "fallback.names", 'fallback must map names of tools to names of tools: fallback={{"tool_a": "tool_b"}}'
            )
        self._backoff, self._longest = backoff, longest_wait
        for name in self.fallback:
            self._chain(name)
        if self.fallback and self._is_own:
            raise ConfigError.of(
                "fallback.names_and_own",
                "{kind} overrides execute_with_fallback, so fallback={{…}} would have no effect",
                kind=type(self).__name__,
            )

    @property
    def _is_own(self) -> bool:
        return overrides(self, "execute_with_fallback", FallbackStrategy)

    def _chain(self, name: str) -> list[str]:
        """The tool and those that stand in for it, one after the other."""
        chain = [name]
        while (name := self.fallback.get(name, "")) != "":
            if name in chain:
                raise ConfigError.of("fallback.circle", "fallback is circular: {around}", around=" -> ".join([*chain, name]))
            chain.append(name)
        return chain

    def check(self, tools: Mapping[str, Action]) -> None:
        known_tools("fallback", {*self.fallback, *self.fallback.values()}, tools)

    async def execute_with_fallback(self, tool: Tool, input_text: str) -> FallbackResult:
        """Outside of a run: this tool, as often as its effect allows."""
        if not hasattr(tool, "execute"):
            raise ConfigError.of(
                "fallback.no_execute",
                "{tool!r} has no execute(input_text). Turn a function into a tool with @tool.",
                tool=tool,
            )

        seconds = getattr(tool, "timeout", options_of(tool).timeout)  # of an object, or of a function

        async def once() -> ToolResult:
            try:
                async with asyncio.timeout(seconds):
                    result = await attempt(tool.execute, input_text, passing=(Signal,) if isinstance(tool, CalledTool) else ())
            except TimeoutError:
                return timeout_result(seconds, in_doubt=False)
            if isinstance(result, Failure):
                return ToolResult(error=str(result))
            return own_result(result) or ToolResult(result)

        repeatable = _declared_effect(tool) in (*_RETRIED, _UNKNOWN)
        result, attempts, _ = await self._try_repeatedly(tool.name, once, lambda: repeatable)
        degraded = result.is_error and (result.retryable or not isinstance(tool, CalledTool))
        return FallbackResult(result.output, result.error, attempts, degraded, tool.name)

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        if self._is_own and (tool := view.tools(call).get(call.name, None)) is not None:
            return await self._execute_own(CalledTool(call, tool, next))
        result, step = ToolResult(), RecoveryStep("fallback", tool=call.name)
        failures: list[str] = []
        left: set[str] = set()  # what those tried so far may have left behind
        tried: set[str] = set()
        while step.action == "fallback" and (name := step.tool) not in tried:
            one = replace(call, name=name)
            if failures and (why := self._may_not_stand_in(one, left, view)):
                failures.append(why)
                break
            tried.add(name)
            result, attempts, step = await self._try_repeatedly(
                name, partial(next, one), partial(self._may_repeat, one, view), partial(_clear_for_retry, one, view)
            )
            ran = _ran(one, view)
            if not result.is_error or not result.retryable or not ran:
                if failures and not result.is_error:
                    stood_in = notice("fallback.answered", "{failure}; used {name} instead", failure=failures[-1], name=name)
                    await view.warn("fallback", stood_in)
                if not failures or not result.is_error:
                    return result
            reported = step.message if step.action == "report" else ""
            once = self._why_once(one, view) if ran and attempts == 1 else ""
            failures.append((reported or _failure(name, attempts, result)) + once)
            undone = await _undone(one, view)  # what the last try may have left behind
            left |= {_effect(one, view)} if ran and not undone else set()
        told = "\n".join(failures)
        return replace(result, output=None, error=told, gave_up=self.degrade)

    async def _execute_own(self, tool: CalledTool) -> ToolResult:
        """Have a subclass execute the call, and take what it returns for the call's result."""
        said: Any = await self.execute_with_fallback(tool, tool.input_text)
        if tool.signal is not None:  # a question, or the run's end: not for a fallback to swallow
            raise tool.signal
        if isinstance(said, ToolResult):
            return said
        if not hasattr(said, "degraded"):
            kind = type(self).__name__
            raise UnexpectedError(f"{kind}.execute_with_fallback returned {repr(said)[:100]}; expected a FallbackResult")
        last, output, error = tool.last, getattr(said, "output", None), getattr(said, "error", None)
        if said.degraded:
            text = notice("fallback.own_failed", "{name} could not be used", name=tool.name)
            return replace(last, output=None, error=str(error or last.error or text), gave_up=self.degrade)
        same = not last.is_error and output == last.output
        return last if same else replace(last, output=output, error=error, shown=None)

    def _may_repeat(self, call: ToolCall, view: RunView) -> bool:
        """Return True if the call can be repeated, and no other FallbackStrategy further in has done so already."""
        strategies = [policy for policy in view.policies(call) if isinstance(policy, FallbackStrategy)]
        return strategies[-1:] in ([self], []) and _may_repeat(call, view)

    def _why_once(self, call: ToolCall, view: RunView) -> str:
        """Say why a call was not tried again although tries were left: the reader can change that."""
        if not self.max_retries or _may_repeat(call, view):
            return ""
        return notice(
            "fallback.once",
            ' (not retried: {name} is not declared effect="pure" or "idempotent", so a retry might repeat its effect)',
            name=call.name,
        )

    def _may_not_stand_in(self, other: ToolCall, left: set[str], view: RunView) -> str:
        """Return the reason that another tool must not be used instead, or "".

        An effect that may have happened must not be repeated in another way.

        After an irreversible call, only a tool without effects can be used; after an idempotent call, also an idempotent tool.
        Permissions are not checked here: that happens at the tool, as for every call.
        """
        if view.tools(other).get(other.name, None) is None:
            return notice("fallback.no_tool", "the fallback tool {name} does not exist", name=other.name)
        allowed = {"pure"} if left - {"pure", "idempotent", _UNKNOWN} else {"pure", "idempotent", _UNKNOWN}
        if left - {"pure"} and _effect(other, view) not in allowed:
            return notice(
                "fallback.in_doubt", "{name} was not used instead: the call before may have taken effect", name=other.name
            )
        return ""

    def _recover(self, name: str, attempt: int, error: str, can_retry: bool) -> RecoveryStep:
        """Return the next step after a failed try of a tool: retry it, use its fallback, or report the failure."""
        if can_retry and attempt <= self.max_retries:
            return RecoveryStep("retry", wait=backoff(attempt, self._backoff, self._longest, jitter=0.5))
        other = self.fallback.get(name, "")
        return RecoveryStep("fallback" if other else "report", tool=other)

    async def _try_repeatedly(
        self,
        name: str,
        once: Callable[[], Awaitable[ToolResult]],
        may_repeat: Callable[[], bool],
        clear_up: Callable[[], Awaitable[bool]] | None = None,
    ) -> tuple[ToolResult, int, RecoveryStep]:
        """Try a tool as often as is allowed. Return the last result, the number of tries, and what to do about a failure."""
        attempts = 0
        while True:
            result, attempts = await once(), attempts + 1
            if not result.is_error or not result.retryable:
                return result, attempts, RecoveryStep("report")
            can_retry = may_repeat()
            step = self._recover(name, attempts, result.error or "", can_retry)
            if step.action == "retry" and clear_up is not None and can_retry and not await clear_up():
                can_retry, step = False, self._recover(name, attempts, result.error or "", False)
            if step.action != "retry" or not can_retry:
                return result, attempts, step
            await asyncio.sleep(step.wait)


class CalledTool:
    """One call of a run as the smallest kind of tool, for `execute_with_fallback`. Its other attributes are the tool's own.

    `last`: what the last try gave; `signal`: what it raised for somebody further out.
    """

    def __init__(self, call: ToolCall, tool: Action, next: ToolHandler) -> None:
        self.name, self.description = call.name, tool.description
        self._call, self._tool, self._next = call, tool, next
        self.input_text = one_text(call.args)
        self.last = ToolResult()
        self.signal: Signal | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    async def execute(self, input_text: str) -> ToolResult:
        if self.signal is not None:
            raise self.signal
        same = input_text == self.input_text
        try:
            self.last = await self._next(self._call if same else replace(self._call, args=input_text))
        except Signal as signal:
            self.signal = signal
            raise
        return self.last


def one_text(args: Any) -> str:
    """Return a call's arguments as the smallest kind of tool takes them: the only one, or all as JSON."""
    return plain_text(*args.values()) if isinstance(args, Mapping) and len(args) == 1 else plain_text(args)


def _declared_effect(tool: Any) -> str:
    return str(tool.effect) if options_of(tool).declared and hasattr(tool, "effect") else _UNKNOWN


def _effect(call: ToolCall, view: RunView) -> str:
    tool = view.tools(call).get(call.name, None)
    return "pure" if tool is None else _declared_effect(tool)


def _may_repeat(call: ToolCall, view: RunView) -> bool:
    tool = view.tools(call).get(call.name, None)
    if tool is None or not _ran(call, view):
        return False
    undone = tool.effect == "compensable" and options_of(tool).undo is not None
    return undone or _declared_effect(tool) in (*_RETRIED, _UNKNOWN)


def _ran(call: ToolCall, view: RunView) -> bool:
    """Return True if the tool itself was reached. Otherwise the model has to correct its call."""
    begun = view.state.started.get(call.id)
    return begun is not None and begun.call.name == call.name


async def _clear_for_retry(call: ToolCall, view: RunView) -> bool:
    """Return True if the call can be run again now. A compensable call is undone first."""
    return _effect(call, view) != "compensable" or await _undone(call, view)


async def _undone(call: ToolCall, view: RunView) -> bool:
    """Return True if the call was undone, or there was nothing to undo."""
    tool, begun = view.tools(call).get(call.name, None), view.state.started.get(call.id)
    if tool is None or begun is None or begun.run_id != view.run_id or not _ran(call, view):
        return True
    undo = options_of(tool).undo
    if tool.effect != "compensable" or undo is None:
        return _declared_effect(tool) == "pure"
    try:
        prepared = tool.prepare(view.as_sent(call))
    except BadArguments:
        return False
    await view.confirm()
    outcome = await attempt(undo, prepared, view.tool_context(call.id, begun.key, begun.attempt))
    return not isinstance(outcome, Failure) and not (isinstance(outcome, ToolResult) and outcome.is_error)


def _failure(name: str, attempts: int, result: ToolResult) -> str:
    return notice(
        "fallback.failed",
        "{name} failed after {attempts} {value}: {error}",
        name=name,
        attempts=attempts,
        value="try" if attempts == 1 else "tries",
        error=result.error,
    )


ToolFallback = FallbackStrategy  # our own word for it; the other is design A's
Fallback = ToolFallback  # its old name
