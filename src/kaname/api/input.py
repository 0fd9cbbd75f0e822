"""Check and normalise what a caller passes in before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeGuard, Union, get_args, get_origin, is_typeddict

from ..core.errors import ConfigError
from ..core.messages import Media, Message, Text, ToolResult, user
from ..core.notices import notice
from ..core.openai_shape import from_openai
from ..kernel.ports import Policy

if TYPE_CHECKING:
    from .config.build import Config

Input = str | Message | Mapping[str, Any] | Sequence[str | Media] | Sequence[Message | Mapping[str, Any]]


def as_list(tools: Any) -> list[Any]:
    if isinstance(tools, Mapping | str) or not hasattr(tools, "__iter__"):
        raise ConfigError(notice("input.tools", "tools is a list of tools: write tools=[…], not {tools!r}", tools=tools))
    return list(tools)


def as_tuple(name: str, given: Any) -> tuple[Any, ...]:
    if isinstance(given, str | Mapping | Policy) or not hasattr(given, "__iter__"):
        raise ConfigError(notice("input.list", "{name} is a list: write {name}=[…], not {given!r}", name=name, given=given))
    return tuple(given)


def as_mapping(name: str, given: Mapping[str, Any] | None, example: str) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(
            notice(
                "input.mapping", "{name} is a mapping like {example}, not {given!r}", name=name, example=example, given=given
            )
        )
    return given or {}


def check_deps(tools: Mapping[str, Any], deps: Any) -> None:
    """A tool says with `ToolContext[Deps]` what it wants of the program."""
    for tool in tools.values():
        wanted = getattr(tool, "wanted_deps", None)
        if wanted is None or _is_a(deps, wanted):
            continue
        kind = getattr(wanted, "__name__", wanted)
        brought = (
            notice("deps.none", "none were passed") if deps is None else notice("deps.not", "not {deps!r:.100}", deps=deps)
        )
        raise ConfigError(
            notice(
                "deps.kind",
                "tool {name} wants deps of type {kind}, {brought}: agent.run(…, deps=…), and so with resume and fork",
                name=tool.name,
                kind=kind,
                brought=brought,
            )
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
        raise ConfigError(
            notice(
                "input.kind",
                "the input of a run is a text, a list of texts and Media, a Message, "
                '{{"role": "user", "content": …}}, or a list of messages, not {given!r:.200}',
                given=given,
            )
        )
    message = given if isinstance(given, Message) else from_openai(given)
    if message.role != "user":
        raise ConfigError(
            notice("input.role", "the input of a run is a user's message, not one of {role!r}", role=message.role)
        )
    return message


def as_turn(given: Input) -> tuple[Message, ...]:
    """The user's message, after what was said before it elsewhere, if that is given: a list of messages."""
    if not isinstance(given, list | tuple) or not given or not all(isinstance(one, Message | Mapping) for one in given):
        return (as_message(given),)
    before = [one if isinstance(one, Message) else from_openai(one) for one in given[:-1]]
    open_calls: list[str] = []
    for message in (*before, last := as_message(given[-1])):
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        if (open_calls[:1] if message.role == "tool" else []) != results or (open_calls and message.role != "tool"):
            raise ConfigError(
                notice("input.calls_and_results", "each tool call in the messages needs its result right after it, in order")
            )
        open_calls = open_calls[1:] if results else [call.id for call in message.calls]
    return (*before, last)


def is_config(given: Any) -> TypeGuard[Config]:
    """Whether it is what `load_config` gives. Nobody has one who has not loaded that module, and an agent need not either."""
    module = sys.modules.get("kaname.api.config.build")
    return module is not None and isinstance(given, module.Config)
