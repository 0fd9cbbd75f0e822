"""The conversation of an open agent: its `messages`, which can be read, set and changed, and one turn of it at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from copy import deepcopy
from itertools import takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ...core.errors import ConfigError, SessionBusy
from ...core.messages import Message, user
from ...core.notices import notice
from ...core.openai_shape import to_openai
from ...core.record import replace
from ...core.state import State
from ...core.steps import Finish, Step, Stop
from ...kernel.bases import ActionBase, optional
from ...kernel.channel import Channel
from ...kernel.ports import Journal, Recipe
from ...kernel.scope import Scope
from ...run.input import as_turn
from ...run.opener import Opener
from ...run.request import RunRequest, new_run_id
from ...run.result import Result
from ...run.run import Run
from ...run.turns import Recent, take_turns
from ...strategies.react import React
from ...tools.registry import ToolRegistry

if TYPE_CHECKING:
    from ...config.build import Config
    from ...tools.mcp.servers import McpServers

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
        _check_messages(made := [to_openai(one) if isinstance(one, Message) else dict(one) for one in given])
        self._known = self._known or []
        self._messages[:] = made

    @property
    def _is_changed(self) -> bool:
        return self._known is not None and self._messages != self._known

    def turn(self, request: RunRequest, journal: Journal) -> AbstractAsyncContextManager[RunRequest]:
        """Return the request as the next turn of the conversation, for as long as it has the turn."""
        mine = self.session and request.session == self.session and request.how == "new" and not request.parent
        return self._turn(request, journal) if mine else nullcontext(request)

    @asynccontextmanager
    async def _turn(self, request: RunRequest, journal: Journal) -> AsyncIterator[RunRequest]:
        waits = self._lasting and request.turns != "ahead" and _inside.get() != self.session
        try:
            async with self._alone(request, journal) if waits else nullcontext():
                yield self._with_history(request)
        except asyncio.CancelledError:
            begun = self._heads.get(request.user, ("",))[0] == request.run_id
            if not begun and not request.user and request.base is None:
                self.messages.extend([to_openai(message) for message in request.messages])
            raise

    @asynccontextmanager
    async def _alone(self, request: RunRequest, journal: Journal) -> AsyncIterator[None]:
        """Wait for the turn, and hold it. A run that a tool of this one starts need not wait."""
        who = request.user
        if request.turns == "refuse" and who in self._busy:
            raise SessionBusy(self._busy[who])
        async with take_turns(journal, self.session, who):
            self._busy[who], within = request.run_id, _inside.set(self.session)
            try:
                yield
            finally:
                _inside.reset(within)
                del self._busy[who]

    def _with_history(self, request: RunRequest) -> RunRequest:
        """Return the request with the run that it continues, or with the messages before it if their owner has changed them."""
        self._sent = None
        if not request.user and (self._is_changed or request.base == ""):
            self._sent = deepcopy(self._messages)
            said = request.messages if request.base is None else ()
            return replace(request, base="", messages=(*_check_messages(self._messages), *said))
        return replace(request, base=self._heads.get(request.user, ("",))[0])

    def begin(self, scope: Scope) -> None:
        """Show what the run does from now on."""
        if self.session and scope.state.session == self.session and not scope.state.user:
            self._known = self._known if self._sent is None else self._sent
            self._live, self._sent = scope, None

    def keep(self, scope: Scope) -> None:
        """Whatever has become of the run, the conversation stands there now."""
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


def _check_messages(messages: Iterable[Any]) -> tuple[Message, ...]:
    """The messages, if they can be gone on from. Raises `ConfigError`."""
    return as_turn([*messages, user("?")], first=True)[:-1]


class OneTurn(React):
    """One reply of the model, and the tools that it calls."""

    __slots__ = ()
    kind = "React"

    def next(self, state: State) -> Step:
        if state.replies and not state.judging:
            return Finish(Stop("completed"), state.replies[-1].reply.message.text)
        return super().next(state)


class Conversing:
    """The part of an agent that is open (`async with`): its servers are connected, and its runs are one conversation."""

    recipe: Recipe
    tools: ToolRegistry
    servers: McpServers | None
    journal: Journal
    sinks: Any
    config: Config | None = None  # what it was made of, if it was a configuration
    _conversation: Conversation
    _recent: Recent

    if TYPE_CHECKING:

        async def close(self) -> None: ...
        def _opener(self, recipe: Recipe) -> Opener: ...
        def _open_run(self, opener: Opener, request: RunRequest, channel: Channel) -> AbstractAsyncContextManager[Scope]: ...
        def _view(self, run_id: str, state: State) -> Result[Any]: ...

    async def __aenter__(self) -> Self:
        if self.servers is not None:
            await self.servers.start()
        self._conversation.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._conversation.close()
        await self.close()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The open agent's conversation (of runs without a `user_id`) in the OpenAI shapes.

        It is a plain list: clear it, append to it, or set another. The next run continues from what it holds then. Read it
        from the agent while a run is under way: it has the user's message, and every exchange that is finished.
        """
        return self._conversation.messages

    @messages.setter
    def messages(self, given: Iterable[Mapping[str, Any] | Message]) -> None:
        self._conversation.messages = given

    @property
    def available_tools(self) -> list[dict[str, Any]]:
        """The tools as the model is told of them."""
        listed = [tool for tool in self.tools.values() if optional(tool, ActionBase, "listed")]
        shown = [tool for tool in listed if tool.name not in self.tools.hidden]
        return [{"name": one.name, "description": one.description, "parameters": one.parameters} for one in shown]

    def process_single_turn_with_tools(self, messages: list[Any]) -> Run[Any]:
        """Ask the model once about these messages and run the tools that it calls: `await` it, or iterate its chunks.

        The reply and the tools' results are added to the list. The conversation stays as it is, unless the list is the agent's
        own `messages`. Raises `ConfigError` if the agent has a strategy of its own, which decides by itself what a turn is.
        """
        strategy = self.recipe.strategy
        if not isinstance(strategy, React):
            told = notice(
                "agent.single_turn",
                "a single turn needs the default strategy React, and this agent uses {kind}",
                kind=type(strategy).__name__,
            )
            raise ConfigError(told)
        settings = {name: getattr(strategy, name) for name in strategy.__match_args__}
        opener = self._opener(self.recipe.with_changes(strategy=OneTurn(**settings)))
        session = self._conversation.session if messages is self._conversation.messages else ""
        request = RunRequest(new_run_id(), _check_messages(messages), session=session, base="")

        def open_run(channel: Channel) -> AbstractAsyncContextManager[Scope]:
            run = self._open_run(opener, request, channel)
            return run if session else _extend_at_end(messages, run)

        return Run(request.run_id, open_run, self._view, self.journal)


@asynccontextmanager
async def _extend_at_end(messages: list[Any], opened: AbstractAsyncContextManager[Scope]) -> AsyncIterator[Scope]:
    async with opened as scope:
        try:
            yield scope
        finally:
            messages += [to_openai(message) for message in scope.state.turn[1:]]
