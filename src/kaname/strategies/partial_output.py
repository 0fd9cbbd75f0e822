"""A typed answer while it is being written: the fields that have arrived, as the caller's type with the others `None`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ForwardRef, Union, get_args, get_origin

_FENCE = re.compile(r"^\s*```[\w-]*[ \t]*\n")
_QUOTE = re.compile(r'(?<!\\)(?:\\\\)*"')
_NUMBER = re.compile(r"[-+.\deE]+$")
_TRIES = 20  # fields that are left out because what has arrived of them is not valid yet


class PartialOutput:
    """Reads the beginning of an answer as a value of the wanted type.

    Args:
        kind: The type.
        unwrap: Takes the answer out of the object in which a type that is no object is sent.
    """

    def __init__(self, kind: Any, unwrap: Any) -> None:
        self._kind, self._unwrap = kind, unwrap
        self._adapter: Any = None

    def read(self, text: str) -> Any:
        """Return the value so far, or None if there is none yet, or the text is not JSON.

        A model has all its fields: those that have not arrived, or are not valid yet, are None. Validators of yours do not
        run before the answer is complete.
        """
        from pydantic import TypeAdapter, ValidationError
        from pydantic_core import from_json

        begun = _FENCE.sub("", text).lstrip()
        if begun[:1] not in ("{", "["):
            return None
        try:
            data = self._unwrap(from_json(_without_open_number(begun), allow_partial="trailing-strings"))
        except (ValueError, LookupError):
            return None
        if self._adapter is None:
            self._adapter = TypeAdapter(partial_type(self._kind, {}))
        for _ in range(_TRIES):
            try:
                return self._adapter.validate_python(data, experimental_allow_partial="trailing-strings")
            except ValidationError as problem:
                place = next((one["loc"] for one in problem.errors(include_url=False) if one["loc"]), ())
                if not _leave_out(data, place):
                    return None
        return None


def _without_open_number(text: str) -> str:
    """Return the text without a number at its end, of which more digits may follow."""
    in_a_text = len(_QUOTE.findall(text)) % 2
    return text if in_a_text else _NUMBER.sub("", text.rstrip().removesuffix("```"))


def partial_type(kind: Any, made: dict[type, Any]) -> Any:
    """Return the type with models whose fields can all be missing, wherever models stand in it."""
    from pydantic import BaseModel, create_model

    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind not in made:
            name = f"Partial{kind.__name__}"
            made[kind] = ForwardRef(name)  # a model that contains itself refers to it by name
            inner = {field: partial_type(info.annotation, made) for field, info in kind.model_fields.items()}
            fields: dict[str, Any] = {field: (Union[one, None], None) for field, one in inner.items()}  # noqa: UP007  a name
            made[kind] = create_model(name, **fields)
            made[kind].model_rebuild(_types_namespace={name: made[kind]}, raise_errors=False)
        return made[kind]
    if get_origin(kind) is None or not get_args(kind):
        return kind
    within = tuple([partial_type(one, made) if one is not ... else one for one in get_args(kind)])
    if within == get_args(kind) or get_origin(kind) is type:
        return kind
    return _of_origin(get_origin(kind), within)


def _of_origin(origin: Any, inner: tuple[Any, ...]) -> Any:
    from types import UnionType
    from typing import Annotated

    if origin in (UnionType, Union):
        return Union[inner]  # noqa: UP007  made of a tuple
    return inner[0] if origin is Annotated else origin[inner]


def _leave_out(data: Any, place: tuple[Any, ...]) -> bool:
    """Remove what stands at a place of the data. Steps that are not keys of it, such as a branch of a union, are skipped."""
    holder: Any = None
    key: Any = None
    for step in place:
        inside = step in data if isinstance(data, Mapping) else isinstance(data, list) and step in range(len(data))
        if inside:
            holder, key, data = data, step, data[step]
    if holder is None:
        return False
    del holder[key]
    return True
