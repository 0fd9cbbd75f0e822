"""Tell functions apart that have the same name: by their code and by what they enclose."""

from __future__ import annotations

from inspect import isfunction
from typing import Any

from ..core.codec import digest


def code_identity(function: Any) -> str:
    """Return a fingerprint of a function, which changes when the function is edited; "" if its result depends on more.

    It depends on more if it is a method of an object, or if it encloses or defaults to a value that is not JSON, such as a
    connection.
    """
    if not isfunction(function):
        return ""
    try:
        around = [_plain(cell.cell_contents) for cell in function.__closure__ or ()]
        around += [_plain(value) for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items())]
        return digest([function.__module__, function.__qualname__, around, _code(function.__code__)])
    except (TypeError, ValueError, RecursionError):
        return ""


def _plain(value: Any) -> Any:
    if not isfunction(value):
        return value
    if not (known := code_identity(value)):
        raise TypeError(value)
    return ["function", known]


def _code(code: Any) -> list[Any]:
    held = [_code(one) if hasattr(one, "co_code") else repr(one) for one in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), held]
