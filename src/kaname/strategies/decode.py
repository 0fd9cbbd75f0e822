"""The final answer as a type: its schema for the model, the check of what comes back, and the typed value for the caller."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError
from ..core.values import read_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_WRAP = "result"


class Output:
    """Any type that pydantic can validate. A type that is no object is wrapped in one, because providers want an object."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        try:
            return TypeAdapter(self.kind)
        except (PydanticSchemaGenerationError, PydanticUserError) as problem:
            raise ConfigError(f"output={self.kind!r} is not a type that pydantic can validate: {problem.message}") from problem

    @cached_property
    def _plain(self) -> Mapping[str, Any]:
        return self._adapter.json_schema()

    @cached_property
    def _wrapped(self) -> bool:
        return self._plain.get("type") != "object" and "$ref" not in self._plain

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        if not self._wrapped:
            return self._plain
        inner = {key: value for key, value in self._plain.items() if key != "$defs"}
        outer: dict[str, Any] = {"type": "object", "properties": {_WRAP: inner}, "required": [_WRAP]}
        outer["additionalProperties"] = False
        if "$defs" in self._plain:
            outer["$defs"] = self._plain["$defs"]
        return outer

    def decode(self, text: str) -> Any:
        """The checked value as JSON; `ValueError` says what does not fit."""
        from pydantic import ValidationError

        data = read_json(text)
        if self._wrapped and isinstance(data, dict) and set(data) == {_WRAP}:
            data = data[_WRAP]
        try:
            return self._adapter.dump_python(self._adapter.validate_python(data), mode="json")
        except ValidationError as problem:
            lines = [
                f"{'.'.join([str(part) for part in p['loc']]) or 'answer'}: {p['msg']}"
                for p in problem.errors(include_url=False)
            ]
            raise ValueError("; ".join(lines)) from None

    def typed(self, value: Any) -> Any:
        """The caller's type again, from the JSON that the journal keeps."""
        return self._adapter.validate_python(value)
