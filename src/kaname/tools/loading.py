"""Tools by the place where they are written: `module:name`, `FILE.py:name`, or `FILE.py` for all that it defines; and by the
names of those that come with kaname: `calculator`, `database:FILE-OR-URL`, `search`, `search:INDEX`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from traceback import extract_tb
from typing import Any

from ..core.errors import ConfigError, nearest
from ..core.notices import joined, notice
from ..kernel.boundary import Border
from .function import FunctionTool


def all_tools(places: Iterable[str], folder: Path, wrong: Callable[[int, str], None] | None = None) -> list[Any]:
    """The tools of all these places. What is wrong with any of them is told, all of it at once."""
    found: list[Any] = []
    problems: list[str] = []
    for number, place in enumerate(places):
        try:
            found += tools_from(place, folder)
        except ConfigError as problem:
            problems.append(str(problem))
            if wrong is not None:
                wrong(number, str(problem))
    if problems and wrong is None:
        raise ConfigError(joined("\n", problems))
    return found


def tools_from(place: str, folder: Path) -> list[Any]:
    """Files and modules are looked for in the folder first."""
    source, colon, name = place.partition(":")
    if not source.strip() or source in (".", ".."):
        raise ConfigError(notice("tool.bad_source", "{place!r} names no tool: write module:function or FILE.py", place=place))
    if (builtin := _builtin(source, name, folder)) is not None:
        return [builtin]
    module = _module(source, folder)
    if colon:
        if not name or not hasattr(module, name):
            missing = notice("tool.no_such_name", "{source} has no {name!r}", source=source, name=name)
            raise ConfigError(missing + nearest(name, [one for one in vars(module) if not one.startswith("_")]))
        return [getattr(module, name)]
    found: list[Any] = [one for one in vars(module).values() if isinstance(one, FunctionTool)]
    if not found:
        found = [
            one
            for label, one in vars(module).items()
            if inspect.isfunction(one) and one.__module__ == module.__name__ and not label.startswith("_")
        ]
    if not found:
        raise ConfigError(notice("tool.none_defined", "{source} defines no tools", source=source))
    return found


def _builtin(source: str, rest: str, folder: Path) -> Any:
    """A file or module of the user's that has the same name goes first."""
    if source not in _BUILTIN or (folder / f"{source}.py").exists():
        return None
    return _BUILTIN[source](rest, folder)


def _calculator(rest: str, folder: Path) -> Any:
    from .calculator.tool import CalculatorTool

    return CalculatorTool()


def _database(rest: str, folder: Path) -> Any:
    from .database.tool import DatabaseTool

    if not rest:
        raise ConfigError(notice("tool.name_the_database", "name the database: database:FILE, database:postgresql://…"))
    return DatabaseTool(rest if "://" in rest else folder / Path(rest).expanduser())


def _search(rest: str, folder: Path) -> Any:
    from .search.index_file import no_index
    from .search.tool import SearchTool

    if rest and not (folder / Path(rest).expanduser()).exists():
        raise no_index(rest)
    return SearchTool(folder / Path(rest).expanduser() if rest else None)


_BUILTIN: dict[str, Callable[[str, Path], Any]] = {"calculator": _calculator, "database": _database, "search": _search}


def object_from(place: str, folder: Path) -> Any:
    """What `module:name` names."""
    source, _, name = place.partition(":")
    if not source or not name:
        raise ConfigError(notice("tool.module_form", "write module:name, not {place!r}", place=place))
    module = _module(source, folder)
    if not hasattr(module, name):
        missing = notice("tool.no_such_name", "{source} has no {name!r}", source=source, name=name)
        raise ConfigError(missing + nearest(name, [one for one in vars(module) if not one.startswith("_")]))
    return getattr(module, name)


def _module(source: str, folder: Path) -> Any:
    if not source.endswith(".py"):
        _find_neighbours(folder)
        return _loaded(source, lambda: importlib.import_module(source))
    path = (folder / Path(source).expanduser()).resolve()
    if not path.is_file():
        raise ConfigError(notice("tool.no_file", "there is no file {path}", path=path))
    if path.stem in sys.modules and getattr(sys.modules[path.stem], "__file__", None) == str(path):
        return sys.modules[path.stem]
    _find_neighbours(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    loader = spec.loader
    try:
        _loaded(source, lambda: loader.exec_module(module))
    except ConfigError:
        del sys.modules[path.stem]
        raise
    return module


def _find_neighbours(folder: Path) -> None:
    """Let a module of this folder import the others of it, as `python FILE.py` does."""
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))


def _place(error: BaseException) -> str:
    """The innermost line that is not ours."""
    ours = str(Path(__file__).parent.parent)
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith((ours, "<"))]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _loaded(source: str, load: Callable[[], Any]) -> Any:
    """Other people's code, which may do anything while it is imported."""
    with Border(caught=(Exception, SystemExit)) as border:
        return load()
    failure = border.failure
    assert failure is not None
    error = failure.error
    if isinstance(error, ModuleNotFoundError) and error.name == source.partition(".")[0]:
        missing = notice("tool.no_module", "there is no module {source!r}", source=source)
        close = get_close_matches(source, _BUILTIN, n=1) or [name for name in _BUILTIN if name.startswith(source)]
        raise ConfigError(missing + (nearest(close[0], _BUILTIN) if close else "")) from error
    where = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else _place(error) or failure.place
    raise ConfigError(
        notice(
            "tool.cannot_load",
            "{source} cannot be loaded: {failure} (at {where})",
            source=source,
            failure=failure,
            where=where,
        )
    ) from error
