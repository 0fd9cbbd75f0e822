"""Check and normalise what a caller passes in before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import count
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeGuard, Union, get_args, get_origin, is_typeddict

from ..core.errors import ConfigError
from ..core.messages import Media, Message, Part, Text, ToolCall, ToolResult, user
from ..core.notices import notice
from ..core.openai_shape import from_openai
from ..core.record import replace
from ..core.state import MINTED
from ..kernel.bases import ActionBase, model_info, optional, options_of
from ..kernel.ports import Policy, Recipe
from ..tools.registry import ToolRegistry, as_action
from ..tools.tool_search import Arrangement, ToolList, ToolSearch
from .recipe import fallback_in

if TYPE_CHECKING:
    from ..config.build import Config

Input = str | Message | Mapping[str, Any] | Sequence[str | Media] | Sequence[Message | Mapping[str, Any]]


def as_tools(tools: Any, own: Sequence[Any]) -> ToolRegistry:
    """Return the tools of an agent: those of a list or of a registry that was passed in, and those that it has anyway."""
    if isinstance(tools, list | tuple):
        return ToolRegistry([*tools, *own])
    from ..tools.passed import PassedRegistry, is_registry

    return PassedRegistry(tools, own) if is_registry(tools) else ToolRegistry([*as_list(tools), *own])


def tools_of_agent(tools: Any, own: Sequence[Any], model: Any = None, policies: Sequence[Policy] = ()) -> ToolRegistry:
    """Return the tools of an agent, of which the model looks up those that it needs, if there are many."""
    fallback = fallback_in(policies)
    models = [model] if fallback is None else [model, *fallback.all_models]
    searches = all(model_info(one).searches_tools for one in models)
    given = tools if hasattr(tools, "get") or not hasattr(tools, "__iter__") or isinstance(tools, str) else [*tools]
    search = [one for one in given if isinstance(one, ToolSearch)] if isinstance(given, list) else []
    if isinstance(given, list) and any(options_of(one).background for one in given):
        from .background import with_background

        given = with_background(given)
    registry = as_tools([one for one in given if one not in search] if search else given, own)
    kept = [as_action(one).name for one in own]
    registry.look_up(Arrangement(search[-1] if search else ToolSearch(), kept, searches=searches))
    return registry


def tell_of_tools(tools: ToolRegistry, parts: Sequence[Any], served: bool) -> tuple[Any, ...]:
    """Return the context parts with the one that tells the model what it can look up, if there is something, or may be."""
    return (ToolList(tools), *parts) if served or tools.hidden else tuple(parts)


def as_list(tools: Any) -> list[Any]:
    if isinstance(tools, Mapping | str) or not hasattr(tools, "__iter__"):
        raise ConfigError.of(
            "input.tools",
            "tools must be a list of tools, or a registry with get, has and list_tools: write tools=[…], not {tools!r}",
            tools=tools,
        )
    return list(tools)


def as_tuple(name: str, given: Any) -> tuple[Any, ...]:
    if isinstance(given, str | Mapping | Policy) or not hasattr(given, "__iter__"):
        raise ConfigError.of("input.list", "{name} must be a list: write {name}=[…], not {given!r}", name=name, given=given)
    return tuple(given)


def as_mapping(name: str, given: Mapping[str, Any] | None, example: str) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError.of(
            "input.mapping",
            "{name} must be a mapping such as {example}, not {given!r}",
            name=name,
            example=example,
            given=given,
        )
    return given or {}


def check_argument(fits: bool, where: str, what: str, given: Any) -> None:
    """Raise `ConfigError` unless an argument fits. `where`: its name, such as "Agent(tools=…)". `what`: what is expected."""
    if not fits:
        told = notice("input.argument", "{where} must be {what}, not {given!r:.100}", where=where, what=what, given=given)
        raise ConfigError(told)


def check_deps(recipe: Recipe, deps: Any) -> None:
    """Check that the program lends what the tools want: a tool says so with `ToolContext[Deps]`."""
    known = recipe.memo.of_tools(recipe.tools)
    if "deps" not in known:
        wishes = [(tool, optional(tool, ActionBase, "wanted_deps")) for tool in recipe.tools.values()]
        known["deps"] = [(tool, wanted) for tool, wanted in wishes if wanted is not None]
    for tool, wanted in known["deps"]:
        if _is_a(deps, wanted):
            continue
        kind = getattr(wanted, "__name__", wanted)
        brought = (
            notice("deps.none", "but none were passed") if deps is None else notice("deps.not", "not {deps!r:.100}", deps=deps)
        )
        raise ConfigError.of(
            "deps.kind",
            "tool {name} needs deps of type {kind}, {brought}. Pass them with agent.run(…, deps=…), and again "
            "with resume and fork.",
            name=tool.name,
            kind=kind,
            brought=brought,
        )


def _is_a(value: Any, kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return any(_is_a(value, one) for one in get_args(kind))
    kind = get_origin(kind) or kind
    if not isinstance(kind, type) or is_typeddict(kind) or getattr(kind, "_is_protocol", False):
        return value is not None  # what cannot be asked for at run time
    return isinstance(value, kind)


def as_message(given: Input) -> Message:
    if isinstance(given, str):
        return user(given)
    if isinstance(given, list | tuple) and given and all(isinstance(part, str | Media) for part in given):
        return Message("user", tuple([Text(part) if isinstance(part, str) else part for part in given]))
    if not isinstance(given, Message | Mapping):
        raise ConfigError.of(
            "input.kind",
            'the input of a run must be a string, a list of strings and Media, a Message, {{"role": "user", '
            '"content": …}}, or a list of messages, not {given!r:.200}',
            given=given,
        )
    message = given if isinstance(given, Message) else from_openai(given)
    if message.role != "user":
        raise ConfigError.of(
            "input.role", "the input of a run must be a message with the role 'user', not {role!r}", role=message.role
        )
    return message


def as_turn(given: Input, *, first: bool = False) -> tuple[Message, ...]:
    """The user's message, after what was said before it elsewhere, if that is given: a list of messages.

    `first`: nothing stands before them in the conversation, so that ids of calls can stay as they are.
    """
    if not isinstance(given, list | tuple) or not given or not all(isinstance(one, Message | Mapping) for one in given):
        return (as_message(given),)
    before = [one if isinstance(one, Message) else from_openai(one) for one in given[:-1]]
    open_calls: list[str] = []
    for message in (*before, last := as_message(given[-1])):
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        if (open_calls[:1] if message.role == "tool" else []) != results or (open_calls and message.role != "tool"):
            raise ConfigError.of(
                "input.calls_and_results",
                "the result of each tool call in the messages must follow directly after the call, in the same order",
            )
        open_calls = open_calls[1:] if results else [call.id for call in message.calls]
    return (*_with_other_ids(before, first), last)


def _with_other_ids(messages: Sequence[Message], first: bool) -> list[Message]:
    """Rename calls that kaname has numbered, if another can have the same id: one of the messages, or one before them."""
    taken = {call.id for message in messages for call in message.calls}
    fresh = (f"h{number}" for number in count(1) if f"h{number}" not in taken)
    made, names, seen = list[Message](), dict[str, str](), set[str]()
    for message in messages:
        ids = [call.id for call in message.calls if MINTED.fullmatch(call.id)]
        names |= {one: next(fresh) for one in ids if one in seen or not first}
        seen.update(ids)
        changed = [_replace_id(part, names) for part in message.parts]
        same = all(new is old for new, old in zip(changed, message.parts, strict=True))
        made.append(message if same else Message(message.role, tuple(changed)))
    return made


def _replace_id(part: Part, names: Mapping[str, str]) -> Part:
    if isinstance(part, ToolCall) and part.id in names:
        return replace(part, id=names[part.id])
    return replace(part, call_id=names[part.call_id]) if isinstance(part, ToolResult) and part.call_id in names else part


def is_config(given: Any) -> TypeGuard[Config]:
    """Return True for a `Config`. It is looked for without importing its module: without that module there is no `Config`."""
    module = sys.modules.get("kaname.config.build")
    return module is not None and isinstance(given, module.Config)
