"""Base classes of the parts that users write, with the optional members of each and their defaults.

A part is not obliged to inherit from its base: it needs only what its port in `ports.py` names. `optional` returns a member of
any part, or the default that is declared here. `Policy`, in `ports.py`, is the base of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from ..core.errors import ConfigError
from ..core.events import Event
from ..core.messages import ModelRequest, ToolCall
from ..core.record import record, replace
from ..core.state import State
from ..core.steps import Finish, Step, Stop

_ABSENT: Any = object()
_REPLY_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # names of one setting


@record
class ModelInfo:
    """What kaname knows about a model. Everything has a default, for a model of which it is unknown.

    Args:
        served: The provider's name of the model, if it is not the second part of `name`.
        api: The API whose names the settings have.
        settings: Settings that are sent with every request.
        tool_mode: "constrained" or "text" if the model cannot call tools natively.
        stop_setting: The provider's name for stop sequences.
        patience: Seconds that a call can take, unless the agent has a `Timeout` that says otherwise.
        rounds: The maximum number of requests for one reply.
        picture_tokens: The maximum number of tokens of a picture.
        takes: The beginnings of the media types that the model accepts, such as "image/"; () for a model that reads only
            text. None if it is unknown: everything is sent.
        caches_prompts: True if the provider charges less for the beginning of a request that it has seen before.
        searches_tools: True if the provider looks up tools by itself (see `ToolSpec.namespace`).
        instance: Equal for two objects that call the same model at one address with one key. None: the object itself.
        identity: Tells the model apart from others of its class and name, such as its address (see `kernel/identity.py`).
            Replies are not cached if it is "".
        rates: The rate limits that the provider reports (see `ReportedRates` in policies/pace/gate.py), or None.
    """

    served: str = ""
    api: str = ""
    settings: Mapping[str, Any] = {}
    tool_mode: str = ""
    stop_setting: str = "stop"
    patience: float = 600.0
    rounds: int = 1
    picture_tokens: int = 50_000
    takes: Sequence[str] | None = None
    caches_prompts: bool = False
    searches_tools: bool = False
    instance: Hashable = None
    identity: Any = ""
    rates: Any = None


class ModelBase:
    """A model. `about` describes it."""

    __slots__ = ()

    about: ModelInfo = ModelInfo()

    def ignores(self, settings: Mapping[str, Any]) -> Sequence[str]:
        """Return the names of the settings that the model's protocol does not have. kaname warns about them once."""
        return ()

    def batches(self) -> Any:
        """Return the provider's batch API as a `Batches`, or None if it has none."""
        return None

    def most_expensive(self, request: ModelRequest, input: int, output: int) -> float | None:
        """Return the highest possible cost in US dollars of a reply with so many tokens, or None if it is unknown."""
        return None

    def longest_reply(self, settings: Mapping[str, Any]) -> int | None:
        """Return the maximum number of tokens of a reply with these settings, or None if there is no maximum."""
        every = {**model_info(self).settings, **settings}
        limits = [int(every[name]) for name in _REPLY_LIMITS if isinstance(every.get(name), int | float) and every[name] >= 1]
        return max(limits, default=None)

    def shorten_replies(self, settings: Mapping[str, Any], tokens: int) -> Mapping[str, Any]:
        """Return settings with which a reply has no more than so many tokens."""
        every = {**model_info(self).settings, **settings}
        names = [name for name in _REPLY_LIMITS if every.get(name) is not None] or _REPLY_LIMITS[:1]
        return {**settings, **dict.fromkeys(names, tokens)}

    async def close(self) -> None:
        """Close the connections. `agent.close()` calls it."""


@record
class ToolOptions:
    """What a tool declares, next to its effect.

    Attributes: timeout: Seconds, or None. undo: Takes a call back. reconcile: Finds out whether a call happened. describe:
    Returns what a call will do, in the words of the tool. labels: What `Flow` needs to know about it (see `ToolLabels`), or
    None. price: The highest price of a call in US dollars, without what kaname meters by itself, such as agents that the tool
    runs; 0 if calls are free. background: True if a call returns at once, and the work goes on. listed: False if the model
    does not see the tool, although it can be called. declared: False if the user did not declare an effect. loads_tools: True
    if the model finds or calls other tools with it. server: The name of the MCP server, and the tool's name there.
    """

    timeout: float | None = None
    undo: Callable[..., Any] | None = None
    reconcile: Callable[..., Any] | None = None
    describe: Callable[..., Any] | None = None
    labels: Any = None
    price: float = 0.0
    background: bool = False
    listed: bool = True
    declared: bool = True
    loads_tools: bool = False
    server: tuple[str, str] = ("", "")


NO_OPTIONS = ToolOptions()


class ActionBase:
    """A tool as the kernel runs it.

    Attributes: options: What the tool declares. identity: What tells it apart from other tools of its class and name: a text,
    or a tuple of functions, objects and texts (see `kernel/identity.py`). Results are not cached with "", or with an object of
    unknown content. wanted_deps: The type that the tool needs as `deps`. takes_context: True if it receives the context of the
    run.
    """

    __slots__ = ()
    options: ToolOptions = NO_OPTIONS
    identity: Any = ""
    wanted_deps: Any = None
    takes_context: bool = True

    def unfold(self, call: ToolCall) -> ToolCall | None:
        """Return the call for which this call stands, or None if it stands for itself.

        The other call replaces it in the reply, so that policies and readers see what is really called.
        """
        return None

    def shown(self, prepared: Any) -> Mapping[str, Any] | None:
        """Return prepared arguments that are not JSON as JSON, for policies and people; None if they are a mapping."""
        return None


class ContextBase:
    """A part of the context.

    Attributes: order: Parts run in this order. One part with a negative order can shorten the history. tools: Tools that the
    part adds to the agent. identity: What tells it apart from other parts of its class; evaluations keep their agents apart.
    """

    __slots__ = ()

    order: int = 0
    tools: Sequence[Any] = ()
    identity: str = ""

    async def ended(self, scope: Any) -> None:
        """Learn from a run that has ended. It is called in the background."""

    def close(self) -> Any:
        """Close the files. The part can be used again afterwards."""


class SinkBase:
    """A sink.

    Attributes: wants: What the sink needs in addition to the facts of its run. "deltas": the pieces of replies; without it, a
    reply that breaks can be requested again. "children": the facts of child runs. "trace": runs pass their trace on to what
    they call.
    """

    __slots__ = ()

    wants: Collection[str] = ("deltas",)

    def recall(self, facts: Sequence[Event]) -> None:
        """Take the earlier facts of a run that is resumed in this process."""

    def flush(self) -> Any:
        """Send what is still held. `kaname serve` calls it when it ends."""


@record
class StrategyInfo:
    """What a strategy says of itself.

    Attributes: kind: How the facts of a run are to be read; "" for the name of the class. It is recorded, and a replay checks
    it. output: The form of the output, or None for text. graph: The tasks of a graph, as the page draws them. listens: True if
    the model is called again when a message of the user is added after the last reply.
    """

    kind: str = ""
    output: Any = None
    graph: list[dict[str, Any]] | None = None
    listens: bool = False


class StrategyBase:
    """A strategy.

    Attributes: about: What the strategy says of itself.
    """

    __slots__ = ()

    about: StrategyInfo = StrategyInfo()

    def conclude(self, state: State, stop: Stop) -> Step:
        """Return the step that ends the run at a limit: `Conclude` or `Finish`."""
        return Finish(stop)

    def partial(self, state: State) -> Any:
        """Return the output of a run that has not completed."""
        return None

    def planned_at(self, call_id: str, state: State) -> int:
        """Return the number of the model's reply that planned a call of the strategy; 0 if the program or a person did."""
        return 0


@record
class Bound:
    """What a stop rule limits.

    Attributes: kind: The kind of the stop. A rule replaces the default of its kind. most: The limit, or None if the rule is
    switched off. is_default: True if kaname added the rule. allows_unpriced: True if a limit on money lets models run whose
    price is unknown. root, purse, left: For a limit that a child run shares with its parent: the parent's rule, what both have
    spent, and how to find out how many US dollars they have left.
    """

    kind: str = ""
    most: float | None = None
    is_default: bool = False
    allows_unpriced: bool = False
    root: Any = None
    purse: Any = None
    left: Callable[[State], float | None] | None = None

    def dollars_left(self, state: State) -> float | None:
        """Return the US dollars that a limit on money still allows; None if that is unknown, or this is not such a limit."""
        if self.left is not None:
            return self.left(state)
        spent = state.spent.usage.ceiling
        return None if self.kind != "budget" or self.most is None or spent is None else self.most - spent


class StopRuleBase:
    """A stop rule.

    Attributes: bound: What the rule limits.
    """

    __slots__ = ()

    bound: Bound = Bound()


@record
class PolicyInfo:
    """What a policy says of itself, next to its place.

    Attributes: stands_alone: If a root and a member both have a policy of this class, only the member's is around the member's
    calls. is_default: True if kaname added the policy; it gives way to one of its class that was passed. inner: A policy that
    belongs to this one and is added with it. replayed: False if a replay leaves the policy out, because it depends on something
    outside of the record. repeat: Takes the facts of a run, and returns the policy that repeats in a replay what this one
    decided by something outside of the record. limits: The limits that it keeps in the accounts of the journal, each with its
    level, such as "user". in_background: Takes the policy and the id of a run that executes a single call in the background,
    and returns the policy for that run, because the run that made the call has counted it. roles: Where it looks up the roles
    of users, for a server that knows some. judges_replies: True if it calls models to judge a reply. chooses_models: True for
    `ModelFallback`. flow: The mode of `Flow`.
    """

    stands_alone: bool = False
    is_default: bool = False
    inner: Any = None
    replayed: bool = True
    repeat: Callable[[Sequence[Event]], Any] | None = None
    limits: Sequence[tuple[str, Any]] = ()
    in_background: Callable[[Any, str], Any] | None = None
    roles: Any = None
    judges_replies: bool = False
    chooses_models: bool = False
    flow: str = ""

    def joined_with(self, inherited: PolicyInfo) -> PolicyInfo:
        """Return this value with the fields of `inherited` where this one has the default."""
        default = PolicyInfo()
        names = [name for name in PolicyInfo.__match_args__ if getattr(self, name) != getattr(default, name)]
        return replace(inherited, **{name: getattr(self, name) for name in names})


_REPLACED: dict[str, dict[str, tuple[str, ...]]] = {  # how a value is declared now, and the members that it replaces
    "model": {"about = ModelInfo(…)": ("caches_prompts", "patience", "picture_tokens", "rates", "takes", "tool_mode")},
    "policy": {'place = "…"': ("depth",), "about = PolicyInfo(…)": ("inner", "is_default", "replayed", "stands_alone")},
    "sink": {"wants = (…)": ("reads_deltas", "traces", "with_children")},
    "strategy": {"about = StrategyInfo(…)": ("drawn", "listens")},
    "stop rule": {"bound = Bound(…)": ("allows_unpriced", "is_default", "limit")},
}


def refuse_replaced(kind: str, part: Any) -> None:
    """Raise `ConfigError` if a part of the user's declares what nobody reads any more."""
    if type(part).__module__.startswith("kaname."):
        return
    declared = {*vars(part)} if hasattr(part, "__dict__") else set()
    declared.update(*[vars(cls) for cls in type(part).__mro__ if not cls.__module__.startswith("kaname.")])
    for instead, name in [(instead, name) for instead, names in _REPLACED[kind].items() for name in names]:
        if name in declared:
            raise ConfigError.of(
                "part.replaced",
                "the {kind} {part!r:.100} sets {name!r}, which has no effect any more. Use {instead} instead: see "
                "docs/internals/extend.md",
                kind=kind,
                part=part,
                name=name,
                instead=instead,
            )


def optional(part: Any, base: type, name: str) -> Any:
    """Return an optional member of a part, or the default of its base class."""
    value = getattr(part, name, _ABSENT)
    if value is not _ABSENT:
        return value
    default = getattr(base, name)
    return default.__get__(part) if hasattr(default, "__get__") else default


def options_of(tool: Any) -> ToolOptions:
    """Return the options that a tool declares. If `tool` is None, they are the defaults."""
    options: ToolOptions = getattr(tool, "options", NO_OPTIONS)
    return options


def strategy_info(strategy: Any) -> StrategyInfo:
    """Return the description of a strategy."""
    info: StrategyInfo = optional(strategy, StrategyBase, "about")
    return info


def bound_of(rule: Any) -> Bound:
    """Return the bound that a stop rule sets."""
    bound: Bound = optional(rule, StopRuleBase, "bound")
    return bound


def model_info(model: Any) -> ModelInfo:
    """Return the description of a model."""
    info: ModelInfo = getattr(model, "about", ModelBase.about)
    return info


def conclude(strategy: Any, state: State, stop: Stop) -> Step:
    """Return the step with which a strategy ends the run at a limit. If it has concluded already, that is `Finish`."""
    if state.limit is not None:
        return Finish(state.limit)
    step: Step = optional(strategy, StrategyBase, "conclude")(state, stop)
    return step
