"""What requests say: their forms, which are also in the OpenAPI document, and reading them with clear errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from ..core.errors import ConfigError
from ..core.notices import notice
from .problems import Refused
from .users import Caller

LAST = 10**15  # beyond every place in a journal
FormT = TypeVar("FormT")
Name = Annotated[str, Meta(max_length=500)]
RunId = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9._@-]{1,200}\Z")
]  # "/" parts a child from its parent, ":" a question from its run


class Form(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request's body: an object with these keys and no others."""


class StartRun(Form):
    """`input`: a text, a message, or a list of messages whose last is the user's. `mode`: `wait` for the result, `stream` its
    chunks, or `detach`: answer as soon as it has begun."""

    input: str | list[Any] | dict[str, Any]
    agent: Name = ""
    session_id: Name | None = None
    user_id: Name | None = None
    run_id: RunId | None = None
    mode: Literal["wait", "stream", "detach"] = "wait"
    when_busy: Literal["wait", "refuse"] = "wait"
    on_disconnect: Literal["continue", "stop"] = "continue"


class Resume(Form):
    """`answers`: to what the run asks, by their keys. `takeover`: even if another process seems to be at it."""

    answers: dict[str, Any] = {}
    takeover: bool = False
    mode: Literal["wait", "stream", "detach"] = "wait"


class Answers(Form):
    """`answers`: by the keys of the run's questions."""

    answers: dict[str, Any]
    mode: Literal["wait", "stream", "detach"] = "detach"


class Fork(Form):
    """A new run that continues another one from one of its facts. The other run stays as it is."""

    at: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="the fact to continue after (default: the last)")] = None
    input: Annotated[
        str | list[Any] | dict[str, Any] | None, Meta(description="what the user says next, as in POST /api/runs")
    ] = None
    results: Annotated[
        dict[str, Any],
        Meta(description="results of calls that are open at that fact, by their ids; the tools are not run. Needs `approve`"),
    ] = {}
    keep: Annotated[
        list[Name], Meta(description="ids of calls that are open at that fact and get the results that the other run recorded")
    ] = []
    model: Annotated[str | None, Meta(description="another model. Needs `admin`")] = None
    instructions: Annotated[str | None, Meta(description="other instructions. Needs `admin`")] = None
    mode: Annotated[Literal["wait", "stream", "detach"], Meta(description="as in POST /api/runs")] = "wait"


class StopRun(Form):
    reason: Annotated[str, Meta(max_length=2000)] = ""


class Rename(Form):
    title: Annotated[str, Meta(min_length=1, max_length=500)]


class Rate(Form):
    """Whether a run was of use."""

    rating: Literal["good", "bad"]
    note: Annotated[str, Meta(max_length=2000)] = ""


class Remember(Form):
    """`about`: what it is about, if only one can hold at a time."""

    text: Annotated[str, Meta(min_length=1, max_length=2000)]
    kind: Literal["fact", "preference", "decision", "profile"] = "fact"
    about: Annotated[str, Meta(max_length=200)] = ""


class Correction(Form):
    text: Annotated[str, Meta(min_length=1, max_length=2000)]


def caller_of(request: Request, role: str = "read") -> Caller:
    """Who asks, if they may."""
    caller: Caller = request.scope["kaname.caller"]
    require(caller, role)
    return caller


def require(caller: Caller, role: str) -> None:
    if not caller.may(role):
        raise Refused(403, notice("serve.role", "this needs the role {role!r}", role=role))


async def read(request: Request, form: type[FormT]) -> FormT:
    """The body as that form; an empty one is an object without keys."""
    body = await request.body()
    try:
        return msgspec.json.decode(body or b"{}", type=form)
    except msgspec.ValidationError as problem:
        raise ConfigError(_does_not_fit(form, str(problem))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ConfigError(notice("serve.no_json", "the request is no JSON: {problem}", problem=str(problem))) from None


def _does_not_fit(form: Any, problem: str) -> str:
    """Say what is wrong with a body, and which fields it can have."""
    if not issubclass(form if isinstance(form, type) else object, Form):
        return notice("serve.form", "the request does not fit: {problem}", problem=problem)
    fields = ", ".join([*form.__struct_fields__])
    return notice(
        "serve.fields", "the request does not fit: {problem}. Its fields are: {fields}", problem=problem, fields=fields
    )


@contextmanager
def fitting() -> Iterator[None]:
    """What a client sends in another protocol's form is read without a form of ours: what is of the wrong kind is told so."""
    try:
        yield
    except (TypeError, KeyError, AttributeError, ValueError, IndexError) as problem:
        told = f"{type(problem).__name__}: {problem}"
        raise ConfigError(notice("serve.form", "the request does not fit: {problem}", problem=told)) from problem


def number(request: Request, name: str, usual: int, least: int = 0, most: int = 10_000) -> int:
    """A number of the query."""
    text = request.query_params.get(name, "")
    if not text:
        return usual
    if not text.isdecimal() or len(text) > 15 or not least <= int(text) <= most:
        told = notice("serve.number", "{name} is a number from {least} to {most}, not {text!r}", name=name, least=least,
                      most=most, text=text[:50])  # fmt: skip
        raise ConfigError(told)
    return int(text)
