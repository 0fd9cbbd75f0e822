"""The final answer as a type: its schema for the model, the check of what comes back, and the typed value for the caller."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ForwardRef, Literal, Union, get_args, get_origin

from ..core.codec import dump
from ..core.errors import ConfigError, OutputDecodingFailed
from ..core.reading.lenient_json import TwoReadings
from ..core.values import AnswerSchema, OutputMode, fenced_blocks, read_json
from ..kernel.boundary import Border

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_WRAP = "result"


class Output:
    """The type of an answer, and how the model is asked for it: `Agent(model, output=Output(Order, mode="tool"))`.

    Args:
        kind: Any type that pydantic can validate. A type that is no object is wrapped in one, because providers want an object.
        mode: "native" for the provider's own output format, "tool" for a tool that the model must call, or "prompted" for a
            schema in the instructions. By default the adapter chooses: native if the provider has it, and the next one if the
            provider refuses the schema.

    Raises:
        ConfigError: There is no such mode.
    """

    def __init__(self, kind: Any, mode: OutputMode | Literal[""] = "") -> None:
        if mode not in ("", *get_args(OutputMode)):
            modes = ", ".join(get_args(OutputMode))
            raise ConfigError.of("output.mode", "mode must be one of {modes}, not {mode!r}", modes=modes, mode=mode)
        self.kind, self.mode = kind, mode

    @classmethod
    def of(cls, kind: Any) -> Output:
        """Return the output of a type, or the output itself."""
        return kind if isinstance(kind, Output) else cls(kind)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter

        return TypeAdapter(self.kind)

    @cached_property
    def _own_schema(self) -> Mapping[str, Any]:
        return self._adapter.json_schema()

    @cached_property
    def _is_wrapped(self) -> bool:
        shape = self._own_schema
        if "$ref" in shape:  # a type that refers to itself
            shape = shape["$defs"][shape["$ref"].rpartition("/")[2]]
        return shape.get("type") != "object"

    def check(self) -> None:
        """Raise `ConfigError` if a model cannot be asked for this type."""
        with Border() as border:
            _ = self.schema
        if border.failure is not None:
            raise ConfigError.of(
                "output.kind",
                "output={kind!r} is not a type that pydantic can validate: {failure}",
                kind=self.kind,
                failure=border.failure,
            ) from border.failure.error

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        if not self._is_wrapped:
            return AnswerSchema(_with_root(self._own_schema), self.mode)
        inner = {key: value for key, value in self._own_schema.items() if key != "$defs"}
        outer: dict[str, Any] = {"type": "object", "properties": {_WRAP: inner}, "required": [_WRAP]}
        outer["additionalProperties"] = False
        if "$defs" in self._own_schema:
            outer["$defs"] = self._own_schema["$defs"]
        return AnswerSchema(outer, self.mode)

    @cached_property
    def partial(self) -> PartialOutput:
        """Reads the answer while it is being written."""
        return PartialOutput(self.kind, lambda data: data[_WRAP] if self._is_wrapped and isinstance(data, dict) else data)

    def decode_exactly(self, text: str) -> Any:
        """Return the answer of a reply that is nothing but the answer, as JSON. Raises `ValueError`."""
        if text.strip()[:1] not in ("{", "["):
            raise ValueError("not JSON")
        return self._check(self._unwrap(json.loads(text)))

    def decode(self, text: str) -> Any:
        """The answer as JSON, after it was checked; `ValueError` says what does not fit."""
        return self._check(self._read(text))

    def _check(self, data: Any) -> Any:
        from pydantic import ValidationError

        try:
            self._adapter.validate_json(dump(data))
        except ValidationError as problem:
            if (without := without_nulls(data, problem)) is not None:  # a field with a default, which the schema requires
                return self._check(without)
            lines = [
                f"{'.'.join([str(part) for part in p['loc']]) or 'answer'}: {p['msg']}"
                for p in problem.errors(include_url=False)
            ]
            raise ValueError("; ".join(lines[:10])) from None
        return data

    def _read(self, text: str) -> Any:
        try:
            data = read_json(text)
        except TwoReadings:
            raise
        except ValueError:
            if len(blocks := fenced_blocks(text)) == 1:  # an answer with words around it
                data = read_json(blocks[0])
            elif self._is_wrapped:  # a bare text where a text, a date or one of some words is wanted
                data = text.strip()
            else:
                raise
        return self._unwrap(data)

    def _unwrap(self, data: Any) -> Any:
        return data[_WRAP] if self._is_wrapped and isinstance(data, dict) and set(data) == {_WRAP} else data

    def restore(self, value: Any) -> Any:
        """The caller's type, from the JSON that the journal keeps."""
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(dump(value))
        except ValidationError as problem:
            raise OutputDecodingFailed(str(problem)) from problem


def _with_root(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema whose root is an object, and not a reference to one: providers refuse that."""
    if "$ref" not in schema:
        return schema
    return {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}


def without_nulls(data: Any, problem: Any) -> Any:
    """Return the data without the nulls to which pydantic objects, or None if it objects to something else.

    A strict schema requires every field, and lets a field with a default be null.
    """
    places = [one["loc"] for one in problem.errors(include_url=False)]
    made, removed = json.loads(dump(data)), False
    for place in places:
        if not place:  # it objects to the whole
            return None
        holder = made
        for step in place[:-1]:
            holder = holder[step] if _has(holder, step) else holder  # a branch of a union is not a key
        if not isinstance(holder, dict) or not _has(holder, place[-1]) or holder[place[-1]] is not None:
            return None
        del holder[place[-1]]
        removed = True
    return made if removed else None


def _has(holder: Any, step: Any) -> bool:
    if isinstance(holder, dict):
        return step in holder
    return isinstance(holder, list) and isinstance(step, int) and 0 <= step < len(holder)


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
