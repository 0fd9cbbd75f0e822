"""From a function's signature to the schema that a model reads and the check that its arguments pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from ..core.errors import ConfigError
from ..core.record import record
from ..kernel.ports import ToolContext
from .arguments import validate
from .docstrings import parse

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@record
class Signature:
    """`context` is the name of the parameter that takes the run's context, which the model never sees."""

    parameters: Mapping[str, Any]
    context: str
    names: Mapping[str, str]  # of the checking model's fields: a parameter may be called `json` or `_x`, a field may not
    adapter: TypeAdapter[Any]

    def bind(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        checked = validate(self.adapter, name, args)
        bound = {name: checked.__dict__[field] for field, name in self.names.items()}
        return {**bound, **(checked.model_extra or {})}


def read_signature(function: Callable[..., Any], name: str) -> Signature:
    """Built when the tool is first used: pydantic is slow to load, and a program may never get that far."""
    from pydantic import ConfigDict, TypeAdapter, create_model
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    hints = _hints(function, name)
    _, described = parse(function)
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    context, extra = "", False
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext:
            context = parameter.name
        elif parameter.kind is parameter.VAR_KEYWORD:
            extra = True
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise ConfigError(f"tool {name}: the parameter {parameter.name!r} cannot be passed by name, as models do")
        else:
            field = f"p{len(fields)}"
            names[field] = parameter.name
            about = described.get(parameter.name) or _first_text(hint)
            fields[field] = (hint, _field(parameter, about))
    config = ConfigDict(extra="allow" if extra else "forbid", arbitrary_types_allowed=False, protected_namespaces=())
    try:
        model = create_model(f"{name}_arguments", __config__=config, **fields)
        adapter: TypeAdapter[Any] = TypeAdapter(model)
        return Signature(_tidy(adapter.json_schema()), context, names, adapter)
    except (PydanticSchemaGenerationError, PydanticUserError) as problem:
        raise ConfigError(
            f"tool {name}: a parameter has a type that cannot be shown to a model: {problem.message}"
        ) from problem


def _field(parameter: inspect.Parameter, about: str | None) -> Any:
    from pydantic import Field
    from pydantic.fields import FieldInfo

    given = parameter.default
    if isinstance(given, FieldInfo):  # def f(x: int = Field(3, ge=1))
        field = copy(given)
        field.alias = field.validation_alias = field.serialization_alias = parameter.name
        field.description = field.description or about
        return field
    default = ... if given is parameter.empty else given
    return Field(default, alias=parameter.name, description=about)


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(_plain(function), include_extras=True)
    except NameError as problem:
        raise ConfigError(
            f"tool {name}: {problem}; a type used in its signature must be importable at module level, not only under "
            "TYPE_CHECKING"
        ) from problem


def _plain(function: Any) -> Any:
    """The function inside a partial, a wrapper, or an object that can be called."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if inspect.isroutine(function) else type(function).__call__


def _first_text(hint: Any) -> str | None:
    """`Annotated[str, "the city"]`: the plain text is the description."""
    if get_origin(hint) is Annotated:
        return next((note for note in get_args(hint)[1:] if isinstance(note, str)), None)
    return None


def _tidy(schema: Any) -> Any:
    """Without the titles that pydantic makes up: they cost tokens and say nothing. A property named `title` stays."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidied = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        named = key in ("properties", "$defs") and isinstance(value, dict)
        tidied[key] = {name: _tidy(item) for name, item in value.items()} if named else _tidy(value)
    return tidied
