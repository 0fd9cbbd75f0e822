"""Public names of a package, imported when they are first used, from where the stub next to its `__init__.py` says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def lazy_names(package: str, also: str = "") -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Its stub, `__init__.pyi`, has a line `from .module import Name as Name` for each public name. Type checkers read the same
    lines. `from package import *` imports all of them.

    Args:
        package: The name of the package.
        also: Another package, whose names are found in this one as well.
    """
    module: Any = sys.modules[package]

    @cache
    def read_homes() -> dict[str, str]:
        """Return the module of each public name."""
        stub = module.__spec__.loader.get_data(f"{module.__file__}i").decode()
        lines = [line.split() for line in stub.splitlines() if line.startswith("from .")]
        return {words[3]: words[1] for words in lines}

    def find(name: str) -> Any:
        if name == "__all__":
            return sorted(read_homes())
        if name.startswith("__") or (home := read_homes().get(name)) is None:
            if also and not name.startswith("__"):
                return getattr(import_module(also), name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home, package), name)
        setattr(module, name, value)
        return value

    return find, lambda: [*{*read_homes(), *vars(module)}]
