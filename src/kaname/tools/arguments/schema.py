"""Validate arguments against a JSON Schema, and repair those that have only one reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ...core.notices import join_notices, notice
from ...core.reading.lenient_json import TwoReadings
from ...core.values import read_json

_DEEPEST, _MOST_WORK = 60, 20_000
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_NAMES = {
    "string": notice("schema.string", "string"),
    "integer": notice("schema.integer", "integer"),
    "number": notice("schema.number", "number"),
    "boolean": notice("schema.boolean", "boolean"),
    "object": notice("schema.object", "object"),
    "array": notice("schema.array", "array"),
    "null": notice("schema.null", "null"),
}


def problems(value: Any, schema: Any, place: str = "arguments") -> list[str]:
    """Return one sentence for each mistake.

    Keywords outside of a common subset, unusual ones, and checks that would take too long are left to the tool itself."""
    try:
        return list(_Check(schema).at(value, schema, place, 0))
    except _TooMuchWork:
        return []


class _TooMuchWork(Exception):
    """The limit of work is reached. A schema that refers to itself can require any amount."""


class _Check:
    def __init__(self, root: Any) -> None:
        self._root, self._left = root, _MOST_WORK

    def at(self, value: Any, schema: Any, place: str, depth: int) -> Iterator[str]:
        self._left -= 1
        if self._left < 0:
            raise _TooMuchWork
        if depth > _DEEPEST or not isinstance(schema, Mapping):
            if schema is False:
                yield f"{place}: " + notice("schema.nothing", "no value is allowed here")
            return
        if isinstance(schema.get("$ref"), str):
            yield from self.at(value, resolve(schema["$ref"], self._root), place, depth + 1)
        wanted = type_names(schema)
        if wanted and not _is(value, wanted):
            kinds = join_notices(notice("config.or", " or "), [_NAMES[name] for name in wanted])
            yield f"{place}: " + notice("schema.kind", "expected {kinds}, got {given}", kinds=kinds, given=_kind(value))
            return
        yield from _choices(value, schema, place)
        yield from self._alternatives(value, schema, place, depth + 1)
        if isinstance(value, dict):
            yield from self._object(value, schema, place, depth + 1)
        elif isinstance(value, list):
            yield from self._list(value, schema, place, depth + 1)
        elif isinstance(value, str):
            yield from _text(value, schema, place)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from _number(value, schema, place)

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
        known, patterns = as_mapping(schema.get("properties")), as_mapping(schema.get("patternProperties"))
        for name in _items(schema.get("required")):
            if isinstance(name, str) and name not in value:
                yield f"{place}: " + notice("schema.missing", "the required {name!r} is missing", name=name)
        others = schema.get("additionalProperties", True)
        for name, item in value.items():
            fitting = [inner for pattern, inner in patterns.items() if matches(pattern, str(name)) is not False]
            if name in known:
                fitting.append(known[name])
            if not fitting and others is False:
                there = ", ".join(known) or "none"
                yield f"{place}: " + notice(
                    "schema.unknown", "unknown parameter {name!r}; the parameters are: {there}", name=name, there=there
                )
                continue
            for inner in fitting or [others]:
                yield from self.at(item, inner, f"{place}.{name}", depth)

    def _list(self, value: list[Any], schema: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
        first, rest = item_schemas(schema)
        for number, item in enumerate(value):
            yield from self.at(item, first[number] if number < len(first) else rest, f"{place}[{number}]", depth)
        yield from _check_range(
            len(value), schema.get("minItems"), schema.get("maxItems"), place, notice("schema.items", " items")
        )

    def _alternatives(self, value: Any, schema: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
        for part in _items(schema.get("allOf")):
            yield from self.at(value, part, place, depth)
        for keyword in ("anyOf", "oneOf"):
            if options := _items(schema.get(keyword)):
                tries = [list(self.at(value, option, place, depth)) for option in options]
                if all(tries):
                    none = notice("schema.no_form", " (it matches none of the {count} allowed forms)", count=len(options))
                    yield min(tries, key=len)[0] + none


def _choices(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if isinstance(schema.get("enum"), list) and value not in schema["enum"]:
        known = schema["enum"]
        yield f"{place}: " + notice("schema.one_of", "expected one of {known}, got {value!r}", known=known, value=value)
    if "const" in schema and value != schema["const"]:
        only = schema["const"]
        yield f"{place}: " + notice("schema.const", "expected {only!r}, got {value!r}", only=only, value=value)


def _text(value: str, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    yield from _check_range(
        len(value), schema.get("minLength"), schema.get("maxLength"), place, notice("schema.characters", " characters")
    )
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and matches(pattern, value) is False:
        yield f"{place}: " + notice("schema.pattern", "must match {pattern!r}", pattern=pattern)


def _number(value: float, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    yield from _check_range(value, schema.get("minimum"), schema.get("maximum"), place, "")
    least: Any = schema.get("exclusiveMinimum")
    most: Any = schema.get("exclusiveMaximum")
    if _is(least, ["number"]) and value <= least:
        yield f"{place}: " + notice("schema.more", "must be more than {least}", least=least)
    if _is(most, ["number"]) and value >= most:
        yield f"{place}: " + notice("schema.less", "must be less than {most}", most=most)


def _check_range(size: float, least: Any, most: Any, place: str, unit: str) -> Iterator[str]:
    if _is(least, ["number"]) and size < least:
        yield f"{place}: " + notice(
            "schema.at_least", "expected at least {least}{unit}, got {size}", least=least, unit=unit, size=size
        )
    if _is(most, ["number"]) and size > most:
        yield f"{place}: " + notice(
            "schema.at_most", "expected at most {most}{unit}, got {size}", most=most, unit=unit, size=size
        )


def type_names(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that the schema names, with null if it is `nullable` (OpenAPI). Returns [] if one of them is unknown."""
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted if isinstance(wanted, list) else []
    if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
        return []
    return [*names, "null"] if schema.get("nullable") is True else names


def item_schemas(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """Return the schemas of the first items, and the schema of the rest. In older drafts `items` can be the former."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return _items(schema.get("prefixItems")), items


def _is(value: Any, names: list[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, float) and value.is_integer() and "integer" in names:
        return True
    return any(isinstance(value, _TYPES[name]) for name in names)


def _kind(value: Any) -> str:
    names = [name for name, types in _TYPES.items() if isinstance(value, types)]
    name = "boolean" if isinstance(value, bool) else next(iter(names), type(value).__name__)
    return _NAMES.get(name, name) + f" {value!r}"[: 80 - len(name)]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def resolve(reference: str, root: Any) -> Any:
    """Resolve a reference within the schema. An external reference yields an empty schema, which allows everything."""
    target: Any = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            target = target[int(name)] if name.isdigit() and int(name) < len(target) else {}
        elif name:
            target = target.get(name, {}) if isinstance(target, Mapping) else {}
    return target


_LONGEST, _SECONDS = 10_000, 0.05


def matches(pattern: str, text: str) -> bool | None:
    """Return True if the text matches. Returns None if the pattern is of another dialect or takes too long."""
    compiled = _compile(pattern)
    if compiled is None or len(text) > _LONGEST:
        return None
    try:
        return compiled.search(text, timeout=_SECONDS) is not None
    except TimeoutError:
        return None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Any:
    import regex  # slow to load, and few schemas have patterns

    try:
        return regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError, MemoryError):
        return None


_DEEPEST_REPAIR, _MOST_REPAIRED = 20, 20_000


def mend_arguments(args: dict[str, Any], schema: Any) -> dict[str, Any]:
    """Unpack JSON strings and drop meaningless nulls at every level. Returns the same object if nothing changed.

    Raises `TwoReadings` if such a string can mean two things."""
    work = [_MOST_REPAIRED]

    def mend(value: Any, schema: Any, depth: int) -> Any:
        work[0] -= 1
        if depth > _DEEPEST_REPAIR or work[0] < 0 or not isinstance(schema, Mapping):
            return value
        if isinstance(schema.get("$ref"), str):
            return mend(value, resolve(schema["$ref"], root), depth + 1)
        if isinstance(value, str) and _wants_container(schema, root, 0):
            value = _unpack(value)
        if isinstance(value, dict):
            known, others = as_mapping(schema.get("properties")), schema.get("additionalProperties", True)
            given = {name: item for name, item in value.items() if item is not None or not _is_absent(name, schema, root)}
            return {name: mend(item, known.get(name, others), depth + 1) for name, item in given.items()}
        if isinstance(value, list):
            first, rest = item_schemas(schema)
            return [mend(item, first[n] if n < len(first) else rest, depth + 1) for n, item in enumerate(value)]
        return value

    root = schema
    made: dict[str, Any] = mend(args, schema, 0)
    return args if made == args else made


def _is_absent(name: str, schema: Mapping[str, Any], root: Any) -> bool:
    """Return True if a null means the same as leaving the argument out: it is optional, and its schema does not allow null."""
    known, required = as_mapping(schema.get("properties")), schema.get("required")
    if name not in known or (isinstance(required, list) and name in required):
        return False
    named = {key: root[key] for key in ("$defs", "definitions") if key in as_mapping(root)}
    return bool(problems(None, {**named, **as_mapping(known[name])}))


def _wants_container(schema: Any, root: Any, depth: int) -> bool:
    """Return True if the schema allows an object or a list, but no string."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST_REPAIR:
        return False
    if isinstance(schema.get("$ref"), str):
        return _wants_container(resolve(schema["$ref"], root), root, depth + 1)
    if names := type_names(schema):
        return "string" not in names and ("object" in names or "array" in names)
    options = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(options, list) or len(options) > _DEEPEST_REPAIR or depth > 3:
        return False
    texts = [one for one in options if isinstance(one, Mapping) and "string" in type_names(one)]
    return not texts and any(_wants_container(one, root, depth + 1) for one in options)


def _unpack(text: str) -> Any:
    if text.strip()[:1] not in ("{", "["):
        return text
    try:
        return read_json(text)
    except TwoReadings:
        raise
    except ValueError:
        return text
