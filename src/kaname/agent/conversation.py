"""The conversation of an open agent: its `messages`, which can be read, set and changed, and one turn of it at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from copy import deepcopy
from functools import partial
from itertools import takewhile
from typing import Any

from ..core.errors import SessionBusy
from ..core.messages import Message, user
from ..core.openai_shape import to_openai
from ..core.record import replace
from ..core.state import State
from ..kernel.ports import Journal
from ..kernel.scope import Scope
from ..run.input import as_turn
from ..run.request import RunRequest, new_run_id
from ..run.turns import turn_of

_inside: ContextVar[str] = ContextVar("conversation", default="")


class Conversation:
    """The last run of a conversation, for each user, and its messages as the program reads and changes them.

    `lasting`: it is open as long as the agent lives, and not only inside `async with`, and its runs take turns. Otherwise runs
    at the same time do not see each other.
    """

    def __init__(self, *, lasting: bool = False) -> None:
        self.session = ""  # empty: no conversation is open
        self._lasting = lasting
        self._heads: dict[str, tuple[str, State]] = {}  # the last run of each user
        self._busy: dict[str, str] = {}  # the run that has the turn, of each user
        self._messages: list[dict[str, Any]] = []
        self._known: list[dict[str, Any]] | None = None  # as they were before their owner changed them; None: nobody has them
        self._sent: list[dict[str, Any]] | None = None  # changed ones, as the run that is being opened takes them
        self._live: Scope | None = None  # the run that is under way
        self._shown = ("", 0)  # as far as that run was shown
        if lasting:
            self.open()

    def open(self) -> None:
        if self._lasting and self.session:
            return
        if not self._is_changed:
            self._messages.clear()
            self._known = None
        self.session, self._heads = f"conversation-{new_run_id()}", {}

    def close(self) -> None:
        self.session = self.session if self._lasting else ""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the user without a name in the OpenAI shapes: one and the same list, as long as the agent lives.

        While a run is under way they have what it has done: a tool call as soon as its result is there.
        """
        if self._live is not None:
            self._show(self._live.run_id, self._live.state, under_way=True)
        elif self._known is None:
            self._show(*self._heads.get("", ("", State())))
        return self._messages

    @messages.setter
    def messages(self, given: Iterable[Mapping[str, Any] | Message]) -> None:
        check_messages(made := [to_openai(one) if isinstance(one, Message) else dict(one) for one in given])
        self._known = self._known or []
        self._messages[:] = made

    @property
    def _is_changed(self) -> bool:
        return self._known is not None and self._messages != self._known

    async def take_turn(self, request: RunRequest, journal: Journal, stack: AsyncExitStack) -> RunRequest:
        """Return the request as the next turn of the conversation, if it belongs to it. `stack` ends the turn.

        A run that a tool of the run under way starts need not wait for the turn.
        """
        if request.session != self.session or request.how != "new" or request.parent:
            return request
        stack.push_async_exit(partial(self._keep_unsaid, request))
        if self._lasting and request.turns != "ahead" and _inside.get() != self.session:
            who = request.user
            if request.turns == "refuse" and who in self._busy:
                raise SessionBusy(self._busy[who])
            await stack.enter_async_context(turn_of(journal, self.session, who))
            self._busy[who] = request.run_id
            stack.callback(self._busy.pop, who)
            stack.callback(_inside.reset, _inside.set(self.session))
        return self._with_history(request)

    async def _keep_unsaid(
        self, request: RunRequest, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Keep the words of a run that was cancelled before it began."""
        cancelled = isinstance(error, asyncio.CancelledError) and not request.user and request.base is None
        if cancelled and self._heads.get("", ("",))[0] != request.run_id:
            self.messages.extend([to_openai(message) for message in request.messages])

    def _with_history(self, request: RunRequest) -> RunRequest:
        """Return the request with the run that it continues, or with the messages before it if their owner has changed them."""
        self._sent = None
        if not request.user and (self._is_changed or request.base == ""):
            self._sent = deepcopy(self._messages)
            said = request.messages if request.base is None else ()
            return replace(request, base="", messages=(*check_messages(self._messages), *said))
        return replace(request, base=self._heads.get(request.user, ("",))[0])

    def begin(self, scope: Scope) -> None:
        """Show what the run does from now on."""
        if self.session and scope.state.session == self.session and not scope.state.user:
            self._known = self._known if self._sent is None else self._sent
            self._live, self._sent = scope, None

    def keep(self, scope: Scope) -> None:
        """Move the conversation to this run, however it ended."""
        if self.session and scope.state.session == self.session:
            self._heads[scope.state.user] = (scope.run_id, scope.state)
            if not scope.state.user:
                self._live = None
                if self._known is not None:
                    self._show(scope.run_id, scope.state)

    def _show(self, run_id: str, state: State, *, under_way: bool = False) -> None:
        if under_way and self._shown == (run_id, state.seq):
            return
        self._shown = (run_id, state.seq)
        done = takewhile(lambda one: not any(call.id in state.open for call in one.calls), state.messages)
        made = [to_openai(message) for message in (done if under_way else state.history)]
        if self._is_changed:  # in the meantime, by their owner: that stays, and the next run continues from it
            self._messages += made[len(self._known or ()) :]
        else:
            self._messages[:] = made
        self._known = deepcopy(made)


def check_messages(messages: Iterable[Any]) -> tuple[Message, ...]:
    """Return the messages, if a run can continue from them. Raises `ConfigError`."""
    return as_turn([*messages, user("?")], first=True)[:-1]
