"""The OpenAPI document of the native addresses, made from the forms that requests are read with."""

from __future__ import annotations

from typing import Any

import msgspec

from .. import __version__
from .forms import (
    AddCase,
    Answers,
    ChangeLesson,
    Correction,
    Fork,
    Rate,
    Remember,
    Rename,
    Resume,
    SayToRun,
    SignInForm,
    StartRun,
    StopRun,
)

_ABOUT_RUNS = (StartRun, Resume, Answers, Fork, StopRun, SayToRun, Rename, Rate)
_FORMS = (*_ABOUT_RUNS, Remember, Correction, AddCase, ChangeLesson, SignInForm)
_RUN = {"name": "run_id", "in": "path", "required": True, "schema": {"type": "string"}}
_HASH = {"name": "hash", "in": "path", "required": True, "schema": {"type": "string"}}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_NUMBER = {"name": "number", "in": "path", "required": True, "schema": {"type": "integer"}}
_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_LESSON = {"name": "lesson_id", "in": "path", "required": True, "schema": {"type": "string"}}
_SESSION = {"name": "session_id", "in": "path", "required": True, "schema": {"type": "string"}}


def _query(*names: str) -> list[dict[str, Any]]:
    whole = dict.fromkeys(("limit", "before", "after", "at", "upto", "days"), "integer")
    kinds = {**whole, "cascade": "boolean", "whole": "boolean", "past": "boolean"}
    return [{"name": name, "in": "query", "schema": {"type": kinds.get(name, "string")}} for name in names]


# address, method, what it does, form, parameters, kinds of answers
_JSON, _EVENTS = "application/json", "text/event-stream"
_ADDRESSES: tuple[tuple[str, str, str, type | None, list[dict[str, Any]], tuple[str, ...]], ...] = (
    ("/healthz", "get", "Check that the server is up", None, [], (_JSON,)),
    ("/readyz", "get", "Check that the server can take work", None, [], (_JSON,)),
    ("/api/agents", "get", "List the agents", None, [], (_JSON,)),
    ("/api/runs", "get", "List and search runs", None,
     _query("agent", "session_id", "status", "user_id", "q", "before", "limit"), (_JSON, _EVENTS)),
    ("/api/runs", "post", "Start a run: wait for it, stream it, or detach", StartRun, [], (_JSON, _EVENTS)),
    ("/api/media", "post", "Upload a file (application/octet-stream) for a message, which names its `file_id`", None,
     _query("name"), (_JSON,)),
    ("/api/runs/{run_id}", "get", "Get a run: status, output, open questions", None, [_RUN], (_JSON,)),
    ("/api/runs/{run_id}", "delete", "Delete a run", None, [_RUN, *_query("cascade")], ()),
    ("/api/runs/{run_id}/events", "get", "Follow a run, starting after `Last-Event-ID` or `after`", None,
     [_RUN, *_query("after")], (_EVENTS,)),
    ("/api/runs/{run_id}/facts", "get", "List the facts of a run; as a stream, also new ones", None,
     [_RUN, *_query("after", "whole", "upto")], (_JSON, _EVENTS)),
    ("/api/runs/{run_id}/media/{hash}", "get", "Get a picture, sound or file of a run by its SHA-256", None, [_RUN, _HASH],
     ("application/octet-stream",)),
    ("/api/runs/{run_id}/state", "get", "Get the messages that the model would be sent after a fact, and the open calls", None,
     [_RUN, *_query("at")], (_JSON,)),
    ("/api/runs/{run_id}/test", "get", "Get the run as a test for pytest", None, [_RUN], ("text/x-python",)),
    ("/api/runs/{run_id}/rating", "post", "Rate a run as good or bad", Rate, [_RUN], (_JSON,)),
    ("/api/runs/{run_id}/story", "get", "List the chunks of a run so far", None, [_RUN, *_query("after", "limit")], (_JSON,)),
    ("/api/runs/{run_id}/messages", "get", "Get the conversation, in the OpenAI shapes", None, [_RUN], (_JSON,)),
    ("/api/runs/{run_id}/stop", "post", "Stop a run, wherever it is executed", StopRun, [_RUN], (_JSON,)),
    ("/api/runs/{run_id}/messages", "post", "Say something to a run while it works", SayToRun, [_RUN], (_JSON,)),
    ("/api/runs/{run_id}/answers", "post", "Answer the questions of a run and resume it", Answers, [_RUN], (_JSON, _EVENTS)),
    ("/api/runs/{run_id}/resume", "post", "Resume a run after a crash or a stop", Resume, [_RUN], (_JSON, _EVENTS)),
    ("/api/runs/{run_id}/fork", "post", "Start a new run that continues this one from a fact", Fork, [_RUN], (_JSON, _EVENTS)),
    ("/api/runs/{run_id}/replay", "post", "Replay a run offline and compare its decisions", None, [_RUN], (_JSON,)),
    ("/api/signin", "get", "List the ways to sign in to the page", None, [], (_JSON,)),
    ("/api/signin", "post", "Sign in to the page with a token, for a cookie", SignInForm, [], (_JSON,)),
    ("/api/signout", "post", "Sign out of the page", None, [], ()),
    ("/api/me", "get", "Get the name and the roles of the caller", None, [], (_JSON,)),
    ("/api/compare", "get", "Compare two runs line by line", None, _query("one", "other"), (_JSON,)),
    ("/api/figures", "get", "Get metrics by day: success, cost, tools", None, _query("agent", "user_id", "days"), (_JSON,)),
    ("/api/work", "get", "List workers, queued runs and schedules", None, [], (_JSON,)),
    ("/api/work/pause/{name}", "post", "Pause a schedule; resume or run it in the same way", None, [_NAME], (_JSON,)),
    ("/api/work/retry/{run_id}", "post", "Return a run that was set aside to the queue", None, [_RUN], (_JSON,)),
    ("/metrics", "get", "Get metrics in the format of Prometheus", None, [], ("text/plain",)),
    ("/api/evaluations", "get", "List evaluations", None, _query("name", "limit"), (_JSON,)),
    ("/api/evaluations/{run_id}", "get", "Get the report of an evaluation", None, [_RUN], (_JSON,)),
    ("/api/evaluations/compare", "get", "Compare two evaluations", None, _query("one", "other"), (_JSON,)),
    ("/api/evaluations/cases", "post", "Add a recorded run to the evaluation cases", AddCase, [], (_JSON,)),
    ("/api/learning", "get", "Get failures by cause, what succeeded, and lessons", None, _query("agent", "limit"), (_JSON,)),
    ("/api/learning/lessons/{lesson_id}", "post", "Approve a lesson, or roll it back", ChangeLesson, [_LESSON], (_JSON,)),
    ("/api/memory", "get", "List and search memories", None, _query("agent", "of", "user_id", "q", "past"), (_JSON,)),
    ("/api/memory", "post", "Add a memory", Remember, _query("agent", "of", "user_id"), (_JSON,)),
    ("/api/memory/{number}", "patch", "Correct a memory", Correction, [_NUMBER, *_query("agent", "of", "user_id")], (_JSON,)),
    ("/api/memory/{number}", "delete", "Delete a memory and its earlier versions", None,
     [_NUMBER, *_query("agent", "of", "user_id")], ()),
    ("/api/questions", "get", "List the questions that wait for an answer", None, _query("before", "limit"), (_JSON,)),
    ("/api/approvals", "get", "List the approvals that hold for later calls", None, [], (_JSON,)),
    ("/api/approvals/{id}", "delete", "Revoke an approval", None, [_ID], ()),
    ("/api/sessions", "get", "List and search sessions", None,
     _query("agent", "user_id", "q", "before", "limit"), (_JSON,)),
    ("/api/sessions/{session_id}", "get", "Get a session with its messages", None, [_SESSION, *_query("agent")], (_JSON,)),
    ("/api/sessions/{session_id}", "patch", "Rename a session", Rename, [_SESSION, *_query("agent")], (_JSON,)),
    ("/api/sessions/{session_id}", "delete", "Delete a session and its runs", None, [_SESSION, *_query("agent")], ()),
)  # fmt: skip
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


def document(root: str = "") -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(_FORMS, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for path, method, told, form, parameters, kinds in _ADDRESSES:
        failure = {"description": "An error", "content": {"application/problem+json": {"schema": _ref("Problem")}}}
        content: dict[str, Any] = {"content": {kind: {} for kind in kinds}} if kinds else {}
        entry: dict[str, Any] = {"summary": told, "responses": {"2XX": {"description": told, **content}, "default": failure}}
        if parameters:
            entry["parameters"] = parameters
        if form is not None:
            entry["requestBody"] = {"content": {_JSON: {"schema": _ref(form.__name__)}}}
        paths.setdefault(path, {})[method] = entry
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


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
