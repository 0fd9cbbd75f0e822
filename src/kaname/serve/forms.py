"""Bodies of requests: their fields, which are also in the OpenAPI document, and reading them with clear errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from ..core.errors import ConfigError
from ..core.notices import notice
from .problems import HttpRefused
from .users import Caller

_DEEPEST = 200  # levels of JSON
LAST = 10**15  # beyond every place in a journal
FormT = TypeVar("FormT")
Name = Annotated[str, Meta(max_length=500)]
RunId = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9._@-]{1,200}\Z")
]  # "/" parts a child from its parent, ":" a question from its run


class RequestForm(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request's body: an object with these keys and no others."""


class StartRun(RequestForm):
    """Start a run.

    `input`: a text, a message, or a list of messages that ends with one of the user. `mode`: `wait` for the result, `stream`
    the chunks, or `detach`: answer as soon as the run has started.
    """

    input: str | list[Any] | dict[str, Any]
    agent: Name = ""
    session_id: Name | None = None
    user_id: Name | None = None
    run_id: RunId | None = None
    mode: Literal["wait", "stream", "detach"] = "wait"
    when_busy: Literal["wait", "refuse"] = "wait"
    on_disconnect: Literal["continue", "stop"] = "continue"


class Resume(RequestForm):
    """`answers`: by the keys of the questions. `takeover`: resume even if another process seems to execute the run."""

    answers: dict[str, Any] = {}
    takeover: bool = False
    mode: Literal["wait", "stream", "detach"] = "wait"


class Answers(RequestForm):
    """`answers`: by the keys of the questions that the run asks."""

    answers: dict[str, Any]
    mode: Literal["wait", "stream", "detach"] = "detach"


class Fork(RequestForm):
    """A new run that continues another one from one of its facts. The other run stays as it is."""

    at: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="The fact to continue after. Default: the last fact.")
    ] = None
    input: Annotated[
        str | list[Any] | dict[str, Any] | None, Meta(description="The next message of the user, as in POST /api/runs.")
    ] = None
    results: Annotated[
        dict[str, Any],
        Meta(description="Results of calls that are open at that fact, by call id. The tools are not run. Needs `approve`."),
    ] = {}
    keep: Annotated[
        list[Name], Meta(description="Ids of calls that are open at that fact and get the results that the other run recorded.")
    ] = []
    model: Annotated[str | None, Meta(description="Another model. Needs `admin`.")] = None
    instructions: Annotated[str | None, Meta(description="Other instructions. Needs `admin`.")] = None
    mode: Annotated[Literal["wait", "stream", "detach"], Meta(description="As in POST /api/runs.")] = "wait"


class StopRun(RequestForm):
    reason: Annotated[str, Meta(max_length=2000)] = ""


class SayToRun(RequestForm):
    """Say something to a run while it works. `urgent`: end the model call under way, so that the model sees it at once."""

    input: str | list[Any] | dict[str, Any]
    urgent: bool = False


class Rename(RequestForm):
    title: Annotated[str, Meta(min_length=1, max_length=500)]


class Rate(RequestForm):
    """Rate a run as good or bad."""

    rating: Literal["good", "bad"]
    note: Annotated[str, Meta(max_length=2000)] = ""


class AddCase(RequestForm):
    """Add a recorded run to the evaluation cases. `name`: the name of the case; by default the beginning of its input."""

    run_id: Name
    name: Annotated[str, Meta(max_length=200)] = ""


class ChangeLesson(RequestForm):
    """Approve a lesson or roll it back. `share`: for all users. `untested`: even if no trial has shown that it helps."""

    action: Literal["approve", "rollback"]
    share: bool = False
    untested: bool = False


class Remember(RequestForm):
    """`about`: the subject of the memory. A new memory about the same subject replaces the old one."""

    text: Annotated[str, Meta(min_length=1, max_length=2000)]
    kind: Literal["fact", "preference", "decision", "profile"] = "fact"
    about: Annotated[str, Meta(max_length=200)] = ""


class SignInForm(RequestForm):
    """Sign in to the page. `keep`: stay signed in after the browser is closed."""

    token: Annotated[str, Meta(min_length=1, max_length=1000)]
    keep: bool = False


class Correction(RequestForm):
    text: Annotated[str, Meta(min_length=1, max_length=2000)]


def caller_of(request: Request, role: str = "read") -> Caller:
    """Return the caller of a request. Raise `HttpRefused` (403) if the caller does not have the role."""
    caller: Caller = request.scope["kaname.caller"]
    require(caller, role)
    return caller


def require(caller: Caller, role: str) -> None:
    if not caller.may(role):
        raise HttpRefused.of("serve.role", "this request needs the role {role!r}", http=403, role=role)


async def read_body(request: Request, form: type[FormT]) -> FormT:
    """Read the body as that form; an empty body is an object without keys. Raise `ConfigError` if it does not fit."""
    body = await request.body()
    try:
        _check_depth(body)
        return msgspec.json.decode(body or b"{}", type=form)
    except msgspec.ValidationError as problem:
        raise ConfigError(_describe_misfit(form, str(problem))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ConfigError.of("serve.no_json", "the request is not valid JSON: {problem}", problem=str(problem)) from None


def _check_depth(body: bytes) -> None:
    """Raise `ConfigError` for JSON that is nested too deeply to be meant. Whatever reads it later may do so recursively."""
    if body.count(b"[") + body.count(b"{") <= _DEEPEST:
        return
    level: list[Any] = [msgspec.json.decode(body)]
    for _ in range(_DEEPEST):
        lists = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [one for inner in lists for one in inner]
        if not level:
            return
    raise ConfigError.of("serve.depth", "the request is nested more than {most} levels deep", most=_DEEPEST)


def _describe_misfit(form: Any, problem: str) -> str:
    """Return the error message for a body that does not fit its form, with the fields that the form has."""
    if not issubclass(form if isinstance(form, type) else object, RequestForm):
        return notice("serve.form", "the request is not valid: {problem}", problem=problem)
    fields = ", ".join([*form.__struct_fields__])
    return notice("serve.fields", "the request is not valid: {problem}. Its fields: {fields}", problem=problem, fields=fields)


@contextmanager
def refuse_malformed() -> Iterator[None]:
    """Raise `ConfigError` for a value of the wrong type.

    For requests of other protocols, which are read without a form of ours.
    """
    try:
        yield
    except (TypeError, KeyError, AttributeError, ValueError, IndexError) as problem:
        text = f"{type(problem).__name__}: {problem}"
        raise ConfigError.of("serve.form", "the request is not valid: {problem}", problem=text) from problem


async def read_page(request: Request, read: Callable[..., Awaitable[list[Any]]]) -> tuple[list[Any], int | None]:
    """Return the page of a list that the query names (`limit`, `before`), and the place from which the next one continues.

    `read`: called with `before` and `limit`; returns items with a `place`, the newest first.
    """
    limit, before = number(request, "limit", 100, 1), number(request, "before", 0, 1, LAST)
    found = await read(before=before, limit=limit + 1)
    return found[:limit], found[limit - 1].place if len(found) > limit else None


def number(request: Request, name: str, usual: int, least: int = 0, most: int = 10_000) -> int:
    """Return a number of the query, or `usual` if it is missing. Raise `ConfigError` if it is outside of `least` and `most`."""
    text = request.query_params.get(name, "")
    if not text:
        return usual
    if not text.isdecimal() or len(text) > 15 or not least <= int(text) <= most:
        message = notice("serve.number", "{name} must be a number from {least} to {most}, not {text!r}", name=name, least=least,
                      most=most, text=text[:50])  # fmt: skip
        raise ConfigError(message)
    return int(text)
