"""Read evaluations from files: YAML, JSONL, or Python. Every mistake says its file and line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..config.load import Reading, check, mistakes_error
from ..core.errors import ConfigError, nearest
from ..core.notices import notice
from ..tools.loading import object_from
from .case import Case, prepare_check
from .checks.kinds import KINDS
from .evaluation import Evaluation
from .simulated import SimulatedUser

_TEXT = {"type": "string"}
_OWN = ("input", "name", "user", "reference", "answer", "user_id", "from_user", "group")  # keys of a case that are not checks
_USER: dict[str, Any] = {
    "type": "object",
    "required": ["goal"],
    "additionalProperties": False,
    "properties": {
        "goal": _TEXT,
        "facts": {"type": ["string", "array", "object"]},
        "turns": {"type": "integer"},
        "model": _TEXT,
    },
}
_CASE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "input": {"type": ["string", "array", "object"]},
        "user": _USER,
        **dict.fromkeys([name for name in _OWN if name not in ("input", "user")], _TEXT),
        "from_user": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
        **{name: {} for name in KINDS},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["cases"],
    "additionalProperties": False,
    "properties": {
        "name": _TEXT,
        "agent": _TEXT,
        "judge": _TEXT,
        "files": _TEXT,
        "repeat": {"type": "integer"},
        "checks": {"type": "object", "properties": {name: {} for name in KINDS}, "additionalProperties": False},
        "cases": {"anyOf": [{"type": "array", "items": _CASE}, {"type": "string"}]},
    },
}
Wrong = Callable[[tuple[str, ...], str], None]


def load_evaluation(place: str | Path) -> Evaluation:
    """Read an evaluation.

    Args:
        place: A YAML file, a JSONL file with one case per line, or a Python file that defines an `Evaluation`:
            `FILE.py`, or `FILE.py:NAME` if it defines several.

    Raises:
        ConfigError: With all mistakes of the file, each with its line.
    """
    text = str(place)
    path = Path(text.rpartition(":")[0] if ".py:" in text else text).expanduser()
    if path.suffix == ".py":
        return _from_program(text, path)
    if not path.is_file():
        raise ConfigError.of("eval.no_such_file", "the evaluation {path} does not exist", path=path)
    if path.suffix == ".jsonl":
        return Evaluation(path.stem, read_cases(path))
    reading = Reading(variables=False)
    reading.read(path)
    if not reading.mistakes:
        check(reading.value, SCHEMA, (), reading.wrong)
        _check_all_values(reading.value, reading.wrong)
    reading.raise_all()
    made = _from_mapping(reading.value, path, reading.wrong)
    reading.raise_all()
    assert made is not None
    return made


def _check_all_values(given: Any, wrong: Wrong) -> None:
    """Check the values of all checks that stand where they should."""
    listed = given.get("cases") if isinstance(given, Mapping) else None
    places = [(("cases", str(place)), one) for place, one in enumerate(listed if isinstance(listed, list) else ())]
    shared = given.get("checks") if isinstance(given, Mapping) else None
    for where, one in [(("checks",), shared), *places]:
        if isinstance(one, Mapping):
            _check_values(one, where, wrong)


def _from_mapping(given: Mapping[str, Any], path: Path, wrong: Wrong) -> Evaluation | None:
    listed, cases, mistakes = given["cases"], list[Case | str](), 0
    if isinstance(listed, str):
        cases += read_cases(path.parent / listed)
    for place, one in enumerate(listed if isinstance(listed, list) else ()):
        try:
            cases.append(make_case(one))
        except ConfigError as problem:
            mistakes += 1
            wrong(("cases", str(place)), str(problem))
    if mistakes:
        return None
    files = path.parent / given["files"] if given.get("files") else None
    more = {name: given[name] for name in ("repeat", "judge", "agent") if name in given}
    return Evaluation(given.get("name") or path.stem, cases, checks=given.get("checks"), files=files, **more)


def _check_values(given: Mapping[str, Any], where: tuple[str, ...], wrong: Wrong) -> None:
    for name in [one for one in given if one in KINDS]:
        try:
            prepare_check(name, given[name])
        except ConfigError as problem:
            wrong((*where, name), str(problem))


def make_case(given: Mapping[str, Any]) -> Case:
    """Return the case that a mapping describes. Raises `ConfigError` if it cannot be used."""
    if unknown := [name for name in given if name not in _OWN and name not in KINDS]:
        message = notice("eval.unknown_key", "unknown key {name!r}", name=unknown[0])
        raise ConfigError(message + nearest(unknown[0], [*_OWN, *KINDS]))
    own = {name: given[name] for name in _OWN if name in given and name != "user"}
    user = SimulatedUser(**given["user"]) if given.get("user") else None
    return Case(**own, user=user, **{name: given[name] for name in given if name in KINDS})


def read_cases(path: Path) -> list[Case]:
    """Read a JSONL file: each line is a case, or the input of one as a JSON string."""
    made, mistakes = list[Case](), list[str]()
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise ConfigError.of("eval.unreadable", "{path} cannot be read: {why}", path=path, why=why) from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            if not isinstance(given, str | dict):
                raise ConfigError.of("eval.line", "expected a JSON object with input, or a JSON string")
            made.append(make_case({"input": given} if isinstance(given, str) else given))
        except (ConfigError, ValueError, TypeError, RecursionError) as problem:
            message = str(problem) if isinstance(problem, ConfigError) else notice("eval.not_json", "this line is not JSON")
            mistakes.append(f"{path}:{number}: " + message)
    if mistakes:
        raise mistakes_error(mistakes)
    return made


def _from_program(place: str, path: Path) -> Evaluation:
    """Return the evaluation of a program: the object that is named, or the only one that the file defines."""
    if ".py:" in place:
        found = [object_from(place, Path.cwd())]
    else:
        object_from(f"{place}:__name__", Path.cwd())
        import sys

        module = sys.modules[path.stem]
        found = [one for one in vars(module).values() if isinstance(one, Evaluation)]
    if found and isinstance(found[0], list | tuple) and all(isinstance(one, Case | str) for one in found[0]):
        return Evaluation(path.stem, found[0])
    if len(found) != 1 or not isinstance(found[0], Evaluation):
        raise ConfigError.of(
            "eval.in_program", "{place} must define one Evaluation; of several, name one: FILE.py:NAME", place=place
        )
    return found[0]
