"""YAML with its places, and its check against the schema: every mistake says its file and line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError, nearest
from ...core.language import say
from ...core.record import record
from .schema import plain_values

_MOST_VALUES = 20_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Where = tuple[str, ...]


@record
class Mistake:
    file: str
    line: int
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.path + ': ' if self.path else ''}{self.text}"


class Reading:
    """What was read from one or several files, the place of every value, and what was wrong."""

    def __init__(self) -> None:
        self.value: Any = {}
        self.mistakes: list[Mistake] = []
        self._places: dict[Where, tuple[str, int]] = {}
        self._count = 0

    def read(self, path: Path) -> None:
        """A later file goes over an earlier one: mappings are merged, anything else is replaced."""
        import yaml

        try:
            node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except OSError as problem:
            self.mistakes.append(
                Mistake(str(path), 1, "", say(f"cannot be read: {problem.strerror}", f"読めません: {problem.strerror}"))
            )
            return
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as problem:
            mark = getattr(problem, "problem_mark", None)
            line = mark.line + 1 if mark is not None else 1
            what = getattr(problem, "problem", None) or problem
            self.mistakes.append(Mistake(str(path), line, "", say(f"not valid YAML: {what}", f"YAML として読めません: {what}")))
            return
        self._count = 0
        self._places.setdefault((), (str(path), 1))
        self.value = _merged(self.value, {} if node is None else self._built(node, str(path), (), ()))

    def _built(self, node: Any, file: str, where: Where, above: tuple[Any, ...]) -> Any:
        import yaml

        self._places[where] = (file, node.start_mark.line + 1)
        self._count += 1
        if any(node is one for one in above):
            self.wrong(where, say("it contains itself", "自分自身を含んでいます"))
            return None
        if self._count > _MOST_VALUES:
            if self._count == _MOST_VALUES + 1:
                self.wrong(where, say(f"more than {_MOST_VALUES:,} values", f"値が {_MOST_VALUES:,} 個を超えています"))
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, file, where, (*above, node))
        if isinstance(node, yaml.SequenceNode):
            return [self._built(held, file, (*where, str(place)), (*above, node)) for place, held in enumerate(node.value)]
        value = yaml.SafeLoader("").construct_object(node)
        return self._filled(value, node.style, where) if isinstance(value, str) else value

    def _mapping(self, node: Any, file: str, where: Where, above: tuple[Any, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, held in node.value:
            name = str(key.value)
            if key.tag == "tag:yaml.org,2002:merge":  # <<: *other
                built = self._built(held, file, where, above)
                for one in reversed(built if isinstance(built, list) else [built]):
                    merged |= one if isinstance(one, dict) else {}
                continue
            if name in made:
                self._places[(*where, name)] = (file, key.start_mark.line + 1)
                self.wrong((*where, name), say("is there twice", "が二つあります"))
            made[name] = self._built(held, file, (*where, name), above)
            self._places[(*where, name)] = (file, key.start_mark.line + 1)
        return {**merged, **made}

    def _filled(self, text: str, style: str | None, where: Where) -> Any:
        """`${NAME}` and `${NAME:-default}` from the environment; `$${` is a plain `${`. A bare one can be a number, too."""
        if "${" not in text:
            return text
        filled = self._expanded(text, where)
        wanted = bool(where) and where[-1] in plain_values()  # {max_steps: "${N}"}: between braces YAML wants the quotes
        if (style is not None and not wanted) or filled == text:  # in quotes it stays a text
            return filled
        import yaml

        try:
            value = yaml.safe_load(filled)
        except yaml.YAMLError:
            return filled
        return value if isinstance(value, bool | int | float) else filled

    def _expanded(self, text: str, where: Where) -> str:
        out, place = [], 0
        while (start := text.find("${", place)) >= 0:
            if text[start - 1 : start] == "$" and start > place:
                out.append(text[place : start - 1] + "${")
                place = start + 2
                continue
            out.append(text[place:start])
            end = _closing(text, start + 2)
            if end < 0:
                self.wrong(where, say("'${' is not closed", "'${' が閉じていません"))
                return text
            out.append(self._variable(text[start + 2 : end], where))
            place = end + 1
        return "".join([*out, text[place:]])

    def _variable(self, inside: str, where: Where) -> str:
        name, dash, default = inside.partition(":-")
        if not _NAME.fullmatch(name):
            told = say(f"${{{inside}}} is no variable: write ${{NAME}} or $${{", f"${{{inside}}} は変数ではありません")
            self.wrong(where, told)
            return ""
        value = os.environ.get(name)
        if value or (value is not None and not dash):
            return value
        if dash:
            return self._expanded(default, where)
        self.wrong(where, say(f"the environment variable {name} is not set", f"環境変数 {name} が設定されていません"))
        return ""

    def wrong(self, where: Where, text: str) -> None:
        place = where
        while place not in self._places and place:
            place = place[:-1]
        file, line = self._places.get(place, ("?", 1))
        self.mistakes.append(Mistake(file, line, ".".join(where), text))

    def raise_all(self, after: int = 0) -> None:
        """All mistakes at once: those that were found after the first so many."""
        found, self.mistakes = self.mistakes[after:], self.mistakes[:after]
        if not found:
            return
        listed = "\n".join([f"  {mistake}" for mistake in sorted(found, key=lambda m: (m.file, m.line))])
        count = len(found)
        raise ConfigError(
            say(
                f"{count} mistake{'s' if count > 1 else ''} in the configuration:\n{listed}",
                f"設定に誤りが {count} 件あります:\n{listed}",
            )
        )


def _closing(text: str, start: int) -> int:
    """The brace that closes this variable; defaults may hold others."""
    depth = 1
    for place in range(start, len(text)):
        if text.startswith("${", place):
            depth += 1
        elif text[place] == "}":
            depth -= 1
            if depth == 0:
                return place
    return -1


def _merged(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: _merged(below.get(key), value) for key, value in above.items()}}
    return above


def check(value: Any, schema: Mapping[str, Any], where: Where, wrong: Callable[[Where, str], None]) -> None:
    """The part of JSON Schema that the configuration's needs."""
    if "anyOf" in schema:
        fitting = [one for one in schema["anyOf"] if _is(value, one["type"])]
        schema = fitting[0] if fitting else {"type": [one["type"] for one in schema["anyOf"]]}
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        expected = say(" or ", "か").join([_told(kind) for kind in kinds])
        got = _told(_kind_of(value)) if value is None or isinstance(value, dict | list) else repr(value)
        wrong(where, say(f"expected {expected}, got {got}", f"{expected}が必要ですが、{got} です"))
    elif isinstance(value, dict):
        _check_mapping(value, schema, where, wrong)
    elif isinstance(value, list) and "items" in schema:
        for place, held in enumerate(value):
            check(held, schema["items"], (*where, str(place)), wrong)
    elif "enum" in schema and value not in schema["enum"]:
        wrong(
            where, say(f"{value!r} is not among the choices", f"{value!r} は選べません") + nearest(str(value), schema["enum"])
        )


def _check_mapping(value: Any, schema: Mapping[str, Any], where: Where, wrong: Callable[[Where, str], None]) -> None:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", []):
        if name not in value:
            wrong(where, say(f"{name!r} is missing", f"{name!r} がありません"))
    for name, held in value.items():
        if name in known:
            check(held, known[name], (*where, name), wrong)
        elif others is False:
            wrong((*where, name), say("unknown key", "この項目はありません") + nearest(name, known))
        elif isinstance(others, Mapping):
            check(held, others, (*where, name), wrong)


_KINDS: dict[str, Any] = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}


def _told(kind: str) -> str:
    words = {
        "string": ("a text", "文字列"),
        "boolean": ("true or false", "true か false"),
        "object": ("a mapping (name: value)", "マッピング (名前: 値)"),
        "array": ("a list", "リスト"),
        "null": ("nothing", "空"),
        "integer": ("a whole number", "整数"),
        "number": ("a number", "数"),
    }
    return say(*words[kind])


def _kind_of(value: Any) -> str:
    return next(kind for kind, held in _KINDS.items() if isinstance(value, held))


def _is(value: Any, kind: str) -> bool:
    if kind == "number" or kind == "integer":
        return isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)
    return isinstance(value, _KINDS[kind])
