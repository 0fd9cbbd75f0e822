"""Labels of tools: whether a tool acts, which of its parameters matter, and whose text it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ..errors import ConfigError, nearest
from ..notices import notice
from ..record import record

ToolRole = Literal["reads", "acts", "own"]
ParameterRole = Literal["target", "content", "bounded"]
ROLES: tuple[ToolRole, ...] = ("reads", "acts", "own")
PARAMETER_ROLES: tuple[ParameterRole, ...] = ("target", "content", "bounded")
FLOW = "flow"  # the name of the fact that says when text from outside was read, and by which tool
LABELS_KEY = "kaname/labels"  # in the `_meta` of a tool or a result that MCP carries


@record
class ToolLabels:
    """Describes a tool for `Flow`. Everything that is not declared is taken for the worst.

    Args:
        role: "reads" changes nothing. "acts" (the default, unless the tool's effect is `pure`) changes something outside.
            "own" changes something that stays with the user and can be undone, such as a cart or a draft.
        parameters: The roles of parameters: "target" (the default) decides whom or what the call affects, "content" is prose,
            "bounded" can do no harm whatever its value is. For a tool that reads, only the parameters named here are checked.
        result: "untrusted" (the default) if other people can write what the tool returns; "trusted" if only the user or the
            program can; or the names of the fields of its records that are trusted.
        private: True if the results are the user's private data.
        verbs: The words with which a user asks for this tool, such as "send" or "送". By default they follow from its name.
        prose: "lenient" lets content pass that does not come from the user, as long as it holds nothing to follow.
    """

    role: ToolRole | None = None
    parameters: Mapping[str, ParameterRole] | None = None
    result: str | tuple[str, ...] | None = None
    private: bool = False
    verbs: tuple[str, ...] = ()
    prose: Literal["strict", "lenient"] = "strict"

    @property
    def reads_others(self) -> bool:
        """Return True if it is declared that other people can write what the tool returns."""
        return self.result is not None and self.result != "trusted"


def read_labels(given: Any, tool: str = "") -> ToolLabels:
    """Return labels from a `ToolLabels` or a mapping with the same keys. Raises `ConfigError`."""
    if given is None:
        return ToolLabels()
    if isinstance(given, ToolLabels):
        given = {name: getattr(given, name) for name in ToolLabels.__match_args__}
    if not isinstance(given, Mapping):
        raise ConfigError.of(
            "labels.what", "the labels of {tool!r} must be ToolLabels or a mapping, not {it!r}", tool=tool, it=given
        )
    for key in given:
        if key not in ToolLabels.__match_args__:
            message = notice("labels.key", "the labels of {tool!r} have an unknown key {key!r}", tool=tool, key=key)
            raise ConfigError(message + nearest(str(key), ToolLabels.__match_args__))
    role, prose, result = given.get("role"), given.get("prose", "strict"), given.get("result")
    parameters = given.get("parameters")
    _one_of(tool, "role", role, (None, *ROLES))
    _one_of(tool, "prose", prose, ("strict", "lenient"))
    for name, kind in _mapping(tool, parameters).items():
        _one_of(tool, f"parameters: {name}", kind, PARAMETER_ROLES)
    if not isinstance(result, str | None):
        result = _texts(tool, "result", result)
    elif result not in (None, "trusted", "untrusted"):
        result = (result,)
    private = given.get("private", False)
    _one_of(tool, "private", private, (True, False))
    return ToolLabels(role, parameters, result, private, _texts(tool, "verbs", given.get("verbs", ())), prose)


def _one_of(tool: str, key: str, value: Any, known: Iterable[Any]) -> None:
    if not any(value is one or (isinstance(value, str) and value == one) for one in known):
        listed = ", ".join([str(one).lower() for one in known if one is not None])
        raise ConfigError.of(
            "labels.value",
            "the labels of {tool!r}: {key} must be one of {listed}, not {value!r}",
            tool=tool,
            key=key,
            listed=listed,
            value=value,
        )


def _mapping(tool: str, given: Any) -> Mapping[str, Any]:
    if given is None or isinstance(given, Mapping):
        return given or {}
    raise ConfigError.of(
        "labels.parameters", "the labels of {tool!r}: parameters must be a mapping, not {it!r}", tool=tool, it=given
    )


def _texts(tool: str, key: str, given: Any) -> tuple[str, ...]:
    listed = (given,) if isinstance(given, str) else given
    if isinstance(listed, list | tuple) and all(isinstance(one, str) and one for one in listed):
        return tuple(listed)
    raise ConfigError.of(
        "labels.texts",
        "the labels of {tool!r}: {key} must be a list of words, not {it!r}",
        tool=tool,
        key=key,
        it=given,
    )
