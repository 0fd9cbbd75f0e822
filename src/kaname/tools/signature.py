"""Read a function's signature and docstring: make the schema that the model sees, and the validator of the arguments."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from ..core.errors import ConfigError
from ..core.record import record
from ..kernel.ports import ToolContext
from .arguments.prepare import validate

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@record
class Signature:
    """A function's parameters. `context` names those that receive the run's context; the model does not see them."""

    parameters: Mapping[str, Any]
    context: tuple[str, ...]
    names: Mapping[str, str]  # of the checking model's fields: a parameter may be called `json` or `_x`, a field may not
    adapter: TypeAdapter[Any]

    def bind(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        checked = validate(self.adapter, name, args, self.parameters)
        bound = {name: checked.__dict__[field] for field, name in self.names.items()}
        return {**bound, **(checked.model_extra or {})}


def read_signature(function: Callable[..., Any], name: str) -> Signature:
    """Build the schema and the validator. Done on first use, because pydantic is slow to import.

    Raises `ConfigError` if a parameter cannot be passed by name or has a type without a schema."""
    from pydantic import ConfigDict, TypeAdapter, create_model
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError

    hints = _hints(function, name)
    _, described = parse(plain_function(function))
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    context: list[str] = []
    extra = False
    for parameter in _parameters(function, name):
        hint = hints.get(parameter.name, Any)
        if is_context(hint):
            context.append(parameter.name)
        elif parameter.kind is parameter.VAR_KEYWORD:
            extra = True
        else:
            field = f"p{len(fields)}"
            names[field] = parameter.name
            fields[field] = (_hint(parameter, hint), _field(parameter, hint, described.get(parameter.name)))
    config = ConfigDict(
        extra="allow" if extra else "forbid",
        arbitrary_types_allowed=False,
        protected_namespaces=(),
        allow_inf_nan=False,  # JSON has neither, and no condition of an approval catches a NaN
    )
    try:
        model = create_model(f"{name}_arguments", __config__=config, **fields)
        adapter: TypeAdapter[Any] = TypeAdapter(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a default that has no JSON: it is left out of the schema
            return Signature(_tidy(adapter.json_schema()), tuple(context), names, adapter)
    except (PydanticSchemaGenerationError, PydanticUserError, PydanticInvalidForJsonSchema) as problem:
        raise ConfigError.of(
            "tool.type",
            "tool {name}: a parameter has a type that JSON Schema cannot describe: {problem}",
            name=name,
            problem=problem.message,
        ) from problem


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError) as problem:
        raise ConfigError.of(
            "tool.no_signature", "tool {name}: {problem}; wrap it in your own function", name=name, problem=problem
        ) from problem
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise ConfigError.of(
                "tool.positional",
                "tool {name}: models pass arguments by name, and the parameter {parameter!r} cannot be passed so",
                name=name,
                parameter=parameter.name,
            )
    return parameters


def is_context(hint: Any) -> bool:
    """Return True for `ToolContext` or `ToolContext[Deps]`, also with `| None` or inside `Annotated`."""
    return bool(_contexts(hint))


def _contexts(hint: Any) -> list[Any]:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return [one for one in (hint, *get_args(hint)) if one is ToolContext or get_origin(one) is ToolContext]


def wanted_deps(function: Callable[..., Any], name: str) -> Any:
    """Return the type in `ToolContext[Deps]`, or None if the function does not name one."""
    hints = _hints(function, name)
    hints.pop("return", None)
    wanted = [kind for hint in hints.values() for one in _contexts(hint) for kind in get_args(one) if kind is not Any]
    return wanted[0] if wanted else None


def _hint(parameter: inspect.Parameter, hint: Any) -> Any:
    """Return the type of a parameter. `x: int = None` also allows None; `x: int = Field(ge=1)` adds its limits."""
    if parameter.default is None and hint is not Any:
        return hint | None
    metadata = getattr(parameter.default, "metadata", ())
    for limit in metadata if type(parameter.default).__name__ == "FieldInfo" else ():
        hint = Annotated[hint, limit]
    return hint


def _field(parameter: inspect.Parameter, hint: Any, about: str | None) -> Any:
    from pydantic import Field
    from pydantic.fields import FieldInfo

    given = parameter.default
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    if not any(isinstance(note, FieldInfo) and note.description for note in notes):
        about = about or next((note for note in notes if isinstance(note, str)), None)
    else:
        about = None
    if isinstance(given, FieldInfo):  # def f(x: int = Field(3, ge=1))
        options = {key: value for key, value in given._attributes_set.items() if key != "annotation"}
        return Field(**{"description": about, **options, "alias": parameter.name})
    default = ... if given is parameter.empty else given
    return Field(default, alias=parameter.name, description=about) if about else Field(default, alias=parameter.name)


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(plain_function(function), include_extras=True)
    except NameError as problem:
        raise ConfigError.of(
            "tool.hints",
            "tool {name}: {problem}; a type used in its "
            "signature must be importable at module level, not only under TYPE_CHECKING",
            name=name,
            problem=problem,
        ) from problem


def plain_function(function: Any) -> Any:
    """Return the function inside a partial, a wrapper, or a callable object."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if inspect.isroutine(function) else type(function).__call__


def _tidy(schema: Any) -> Any:
    """Remove the titles that pydantic generates, since they only cost tokens. A property named `title` stays."""
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


_PARAMETERS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters", "引数"}
_DROPPED = {"returns", "return", "raises", "yields", "yield", "receives", "example", "examples"}
_DROPPED |= {"戻り値", "返り値", "例外", "例"}
_HEADING = re.compile(r"^(\w[\w ]*?)\s*[::]?\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*[::]\s*(.*)$")
_NUMPY_ENTRY = re.compile(r"^(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_SPHINX = re.compile(r"^:param\s+(?:[\w\[\], |.]+\s+)?(\w+)\s*:\s*(.*)$")


def parse(function: Any) -> tuple[str, dict[str, str]]:
    """Return the description without its sections on parameters and results, and the text of each documented parameter."""
    lines = (inspect.getdoc(function) or "").expandtabs(4).splitlines()
    kept: list[str] = []
    reader = _Parameters()
    section = ""
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        heading = _section_name(line, following)
        if heading:
            section = "numpy" if heading in _PARAMETERS and _is_rule(following) else heading
            reader.begin()
        elif match := _SPHINX.match(line.strip()):
            section = "sphinx"
            reader.entry([match.group(1)], match.group(2), _indent(line))
        elif re.match(r"^:(returns?|rtype|raises?|type)\b", line.strip()):
            section = "returns"
        elif section in _PARAMETERS:
            reader.google(line)
        elif section == "numpy":
            reader.numpy(line)
        elif section == "sphinx" and _indent(line):
            reader.more(line)
        if section in ("", "sphinx") and line.strip() and not line.strip().startswith(":") and not _indent(line):
            section = ""
        if section == "" or section not in (*_PARAMETERS, *_DROPPED, "numpy", "sphinx"):
            kept.append(line)
    return "\n".join(kept).strip(), {name: text.strip() for name, text in reader.texts.items() if text.strip()}


def _section_name(line: str, following: str) -> str:
    """Return the name of the section that a line opens, or "".

    Such a line is not indented and has a word or two, with a colon and an indented line after it, or a rule under it."""
    found = None if _indent(line) or not line.strip() else _HEADING.match(line)
    if found is None:
        return ""
    name = found.group(1).strip().lower()
    colon = line.rstrip().endswith((":", ":"))
    known = name in _PARAMETERS or name in _DROPPED
    return name if _is_rule(following) or (colon and (known or _indent(following))) else ""


def _is_rule(line: str) -> bool:
    return len(line.strip()) > 2 and set(line.strip()) <= {"-", "="}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class _Parameters:
    """The texts of parameters, collected line by line."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.begin()

    def begin(self) -> None:
        self._last: list[str] = []
        self._column: int | None = None

    def entry(self, names: list[str], text: str, column: int) -> None:
        self._last, self._column = names, column
        self.texts |= dict.fromkeys(names, text)

    def more(self, line: str) -> None:
        for name in self._last:
            self.texts[name] = f"{self.texts[name]} {line.strip()}"

    def google(self, line: str) -> None:
        match = _ENTRY.match(line.strip())
        if match and (self._column is None or _indent(line) <= self._column):
            self.entry([match.group(1)], match.group(2), _indent(line))
        elif line.strip():
            self.more(line)

    def numpy(self, line: str) -> None:
        if _is_rule(line) or not line.strip():
            return
        found = None if _indent(line) else _NUMPY_ENTRY.match(line)
        if found:
            self.entry([name.strip() for name in found.group(1).split(",")], "", 0)
        else:
            self.more(line)
