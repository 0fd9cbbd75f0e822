"""YAML with its places: every value knows its file and line, so that every mistake can say where it is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, nearest
from ..core.language import say
from ..core.record import record

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
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
        except (yaml.YAMLError, UnicodeDecodeError) as problem:
            mark = getattr(problem, "problem_mark", None)
            line = mark.line + 1 if mark is not None else 1
            self.mistakes.append(Mistake(str(path), line, "", f"YAML: {getattr(problem, 'problem', None) or problem}"))
            return
        self.value = _merged(self.value, {} if node is None else self._built(node, str(path), ()))

    def _built(self, node: Any, file: str, where: Where) -> Any:
        import yaml

        self._places[where] = (file, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            made: dict[str, Any] = {}
            for key, held in node.value:
                name = str(key.value)
                if name in made:
                    self._places[(*where, name)] = (file, key.start_mark.line + 1)
                    self.wrong((*where, name), say("is there twice", "が二つあります"))
                made[name] = self._built(held, file, (*where, name))
                self._places[(*where, name)] = (file, key.start_mark.line + 1)
            return made
        if isinstance(node, yaml.SequenceNode):
            return [self._built(held, file, (*where, str(place))) for place, held in enumerate(node.value)]
        value = yaml.SafeLoader("").construct_object(node)
        return self._filled(value, where) if isinstance(value, str) else value

    def _filled(self, text: str, where: Where) -> str:
        """`${NAME}` and `${NAME:-default}` from the environment."""

        def found(match: re.Match[str]) -> str:
            value = os.environ.get(match[1]) or match[2]
            if value is None:
                name = match[1]
                self.wrong(where, say(f"the environment variable {name} is not set", f"環境変数 {name} が設定されていません"))
            return value or ""

        return _VARIABLE.sub(found, text)

    def wrong(self, where: Where, text: str) -> None:
        place = where
        while place not in self._places and place:
            place = place[:-1]
        file, line = self._places.get(place, ("?", 1))
        self.mistakes.append(Mistake(file, line, ".".join(where), text))

    def raise_all(self) -> None:
        """All mistakes at once."""
        if not self.mistakes:
            return
        listed = "\n".join([f"  {mistake}" for mistake in sorted(self.mistakes, key=lambda m: (m.file, m.line))])
        count = len(self.mistakes)
        raise ConfigError(
            say(
                f"{count} mistake{'s' if count > 1 else ''} in the configuration:\n{listed}",
                f"設定に誤りが {count} 件あります:\n{listed}",
            )
        )


def _merged(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: _merged(below.get(key), value) for key, value in above.items()}}
    return above


def check(value: Any, schema: Mapping[str, Any], where: Where, wrong: Callable[[Where, str], None]) -> None:
    """The part of JSON Schema that the configuration's needs."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        expected = " / ".join(kinds)
        got = "nothing" if value is None else repr(value) if not isinstance(value, dict | list) else type(value).__name__
        wrong(where, say(f"expected {expected}, got {got}", f"{expected} が必要ですが {got} です"))
    elif isinstance(value, dict):
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
    elif isinstance(value, list) and "items" in schema:
        for place, held in enumerate(value):
            check(held, schema["items"], (*where, str(place)), wrong)
    elif "enum" in schema and value not in schema["enum"]:
        wrong(
            where, say(f"{value!r} is not among the choices", f"{value!r} は選べません") + nearest(str(value), schema["enum"])
        )


def _is(value: Any, kind: str) -> bool:
    if kind == "number" or kind == "integer":
        return isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)
    kinds: dict[str, Any] = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}
    return isinstance(value, kinds[kind])
