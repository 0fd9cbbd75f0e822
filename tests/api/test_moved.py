"""Old names of modules: the same module, with a warning."""

import importlib
import sys

import pytest

from kaname.moved import MOVED, new_place


def test_old_name_imports_the_module_in_its_new_place():
    for old in sorted(MOVED):
        sys.modules.pop(f"kaname.{old}", None)
        with pytest.warns(DeprecationWarning, match="has moved to"):
            assert importlib.import_module(f"kaname.{old}") is importlib.import_module(f"kaname.{new_place(old)}"), old


def test_module_that_has_not_moved_is_imported_without_a_warning():
    assert [new_place(name) for name in ("agent.agent", "kernel.loop")] == ["", ""]
