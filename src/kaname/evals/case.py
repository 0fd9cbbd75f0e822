"""`Case`: an input, and what must hold of its outcome."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import isfunction
from typing import Any, TypedDict, Unpack

from ..core.codec import digest, encode_body
from ..core.errors import ConfigError, nearest
from ..core.events import Received
from ..core.notices import notice
from ..core.runs import as_title
from ..kernel.identity import describe_model, value_identity
from ..kernel.ports import Model
from ..run.input import Input, as_turn, check_argument
from .checks.kinds import KINDS, RUBRIC, prepare
from .simulated import SimulatedUser

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object in memory: another one in every process


class Expectations(TypedDict, total=False):
    """The checks of a case. All of them must hold.

    equals: The output: a text, or a JSON value. contains: A text, or several, that the answer contains.
    matches: A regular expression. number: A number that the answer contains, or `{"is": 300, "within": 5}` ("within": "2%").
    schema: A JSON Schema for the output. predicate: A function of the `CaseOutcome`, or `FILE.py:NAME`; it returns True, False
    or a text that says what is wrong. calls: Tools that must be called, in any order; `{"price": {"item": "tea"}}` names
    arguments. calls_in_order: The same, in this order; other calls can come between. no_calls: Tools that must not be called.
    files: Files of the workspace, and their texts; None for a file that must not be there. sql: Queries on a database of the
    workspace, and their results. stop: How the run must end, or several ways. cost, steps, time: Upper limits.
    rubric: What a model judges the answer by.
    """

    equals: Any
    contains: str | Sequence[str]
    matches: str
    number: float | Mapping[str, Any]
    schema: Mapping[str, Any]
    predicate: Callable[[Any], Any] | str
    calls: str | Sequence[Any]
    calls_in_order: Sequence[Any]
    no_calls: str | Sequence[Any]
    files: Mapping[str, Any]
    sql: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    stop: str | Sequence[str]
    cost: float | str
    steps: int
    time: float | str
    rubric: str


class Case:
    """An input with checks. Without any, the case passes if the run completes.

    Args:
        input: What `agent.run` takes. With `user`, it can be left out: the simulated user begins.
        name: Its name in reports (default: the beginning of the input).
        user: A simulated user, who continues the conversation.
        reference: A good answer, for the judge of a rubric. It is not compared with the answer.
        answer: The answer to every question that the run asks, such as "yes" to an approval.
        user_id: The user to whom the run belongs (default: one of its own, without memories).
        from_user: The user, or the users, whose recorded words the case has. `kaname user erase` erases evaluations of them,
            too.
        group: What cases share that are not independent, such as a document or a conversation. Comparisons count by groups.
        expect: The checks: see `Expectations`.

    Raises:
        ConfigError: If a check does not exist, or its value cannot be used.
    """

    def __init__(
        self,
        input: Input = "",
        name: str = "",
        *,
        user: SimulatedUser | None = None,
        reference: str = "",
        answer: str = "",
        user_id: str = "",
        from_user: str | Sequence[str] = "",
        group: str = "",
        **expect: Unpack[Expectations],
    ) -> None:
        if not input and user is None:
            raise ConfigError.of("eval.no_input", "a case needs an input, or a simulated user")
        self.input, self.user, self.reference, self.answer, self.user_id = input, user, reference, answer, user_id
        named = [from_user] if isinstance(from_user, str) else from_user
        fits = isinstance(named, list | tuple) and all(isinstance(one, str) for one in named)
        check_argument(fits, "Case(from_user=…)", "a text or a list of texts", from_user)
        self.from_user, self.people = from_user, {*named, user_id} - {""}
        self.title = as_title(as_turn(input)[-1].text) if input else as_title(user.goal if user else "")
        self.name, self.group = name or self.title[:40], group
        self.expect: dict[str, Any] = {check: prepare_check(check, value) for check, value in expect.items()}

    def __repr__(self) -> str:
        return f"<Case {self.name!r}: {', '.join(self.expect) or 'completes'}>"

    def with_checks(self, shared: Mapping[str, Any]) -> Case:
        """Return the case with the checks that all cases share. A check of its own replaces the shared one of that kind."""
        return self._copy(self.name, {**shared, **self.expect})

    def with_name(self, name: str) -> Case:
        return self._copy(name, self.expect)

    def _copy(self, name: str, expect: Mapping[str, Any]) -> Case:
        made = Case.__new__(Case)
        made.__dict__.update(self.__dict__, name=name, expect=dict(expect))
        return made

    def digest(self, judge: Model | None = None) -> str:
        """Return a fingerprint of everything that decides the verdict. Verdicts of another fingerprint are not used.

        `judge`: the model that judges rubrics and plays simulated users.
        """
        said = [encode_body(Received(message)) for message in as_turn(self.input)] if self.input else []
        user = None if self.user is None else self.user.description
        by = [] if judge is None or not self.needs_judge else [describe_model(judge)]
        return digest([said, _describe(self.expect), user, self.reference, self.answer, self.user_id, *by])

    @property
    def needs_judge(self) -> bool:
        return RUBRIC in self.expect or (self.user is not None and not self.user.model)


def prepare_check(check: str, value: Any) -> Any:
    if check not in KINDS:
        raise ConfigError(notice("eval.unknown_check", "there is no check {check!r}", check=check) + nearest(check, KINDS))
    return prepare(check, value)


def _describe(value: Any) -> Any:
    """Return a value as JSON; a function as a fingerprint of its code."""
    if isinstance(value, Mapping):
        return {str(name): _describe(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_describe(one) for one in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    known = value_identity(value) if isfunction(value) else ""
    return known or without_address(repr(value))


def without_address(text: str) -> str:
    """Return the `repr` of an object without its place in memory."""
    return _ADDRESS.sub("", text)
