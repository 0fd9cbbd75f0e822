"""Load tools by name: `module:name`, `FILE.py:name`, or `FILE.py` for all tools that it defines.

kaname's own tools are `calculator`, `database:FILE-OR-URL`, `search` and `search:INDEX`, and `senses` or `senses:NAME,…` for
those on pictures and sound."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, nearest
from ..core.notices import join_notices, notice
from ..kernel.boundary import Border
from .function import FunctionTool


def all_tools(
    places: Iterable[str],
    folder: Path,
    wrong: Callable[[int, str], None] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Any]:
    """Load the tools of all these places.

    All problems are reported at once: each is passed to `wrong(number, problem)`, or, without `wrong`, a `ConfigError`
    lists them. `options`: arguments of kaname's own tools by name, such as `{"search": {"top_k": 3}}`."""
    found: list[Any] = []
    problems: list[str] = []
    for number, place in enumerate(places):
        try:
            found += tools_from(place, folder, options)
        except ConfigError as problem:
            problems.append(str(problem))
            if wrong is not None:
                wrong(number, str(problem))
    if problems and wrong is None:
        raise ConfigError(join_notices("\n", problems))
    return found


def tools_from(place: str, folder: Path, options: Mapping[str, Mapping[str, Any]] | None = None) -> list[Any]:
    """Load the tools of one place, searching the folder first. Raises `ConfigError` if there are none."""
    source, colon, name = place.partition(":")
    if not source.strip() or source in (".", ".."):
        raise ConfigError.of("tool.bad_source", "{place!r} is not a tool: write module:function or FILE.py", place=place)
    if (builtin := _builtin(source, name, folder, (options or {}).get(source, {}))) is not None:
        return builtin if isinstance(builtin, list) else [builtin]
    module = _module(source, folder)
    if colon:
        return [_member(module, source, name)]
    if not (tools := _tools_in(module)):
        raise ConfigError.of("tool.none_defined", "{source} defines no tools", source=source)
    return tools


def _tools_in(module: Any) -> list[Any]:
    """Return the tools of a module; if there are none, the public functions that it defines."""
    members: dict[str, Any] = vars(module)
    return [one for one in members.values() if isinstance(one, FunctionTool)] or [
        one
        for label, one in members.items()
        if inspect.isfunction(one) and one.__module__ == module.__name__ and not label.startswith("_")
    ]


def _member(module: Any, source: str, name: str) -> Any:
    """Return a member of a module. Raises `ConfigError` with the nearest name if there is none."""
    if not name or not hasattr(module, name):
        missing = notice("tool.no_such_name", "{source} has no {name!r}", source=source, name=name)
        raise ConfigError(missing + nearest(name, [one for one in vars(module) if not one.startswith("_")]))
    return getattr(module, name)


def _builtin(source: str, rest: str, folder: Path, options: Mapping[str, Any]) -> Any:
    """Return kaname's own tool of this name, or None. A file of the user with the same name has precedence."""
    if source not in _BUILTIN or (folder / f"{source}.py").exists():
        return None
    return _BUILTIN[source](rest, folder, **options)


def _calculator(rest: str, folder: Path) -> Any:
    from .calculator.tool import CalculatorTool

    return CalculatorTool()


def _database(rest: str, folder: Path, **options: Any) -> Any:
    from .database.tool import DatabaseTool

    if not rest:
        raise ConfigError.of("tool.name_the_database", "specify the database: database:FILE or database:postgresql://…")
    return DatabaseTool(rest if "://" in rest else folder / Path(rest).expanduser(), **options)


def _search(rest: str, folder: Path, **options: Any) -> Any:
    from .search.index_file import no_index
    from .search.tool import SearchTool

    if rest and not (folder / Path(rest).expanduser()).exists():
        raise no_index(rest)
    return SearchTool(folder / Path(rest).expanduser() if rest else None, **options)


def _senses(rest: str, base: Path, /, **options: Any) -> Any:
    """Return the tools of a package that stands above this one: it is loaded when a user names it."""
    if options.get("folder"):
        options["folder"] = base / Path(options["folder"]).expanduser()
    return importlib.import_module("kaname.senses.tools").senses_tools(only=rest.split(","), **options)


_BUILTIN: dict[str, Callable[..., Any]] = {
    "calculator": _calculator,
    "database": _database,
    "search": _search,
    "senses": _senses,
}


def object_from(place: str, folder: Path) -> Any:
    """Return the object that `module:name` refers to. Raises `ConfigError` if it cannot be loaded."""
    source, _, name = place.partition(":")
    if not source or not name:
        raise ConfigError.of("tool.module_form", "write module:name, not {place!r}", place=place)
    return _member(_module(source, folder), source, name)


def _module(source: str, folder: Path) -> Any:
    if not source.endswith(".py"):
        _add_to_path(folder)
        return _run_loader(source, lambda: importlib.import_module(source))
    path = (folder / Path(source).expanduser()).resolve()
    if not path.is_file():
        raise ConfigError.of("tool.no_file", "the file {path} does not exist", path=path)
    if path.stem in sys.modules and getattr(sys.modules[path.stem], "__file__", None) == str(path):
        return sys.modules[path.stem]
    _add_to_path(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    loader = spec.loader
    try:
        _run_loader(source, lambda: loader.exec_module(module))
    except ConfigError:
        del sys.modules[path.stem]
        raise
    return module


def _add_to_path(folder: Path) -> None:
    """Let modules of this folder import each other, as `python FILE.py` does."""
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))


def _run_loader(source: str, load: Callable[[], Any]) -> Any:
    """Import the user's code. Whatever it raises becomes a `ConfigError`."""
    with Border(caught=(Exception, SystemExit)) as border:
        return load()
    failure = border.failure
    assert failure is not None
    error = failure.error
    if isinstance(error, ModuleNotFoundError) and error.name == source.partition(".")[0]:
        missing = notice("tool.no_module", "the module {source!r} was not found", source=source)
        close = get_close_matches(source, _BUILTIN, n=1) or [name for name in _BUILTIN if name.startswith(source)]
        raise ConfigError(missing + (nearest(close[0], _BUILTIN) if close else "")) from error
    where = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else failure.place
    raise ConfigError.of(
        "tool.cannot_load", "{source} cannot be loaded: {failure} (at {where})", source=source, failure=failure, where=where
    ) from error
