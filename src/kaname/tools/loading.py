"""Tools by the place where they are written: `module:name`, `FILE.py:name`, or `FILE.py` for all that it defines."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, nearest
from ..core.language import say
from .function import FunctionTool


def tools_from(place: str, folder: Path) -> list[Any]:
    """Files and modules are looked for in the folder first."""
    source, _, name = place.partition(":")
    module = _module(source, folder)
    if name:
        if not hasattr(module, name):
            missing = say(f"{source} has no {name!r}", f"{source} に {name!r} はありません")
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
        raise ConfigError(say(f"{source} defines no tools", f"{source} にツールがありません"))
    return found


def _module(source: str, folder: Path) -> Any:
    if not source.endswith(".py"):
        if str(folder.resolve()) not in sys.path:
            sys.path.insert(0, str(folder.resolve()))
        try:
            return importlib.import_module(source)
        except ModuleNotFoundError as problem:
            raise ConfigError(
                say(f"no module {source!r}: {problem}", f"モジュール {source!r} がありません: {problem}")
            ) from problem
    path = folder / source
    if not path.is_file():
        raise ConfigError(say(f"there is no file {source}", f"ファイル {source} がありません"))
    if path.stem in sys.modules and getattr(sys.modules[path.stem], "__file__", None) == str(path):
        return sys.modules[path.stem]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
