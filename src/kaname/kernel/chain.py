"""Wrap a call in policies, from the inside out: the first policy is the outermost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import Any, get_args

from ..core.errors import BadArguments, ConfigError
from ..core.messages import NOTHING, Message, ToolResult, Usage
from .bases import bound_of
from .ports import Admission, ModelHandler, Place, Policy, StopRule, ToolHandler
from .view import RunView

_PLACES: tuple[Place, ...] = get_args(Place)
_EACH_ATTEMPT = _PLACES[_PLACES.index("attempt") :]


async def let_in(question: Message) -> Usage:
    """Admit the question. This is the innermost handler: no policy objected."""
    return NOTHING


def join_policies(root: Sequence[Policy], member: Sequence[Policy]) -> tuple[Policy, ...]:
    """Return the policies around a member's calls after a handoff: the root's policies, then its own, each in its place.

    A default is there once per run. It is left out if it must stand alone and the root or the member wrote a policy of its
    class.
    """
    both = list({id(policy): policy for policy in (*root, *member)}.values())
    written = [policy for policy in both if not policy.about.is_default]
    nearest = {type(policy): policy for policy in written if policy.about.stands_alone}
    kept = [policy for policy in written if nearest.get(type(policy), policy) is policy]
    defaults = {type(policy): policy for policy in both if policy.about.is_default}.values()
    missing = [one for one in defaults if not (one.about.stands_alone and any(isinstance(other, type(one)) for other in kept))]
    return in_order((*kept, *missing))


def in_order(policies: Sequence[Policy]) -> tuple[Policy, ...]:
    """Return the policies by their places, the outermost first. Raises `ConfigError` if a place does not exist."""
    for policy in policies:
        if policy.place not in _PLACES:
            raise ConfigError.of(
                "policy.place",
                "{policy}: there is no place {place!r}; a policy stands in one of: {places}",
                policy=type(policy).__name__,
                place=policy.place,
                places=", ".join(_PLACES),
            )
    return tuple(sorted(policies, key=lambda policy: _PLACES.index(policy.place)))


def join_rules(root: Sequence[StopRule], member: Sequence[StopRule]) -> tuple[StopRule, ...]:
    """Return the stop rules for a member's steps: all that were written, and one default for each kind that was not."""
    both = (*root, *member)
    written = [rule for rule in both if not bound_of(rule).is_default]
    kinds = {bound_of(rule).kind for rule in written}
    defaults = {bound_of(rule).kind: rule for rule in both if bound_of(rule).is_default}
    missing = {kind: rule for kind, rule in defaults.items() if kind not in kinds}
    return (*missing.values(), *written)


class Chain:
    """The policies of an agent, by the joint that they wrap. One chain serves all runs of the agent."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self._admitting, self._asking, self._using = [
            [policy for policy in policies if overrides(policy, joint)] for joint in ("admit", "model", "tool")
        ]

    def around_question(self, view: RunView) -> Admission:
        return _wrap(self._admitting, "admit", let_in, view)  # type: ignore[no-any-return]

    def around_model(self, core: ModelHandler, view: RunView) -> ModelHandler:
        return _wrap(self._asking, "model", core, view)  # type: ignore[no-any-return]

    def around_tool(self, core: ToolHandler, view: RunView) -> ToolHandler:
        return _wrap(self._using, "tool", core, view)  # type: ignore[no-any-return]


def around_model(policies: Sequence[Policy], core: ModelHandler, view: RunView) -> ModelHandler:
    return Chain(policies).around_model(core, view)


def around_attempt(policies: Sequence[Policy], core: ModelHandler, view: RunView) -> ModelHandler:
    """Wrap a model call in the policies that concern a single attempt: rates, time limits, budgets and privacy."""
    return around_model([policy for policy in policies if policy.place in _EACH_ATTEMPT], core, view)


def _wrap(policies: Sequence[Policy], joint: str, core: Any, view: RunView) -> Any:
    wrapped = _WrappedCall if joint == "tool" else _Wrapped
    for policy in reversed(policies):
        core = wrapped(getattr(policy, joint), core, view)
    return core


class _Wrapped:
    """A handler in one policy. It is an object, because the five of a closure would be made for each policy and each run."""

    __slots__ = ("core", "view", "wrap")

    def __init__(self, wrap: Any, core: Any, view: RunView) -> None:
        self.wrap, self.core, self.view = wrap, core, view

    def __call__(self, given: Any) -> Any:
        return self.wrap(given, self.core, self.view)


class _WrappedCall(_Wrapped):
    """A tool handler in one policy, which is shown the arguments that the tool would receive now.

    An outer policy may have changed the call. Arguments that do not fit are refused here.
    """

    __slots__ = ()

    def __call__(self, given: Any) -> Any:
        try:
            seen = self.view.as_received(given)
        except BadArguments as problem:
            return _refusal(str(problem))
        return self.wrap(seen, self.core, self.view)


async def _refusal(problem: str) -> ToolResult:
    return ToolResult(error=problem, not_run=True)


def overrides(part: object, method: str, base: type = Policy) -> bool:
    """Return True if a part has `base`'s method and overrides it, in its class or on the object."""
    own = getattr(part, method, None)
    return own is not None and getattr(own, "__func__", None) is not getattr(base, method)


def policies_with(policies: Iterable[Policy], method: str) -> tuple[Policy, ...]:
    """Return the policies that override a method of `Policy`, in their order."""
    return tuple([one for one in policies if overrides(one, method)])


def can_call(function: Callable[..., Any], *arguments: Any, **named: Any) -> bool:
    """Return True if a function can be called with these arguments, by its signature."""
    try:
        signature(function).bind(*arguments, **named)
    except TypeError:
        return False
    return True
