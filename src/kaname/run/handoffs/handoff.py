"""Hand a conversation over to another agent, or have it do a part of the work: two tools that an agent with a team has.

*Transfer*: the other agent goes on with the conversation, in the same run. *Delegate*: a child run, whose answer comes back as
the tool's result. Nobody gets the same work twice on one path, and no path is longer than `MAX_HANDOFF_DEPTH`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from inspect import isawaitable
from itertools import pairwise
from logging import getLogger
from typing import Any, Protocol

from ...core.errors import ConfigError, ModelError
from ...core.events import BACKGROUND
from ...core.messages import DELEGATE, TRANSFER, ToolResult
from ...core.notices import notice
from ...core.record import field, record, replace
from ...core.state import State
from ...core.values import plain_text
from ...kernel.bases import strategy_info
from ...kernel.boundary import Failure, attempt
from ...kernel.chain import policies_with
from ...kernel.load import agents_of_turn, ancestors
from ...kernel.ports import Policy, Recipe, ToolContext
from ...kernel.scope import Scope
from ...tools.definition import Doing
from ..recipe import with_flow
from .roles import Role, check_roles, choose

MAX_HANDOFF_DEPTH = 5
REFUSED = "HandoffRefused"  # the `type` of the `error` chunk
TASKS = "tasks"  # the tool that lists, collects and stops work in the background
_BACKGROUND = "true to go on at once; you get a message when it has ended"
_LONGEST = 200  # characters of what an agent is for


class Member(Protocol):
    """An agent, as far as a team needs it."""

    recipe: Recipe
    team: Team | None
    servers: Any

    @property
    def name(self) -> str: ...
    @property
    def tools(self) -> Any: ...


@record
class Team:
    """The members of a team, and the ways in which an agent gives them work.

    Args:
        members: The agents that can be given work.
        transfer: True if a member can take over the conversation.
        delegate: True if a member can do a part of the work.
        max_depth: The maximum number of transfers and delegations in a row (default: 5).
        roles: The rights and skills of members, by name. With them, work can be delegated without naming a member.
        on_handoff_return: Called with the name of the member and its result, or the error of its model, when a delegated task
            ends. A value that is not None replaces the answer. It is also called at the end of a transferred run, whose answer
            is final: its return value is not used then.
        background: True if the model can delegate work that continues in the background. It gets the tool `tasks` for it.
    """

    members: tuple[Any, ...]
    transfer: bool = True
    delegate: bool = True
    max_depth: int = MAX_HANDOFF_DEPTH
    roles: Mapping[str, Role] = field(factory=dict)
    on_handoff_return: Callable[[str, Any], Any] | None = None
    background: bool = False

    @property
    def by_name(self) -> dict[str, Any]:
        return {member.name: member for member in self.members}


@record
class Named:
    """Agents of a file, by their names. They are made when the team is joined, each once, because they may name each other."""

    names: tuple[str, ...]
    parts: Callable[[str], dict[str, Any]]  # the arguments of an agent, by its name
    background: bool = False
    made: dict[str, Any] = field(factory=dict)

    def members(self, owner: Any) -> list[Any]:
        self.made.setdefault(owner.name, owner)
        return [self.made.get(name) or self._member(name, type(owner)) for name in self.names]

    def _member(self, name: str, kind: Callable[..., Any]) -> Any:
        parts = self.parts(name)
        others = parts.pop("team")
        self.made[name] = member = kind(parts.pop("model"), parts.pop("tools"), **parts)
        if others:
            join(member, Named(others.names, self.parts, others.background, self.made))
        return member


def as_team(given: Team | Iterable[Any], owner: str) -> Team:
    if not isinstance(given, Team | Iterable):
        raise ConfigError.of("team.not_a_list", "a team must be a list of agents, not {given!r}", given=given)
    team = given if isinstance(given, Team) else Team(tuple(given))
    names = [getattr(member, "name", "") for member in team.members]
    for member, name in zip(team.members, names, strict=True):
        if not isinstance(getattr(member, "recipe", None), Recipe):
            raise ConfigError.of(
                "team.not_an_agent", "a team must be a list of agents, and {member!r} is not an agent", member=member
            )
        if name == owner or names.count(name) > 1:
            raise ConfigError.of(
                "team.name_twice",
                "two agents of a team are named {name!r}: give each a different name, Agent(…, name=…)",
                name=name,
            )
    check_roles(team.roles, names)
    if not names or not (team.transfer or team.delegate) or team.max_depth < 1:
        raise ConfigError.of("team.form", "a team needs members, transfer or delegate (or both), and a max_depth of at least 1")
    return team


def join(agent: Member, given: Team | Named | Iterable[Any]) -> None:
    """Give an agent its team, and the tools to hand work to it."""
    if isinstance(given, Named):
        given = Team(tuple(given.members(agent)), background=given.background)
    agent.team = team = as_team(given, agent.name)
    if team.transfer:
        _check_outputs(agent, team)
    for handing in [*([Transfer(team)] if team.transfer else []), *([Delegate(team)] if team.delegate else [])]:
        agent.tools.register(handing)
    if team.delegate and team.background and TASKS not in agent.tools:
        from ..tasks import TaskList

        agent.tools.register(TaskList())
    agent.recipe = agent.recipe.with_changes(team=Reachable(agent))
    if any(one.about.flow not in ("", "off") for member in team.members for one in member.recipe.policies):
        agent.recipe = with_flow(agent.recipe)  # what members read must not act through the head of the team either


def _check_outputs(agent: Member, team: Team) -> None:
    """Raise `ConfigError` if an agent has a typed output, and a member could answer in its place without one."""
    untyped = [one.name for one in team.members if strategy_info(one.recipe.strategy).output is None]
    if untyped and strategy_info(agent.recipe.strategy).output is not None:
        raise ConfigError.of(
            "team.untyped",
            "{name} returns a typed output, but {listed} could answer in its place without one: give them the same "
            "output=…, or use Team(…, transfer=False)",
            name=agent.name,
            listed=", ".join(untyped),
        )


def check_policies(recipe: Recipe) -> None:
    """Check that the policies name tools that exist. Those of the root hold for all to whom it hands over."""
    others = recipe.team.values()
    everything = {name: tool for one in [*others, recipe] for name, tool in one.tools.items()} if others else recipe.tools
    for policy in _checking(recipe):
        policy.check(everything)
    for member in others:
        for policy in _checking(member):
            policy.check(member.tools)


def _checking(recipe: Recipe) -> tuple[Policy, ...]:
    """Return the policies that check which tools there are."""
    return recipe.memo.kept("check", recipe.policies, lambda: policies_with(recipe.policies, "check"))


class Reachable(Mapping[str, Recipe]):
    """Everybody to whom a run can be handed over, also by those to whom it was: by name. Looked up when it is first needed,
    because agents of a file name each other."""

    def __init__(self, owner: Member) -> None:
        self._owner = owner

    @cached_property
    def _members(self) -> dict[str, Member]:
        found: dict[str, Member] = {self._owner.name: self._owner}
        waiting, seen = [self._owner], {id(self._owner)}
        while waiting:
            team = waiting.pop().team
            for member in team.members if team is not None and team.transfer else ():
                if id(member) not in seen:
                    if member.name in found:
                        raise ConfigError.of(
                            "team.name_twice",
                            "two agents of a team are named {name!r}: give each a different name, Agent(…, name=…)",
                            name=member.name,
                        )
                    found[member.name] = member
                    seen.add(id(member))
                    waiting.append(member)
        return {name: member for name, member in found.items() if name != self._owner.name}

    def team(self, name: str) -> Team | None:
        """Return the team of the owner, or of one of those to whom the run can be handed over."""
        return (self._owner if name == self._owner.name else self._members[name]).team

    def __getitem__(self, name: str) -> Recipe:
        return self._members[name].recipe

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


class _Handing(Doing):
    """The common part of delegating and transferring."""

    options = replace(Doing.options, listed=True)
    _called, _says, _wanted, _about = "", "", "", ""

    def __init__(self, team: Team) -> None:
        super().__init__(self._called)
        self.team = team

        listed = "\n".join([f"- {name}: {_purpose(one)}" for name, one in team.by_name.items()])
        self.description = f"{self._says} Agents:\n{listed}"
        self.parameters = {
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": list(team.by_name)},
                self._wanted: {"type": "string", "description": self._about},
            },
            "required": ["agent", self._wanted],
            "additionalProperties": False,
        }

    async def _refusal(self, to: str, path: list[str], context: ToolContext) -> ToolResult | None:
        """Return the refusal for the model, if there is one. The caller is told by an `error` chunk; the run goes on."""
        why = refused_handoff(to, path, self.team.max_depth)
        if not why:
            return None
        about = {"message": why, "type": REFUSED, "tool_call_id": context.call_id}
        if context.view is not None:
            await context.view.report_error(about)
        return ToolResult(error=why, not_run=True)


def refused_handoff(to: str, path: Sequence[str], max_depth: int) -> str:
    """Return the reason for which work that has gone along `path` is not handed over to that agent; "" if it can be."""
    if to in path:
        told = " → ".join([*path, to])
        return notice(
            "team.had_it", "not handed over: {to} has already worked on this ({told}); answer it yourself", to=to, told=told
        )
    if len(path) > max_depth:
        return notice(
            "team.too_deep",
            "not handed over: this has already been handed over {times} times ({told}), which is the limit",
            times=len(path) - 1,
            told=" → ".join(path),
        )
    return ""


class Transfer(_Handing):
    _called = TRANSFER
    _says = "Let another agent go on with this conversation, if it is the one for it. You are not asked again."
    _wanted, _about = "reason", "why this agent, in a few words"

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        to, path = prepared["agent"], agents_of_turn(context.state)
        if (refused := await self._refusal(to, path, context)) is not None:
            return refused
        if (servers := self.team.by_name[to].servers) is not None:
            await servers.start()
        return ToolResult(f"{to} goes on: {prepared['reason']}", transfer=to)


class Delegate(_Handing):
    _called = DELEGATE
    _says = "Have another agent do a part of the work, and get its answer. It sees only what you write here."
    _wanted, _about = "task", "the question or the work, with all names and numbers that it needs"

    def __init__(self, team: Team) -> None:
        super().__init__(team)
        if team.roles:
            rights = list(dict.fromkeys([right for role in team.roles.values() for right in role.may]))
            told = "what the work needs somebody to be allowed to do" if rights else ""
            more = {"needs": {"type": "string", "enum": rights, "description": told}} if rights else {}
            self.parameters = {
                **self.parameters,
                "properties": {**self.parameters["properties"], **more},
                "required": [self._wanted],
            }
            self.description += "\nIf you leave `agent` out, roles decide who gets it."
        if team.background:
            more = {"background": {"type": "boolean", "description": _BACKGROUND}}
            self.parameters = {**self.parameters, "properties": {**self.parameters["properties"], **more}}

    async def _choose(self, prepared: dict[str, Any], context: ToolContext) -> tuple[str, str]:
        """Return the agent for the work, or the reason why there is none. A decision by roles is recorded with its reason."""
        to, needs, roles = prepared.get("agent", ""), prepared.get("needs", ""), self.team.roles
        if to and needs and needs not in roles.get(to, Role()).may:
            return "", f"{to} may not {needs}"
        if to:
            return to, ""
        choice = choose(prepared["task"], roles, needs)
        await context.note("assigned", {"to": choice.name, "reason": choice.reason, "call": context.call_id})
        return choice.name, choice.reason

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        to, reason = await self._choose(prepared, context)
        if not to:
            return ToolResult(error=notice("team.not_delegated", "not delegated: {reason}", reason=reason), not_run=True)
        path = [*await ancestors(context.journal, context.state), *agents_of_turn(context.state)]
        if (refused := await self._refusal(to, path, context)) is not None:
            return refused
        if prepared.get("background"):
            from ..tasks import start_task

            return await start_task(self.name, self.task_agent(to), prepared["task"], context)
        try:
            result = await context.run_child(self.team.by_name[to], prepared["task"])
        except ModelError as problem:  # the child has ended with it
            instead = await call_back(self.team, to, problem)
            failed = notice("team.failed", "{to} failed: {problem}", to=to, problem=problem.public)
            return ToolResult(error=failed) if instead is None else ToolResult(instead)
        if (instead := await call_back(self.team, to, result)) is not None:
            return ToolResult(instead)
        if result.stop.kind in ("completed", "degraded"):
            return ToolResult(result.recorded)
        unfinished = notice("team.unfinished", "{to} did not finish ({ended})", to=to, ended=result.stop.summary)
        had = notice("team.it_had", "; its result so far: {output}", output=plain_text(result.recorded))
        return ToolResult(error=unfinished + had if result.recorded else unfinished)

    def task_agent(self, name: str) -> Any:
        return self.team.by_name[name]


async def call_back(team: Team, name: str, outcome: Any) -> Any:
    """Call `on_handoff_return`, and return what it returns."""
    said = None if team.on_handoff_return is None else team.on_handoff_return(name, outcome)
    return await said if isawaitable(said) else said


async def hand_back(
    scope: Scope,
    view: Callable[[str, State], Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: object,
) -> None:
    """When a run is over: stop its work in the background if it was stopped, and call `on_handoff_return` for its transfers.

    The callbacks get the result or the error, the last transfer first. An exception of a callback is logged: the run is over.
    """
    state, reachable = scope.state, scope.root.team
    if state.stop is None:
        return
    if state.stop.kind == "cancelled" and any(key.startswith(BACKGROUND) for key in state.custom):
        from ..tasks import stop_tasks

        await stop_tasks(scope)
    if not isinstance(reachable, Reachable) or isinstance(error, asyncio.CancelledError):
        return
    for giver, taker in reversed([*pairwise(agents_of_turn(state))]):
        team = reachable.team(giver)
        if team is not None and team.on_handoff_return is not None:
            outcome = view(scope.run_id, state) if error is None else error
            said = await attempt(call_back, team, taker, outcome, passing=())
            if isinstance(said, Failure):
                getLogger("kaname").warning("on_handoff_return after run %s: %s", scope.run_id, said)


def _purpose(agent: Any) -> str:
    """The first line of its instructions."""
    told = agent.recipe.instructions.strip().split("\n")[0]
    return told[:_LONGEST] or "(it does not say what it is for)"
