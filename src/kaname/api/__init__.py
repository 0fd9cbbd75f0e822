"""The old place of `kaname.agent`, `memory`, `config`, `workflows` and `teams`.

Old pickles, and programs that imported from here, find each module in its new place.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_MOVED = {  # the longest name first
    "open_run": "agent.opening.request",
    "designs.orchestrator": "designs.orchestrator.orchestrator",
    "designs.react_runtime": "designs.react.runtime",
    "designs.step_sequence": "agent.steps.sequence",
    "designs": "designs",
    "team.handoff": "agent.handoffs.handoff",
    "team.roles": "agent.handoffs.roles",
    "team": "teams",
    "workflow": "workflows",
    "memory": "memory",
    "config": "config",
}


def new_place(name: str) -> str:
    """Return where a module of this package is now, both without `kaname.`."""
    for old, new in _MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name[len(old) :]
    return f"agent.{name}"


class Moved(MetaPathFinder, Loader):
    """Finds `kaname.api.X` in its new place: the same module, not a second one."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(f"{__name__}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(f"kaname.{new_place(spec.name.removeprefix(f'{__name__}.'))}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = module.__spec__ and module.__spec__.loader_state  # its own again


sys.meta_path.insert(0, Moved())  # before the finder of files, which would load a module of a package a second time
