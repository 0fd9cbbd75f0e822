"""YAML with its places, and its check against the schema: every mistake says its file and line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, nearest
from ..core.notices import join_notices, notice
from ..core.record import record
from ..models.http.keys import keys_are_needed
from .keys import MORE, plain_values

_MOST_VALUES = 20_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRETS = frozenset({"api_key", "headers", "env"})  # what a replay does without
Where = tuple[str, ...]


@record
class Mistake:
    file: str
    line: int
    path: str
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        return f"{place}{self.path + ': ' if self.path else ''}" + self.text


class Reading:
    """The values of one or several files, the place of each, and the mistakes. `variables`: replace `${NAME}` by its value
    in the environment."""

    def __init__(self, *, variables: bool = True) -> None:
        self._variables = variables
        self.value: Any = {}
        self.mistakes: list[Mistake] = []
        self._places: dict[Where, tuple[str, int]] = {}
        self._count = 0

    def read(self, path: Path, text: str | None = None) -> None:
        """A later file goes over an earlier one: mappings are merged, anything else is replaced. `text`: what to read in the
        place of the file."""
        import yaml

        try:
            node = yaml.compose(path.read_text(encoding="utf-8") if text is None else text, Loader=yaml.SafeLoader)
        except OSError as problem:
            self.mistakes.append(
                Mistake(str(path), 1, "", notice("config.unreadable", "cannot be read: {strerror}", strerror=problem.strerror))
            )
            return
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as problem:
            mark = getattr(problem, "problem_mark", None)
            line = mark.line + 1 if mark is not None else 1
            what = getattr(problem, "problem", None) or problem
            self.mistakes.append(Mistake(str(path), line, "", notice("config.not_yaml", "not valid YAML: {what}", what=what)))
            return
        self._count = 0
        self._places.setdefault((), (str(path), 1))
        self.value = _merge(self.value, {} if node is None else self._build(node, str(path), (), ()))

    def include(self, key: str, path: Path) -> None:
        """Replace the value of a key by the content of a file. Its mistakes are reported with the lines of that file."""
        other = Reading(variables=self._variables)
        other.read(path)
        self.mistakes += other.mistakes
        self._places |= {(key, *where): place for where, place in other._places.items()}
        if other.mistakes:
            del self.value[key]
        else:
            self.value[key] = other.value

    def _build(self, node: Any, file: str, where: Where, above: tuple[Any, ...]) -> Any:
        import yaml

        self._places[where] = (file, node.start_mark.line + 1)
        self._count += 1
        if any(node is one for one in above):
            self.wrong(where, notice("config.recursive", "this value contains itself"))
            return None
        if self._count > _MOST_VALUES:
            if self._count == _MOST_VALUES + 1:
                self.wrong(
                    where,
                    notice("config.too_many_values", "the file has more than {most_values:,} values", most_values=_MOST_VALUES),
                )
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, file, where, (*above, node))
        if isinstance(node, yaml.SequenceNode):
            return [self._build(held, file, (*where, str(place)), (*above, node)) for place, held in enumerate(node.value)]
        value = yaml.SafeLoader("").construct_object(node)
        return self._fill(value, node.style, where) if isinstance(value, str) else value

    def _mapping(self, node: Any, file: str, where: Where, above: tuple[Any, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, held in node.value:
            name = str(key.value)
            if key.tag == "tag:yaml.org,2002:merge":  # <<: *other
                built = self._build(held, file, where, above)
                for one in reversed(built if isinstance(built, list) else [built]):
                    merged |= one if isinstance(one, dict) else {}
                continue
            if name in made:
                self._places[(*where, name)] = (file, key.start_mark.line + 1)
                self.wrong((*where, name), notice("config.key_twice", "duplicate key"))
            made[name] = self._build(held, file, (*where, name), above)
            self._places[(*where, name)] = (file, key.start_mark.line + 1)
        return {**merged, **made}

    def _fill(self, text: str, style: str | None, where: Where) -> Any:
        """`${NAME}` and `${NAME:-default}` from the environment; `$${` is a plain `${`. A bare one can be a number, too."""
        if "${" not in text or not self._variables:
            return text
        filled = self._expand(text, where)
        wanted = bool(where) and where[-1] in plain_values()  # {max_steps: "${N}"}: between braces YAML wants the quotes
        if (style is not None and not wanted) or filled == text:  # in quotes it stays a text
            return filled
        import yaml

        try:
            value = yaml.safe_load(filled)
        except yaml.YAMLError:
            return filled
        return value if isinstance(value, bool | int | float) else filled

    def _expand(self, text: str, where: Where) -> str:
        out, place = [], 0
        while (start := text.find("${", place)) >= 0:
            if text[start - 1 : start] == "$" and start > place:
                out.append(text[place : start - 1] + "${")
                place = start + 2
                continue
            out.append(text[place:start])
            end = _find_closing_brace(text, start + 2)
            if end < 0:
                self.wrong(where, notice("config.variable_not_closed", "'${{' has no closing '}}'"))
                return text
            out.append(self._variable(text[start + 2 : end], where))
            place = end + 1
        return "".join([*out, text[place:]])

    def _variable(self, inside: str, where: Where) -> str:
        name, dash, default = inside.partition(":-")
        if not _NAME.fullmatch(name):
            message = notice(
                "config.no_variable",
                "${{{inside}}} is not a variable: write ${{NAME}}, or $${{ for a literal ${{",
                inside=inside,
            )
            self.wrong(where, message)
            return ""
        value = os.environ.get(name)
        if value or (value is not None and not dash):
            return value
        if dash:
            return self._expand(default, where)
        if _SECRETS.isdisjoint(where) or keys_are_needed():
            self.wrong(where, notice("config.variable_not_set", "the environment variable {name} is not set", name=name))
        return ""

    def wrong(self, where: Where, text: str) -> None:
        place = where
        while place not in self._places and place:
            place = place[:-1]
        file, line = self._places.get(place, ("", 1))  # made in code
        self.mistakes.append(Mistake(file, line, ".".join(where), text))

    def raise_all(self, after: int = 0) -> None:
        """All mistakes at once: those that were found after the first so many."""
        found, self.mistakes = self.mistakes[after:], self.mistakes[:after]
        if not found:
            return
        raise mistakes_error([str(mistake) for mistake in sorted(found, key=lambda m: (m.file, m.line))])


def mistakes_error(mistakes: list[str]) -> ConfigError:
    """Return one error that lists all mistakes."""
    error = ConfigError.of(
        "config.mistakes",
        "{count} error{s} in the configuration:\n{listed}",
        count=len(mistakes),
        s="s" if len(mistakes) > 1 else "",
        listed=join_notices("\n", ["  " + mistake for mistake in mistakes]),
    )
    error.mistakes = tuple(mistakes)
    return error


def _find_closing_brace(text: str, start: int) -> int:
    """Return the place of the brace that closes a variable. Its default can hold other variables."""
    depth = 1
    for place in range(start, len(text)):
        if text.startswith("${", place):
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return place
    return -1


def _merge(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: _merge(below.get(key), value) for key, value in above.items()}}
    return above


def _fitting_alternative(value: Any, schemas: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the first of these schemas that allows a value of this kind, or if none does, one with all their kinds."""
    fitting = [one for one in schemas if _is(value, one["type"])]
    return fitting[0] if fitting else {"type": [one["type"] for one in schemas]}


def check(value: Any, schema: Mapping[str, Any], where: Where, wrong: Callable[[Where, str], None]) -> None:
    """Check a value against a JSON Schema, as far as the schemas of kaname's files need it, and with the checks of its rows."""
    if "anyOf" in schema:
        schema = _fitting_alternative(value, schema["anyOf"])
    if not _has_right_kind(value, schema.get("type", []), lambda text: wrong(where, text)):
        return
    if (more := schema.get(MORE)) is not None and more.check is not None:
        more.check(value, lambda place, text: wrong((*where, *place), text))
    if isinstance(value, dict):
        _check_mapping(value, schema, where, wrong)
    elif isinstance(value, list) and "items" in schema:
        for place, held in enumerate(value):
            check(held, schema["items"], (*where, str(place)), wrong)
    elif "enum" in schema and value not in schema["enum"]:
        wrong(
            where,
            notice("config.no_choice", "{value!r} is not a valid value", value=value) + nearest(str(value), schema["enum"]),
        )


def _has_right_kind(value: Any, kinds: str | list[str], wrong: Callable[[str], None]) -> bool:
    """Return True if a value has one of these JSON types, or there are none. Otherwise it is reported."""
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not kinds or any(_is(value, kind) for kind in kinds):
        return True
    expected = join_notices(notice("config.or", " or "), [_KIND_NAMES[kind] for kind in kinds])
    got = _KIND_NAMES[_kind_of(value)] if value is None or isinstance(value, dict | list) else repr(value)
    wrong(notice("config.wrong_kind", "expected {expected}, got {got}", expected=expected, got=got))
    return False


def _check_mapping(value: Any, schema: Mapping[str, Any], where: Where, wrong: Callable[[Where, str], None]) -> None:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", []):
        if name not in value:
            wrong(where, notice("config.key_missing", "the required key {name!r} is missing", name=name))
    for name, held in value.items():
        if name in known:
            check(held, known[name], (*where, name), wrong)
        elif others is False:
            wrong((*where, name), notice("config.unknown_key", "unknown key") + nearest(name, known))
        elif isinstance(others, Mapping):
            check(held, others, (*where, name), wrong)


_KINDS: dict[str, Any] = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}
_KIND_NAMES = {
    "string": notice("config.kind_string", "a string"),
    "boolean": notice("config.kind_boolean", "true or false"),
    "object": notice("config.kind_object", "a mapping (name: value)"),
    "array": notice("config.kind_array", "a list"),
    "null": notice("config.kind_null", "null"),
    "integer": notice("config.kind_integer", "an integer"),
    "number": notice("config.kind_number", "a number"),
}


def _kind_of(value: Any) -> str:
    return next(kind for kind, held in _KINDS.items() if isinstance(value, held))


def _is(value: Any, kind: str) -> bool:
    if kind == "number" or kind == "integer":
        return isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)
    return isinstance(value, _KINDS[kind])
