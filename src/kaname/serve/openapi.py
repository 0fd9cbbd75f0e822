"""The addresses of the native API, and the OpenAPI document that is made from them and from the forms of their requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from .. import __version__
from .forms import RequestForm

JSON, EVENTS = "application/json", "text/event-stream"
_KINDS = dict.fromkeys(("limit", "before", "after", "at", "upto", "days", "number"), "integer")
_KINDS |= dict.fromkeys(("cascade", "whole", "past"), "boolean")
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "run_id": {"type": "string"},
        "notice": {"type": "object"},
    },
}


class ApiRoute(Route):
    """A route with its entry in the OpenAPI document.

    Args:
        path: The path.
        handler: The function that answers requests.
        about: What a request does.
        method: The method of the request.
        form: The body of the request.
        query: The names of its parameters, separated by spaces.
        answers: The types of the answer.
    """

    def __init__(
        self,
        path: str,
        handler: Callable[[Request], Awaitable[Response]],
        about: str,
        method: str = "GET",
        form: type[RequestForm] | None = None,
        query: str = "",
        answers: tuple[str, ...] = (JSON,),
    ) -> None:
        super().__init__(path, handler, methods=[method])
        self.about, self.method, self.form, self.query, self.answers = about, method, form, query.split(), answers

    def entry(self) -> dict[str, Any]:
        """Return the entry in the document."""
        failure = {"description": "An error", "content": {"application/problem+json": {"schema": _ref("Problem")}}}
        content: dict[str, Any] = {"content": {kind: {} for kind in self.answers}} if self.answers else {}
        made: dict[str, Any] = {"summary": self.about}
        made["responses"] = {"2XX": {"description": self.about, **content}, "default": failure}
        parameters = [_parameter(name, "path") for name in self.param_convertors]
        if parameters := parameters + [_parameter(name, "query") for name in self.query]:
            made["parameters"] = parameters
        if self.form is not None:
            made["requestBody"] = {"content": {JSON: {"schema": _ref(self.form.__name__)}}}
        return made


def document(routes: Iterable[BaseRoute], root: str = "") -> dict[str, Any]:
    addresses = [one for one in routes if isinstance(one, ApiRoute)]
    forms = [one.form for one in addresses if one.form is not None]
    _, schemas = msgspec.json.schema_components(forms, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for one in addresses:
        paths.setdefault(one.path.replace(":path}", "}"), {})[one.method.lower()] = one.entry()
    return {
        "openapi": "3.1.0",
        "info": {"title": "kaname", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _parameter(name: str, place: str) -> dict[str, Any]:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, **required, "schema": {"type": _KINDS.get(name, "string")}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
