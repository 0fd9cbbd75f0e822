"""Hand a conversation over to another agent, or have it do a part of the work: two tools that an agent with a team has.

*Transfer*: the other agent goes on with the conversation, in the same run. *Delegate*: a child run, whose answer comes back as
the tool's result. Nobody gets the same work twice on one path, and no path is longer than `MAX_HANDOFF_DEPTH`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from inspect import isawaitable
from typing import Any, Protocol

from ...core.errors import ConfigError, ModelError
from ...core.messages import ToolResult
from ...core.notices import notice
from ...core.record import field, record
from ...core.state import State
from ...core.values import plain_text
from ...kernel.load import load
from ...kernel.ports import Recipe, ToolContext
from ..actions import Doing
from .roles import Role, check_roles, choose

MAX_HANDOFF_DEPTH = 5
TRANSFER, DELEGATE = "transfer_to_agent", "delegate_to_agent"
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
    """`members`: who can be given work. `transfer`, `delegate`: which of the two ways there are.

    `roles`: what members may do and are good at, by name; then work can be delegated without saying to whom.
    `on_handoff_return(name, result)`: called when a delegate has ended, well or not (with the error, if its model failed); what
    it returns, if anything, takes the place of the answer.
    """

    members: tuple[Any, ...]
    transfer: bool = True
    delegate: bool = True
    max_depth: int = MAX_HANDOFF_DEPTH
    roles: Mapping[str, Role] = field(factory=dict)
    on_handoff_return: Callable[[str, Any], Any] | None = None

    @property
    def by_name(self) -> dict[str, Any]:
        return {member.name: member for member in self.members}


@record
class Named:
    """Agents of a file, by their names. They are made when the team is joined, each once, because they may name each other."""

    names: tuple[str, ...]
    parts: Callable[[str], dict[str, Any]]  # the arguments of an agent, by its name
    made: dict[str, Any] = field(factory=dict)

    def members(self, owner: Any) -> list[Any]:
        self.made.setdefault(owner.name, owner)
        return [self.made.get(name) or self._member(name, type(owner)) for name in self.names]

    def _member(self, name: str, kind: Callable[..., Any]) -> Any:
        parts = self.parts(name)
        others = parts.pop("team")
        self.made[name] = member = kind(parts.pop("model"), parts.pop("tools"), **parts)
        if others:
            join(member, Named(others.names, self.parts, self.made))
        return member


def as_team(given: Team | Iterable[Any], owner: str) -> Team:
    if not isinstance(given, Team | Iterable):
        raise ConfigError(notice("team.not_a_list", "a team is a list of agents, not {given!r}", given=given))
    team = given if isinstance(given, Team) else Team(tuple(given))
    names = [getattr(member, "name", "") for member in team.members]
    for member, name in zip(team.members, names, strict=True):
        if not isinstance(getattr(member, "recipe", None), Recipe):
            raise ConfigError(notice("team.not_an_agent", "a team is a list of agents, and {member!r} is none", member=member))
        if name == owner or names.count(name) > 1:
            raise ConfigError(
                notice(
                    "team.name_twice",
                    "two agents of a team are called {name!r}: give each a name of its own, Agent(…, name=…)",
                    name=name,
                )
            )
    check_roles(team.roles, names)
    if not names or not (team.transfer or team.delegate) or team.max_depth < 1:
        raise ConfigError(notice("team.form", "a team has members, transfer or delegate (or both), and max_depth from 1 up"))
    return team


def join(agent: Member, given: Team | Named | Iterable[Any]) -> None:
    """Give an agent its team, and the tools to hand work to it."""
    agent.team = team = as_team(given.members(agent) if isinstance(given, Named) else given, agent.name)
    untyped = [one.name for one in team.members if getattr(one.recipe.strategy, "output", None) is None]
    if team.transfer and untyped and getattr(agent.recipe.strategy, "output", None) is not None:
        raise ConfigError(
            notice(
                "team.untyped",
                "{name} answers with a type, and {listed} would answer in its place without one: "
                "give them the same output=…, or Team(…, transfer=False)",
                name=agent.name,
                listed=", ".join(untyped),
            )
        )
    for handing in [*([Transfer(team)] if team.transfer else []), *([Delegate(team)] if team.delegate else [])]:
        agent.tools.register(handing)
    agent.recipe = agent.recipe.altered(team=Reachable(agent))


def check_policies(recipe: Recipe) -> None:
    """Do the policies name tools that there are? Those of the root hold for all to whom it hands over."""
    others = recipe.team.values()
    everything = {name: tool for one in [*others, recipe] for name, tool in one.tools.items()} if others else recipe.tools
    for policy in recipe.policies:
        policy.check(everything)
    for member in others:
        for policy in member.policies:
            policy.check(member.tools)


class Reachable(Mapping[str, Recipe]):
    """Everybody to whom a run can be handed over, also by those to whom it was: by name. Looked up when it is first needed,
    because agents of a file name each other."""

    def __init__(self, owner: Member) -> None:
        self._owner = owner

    @cached_property
    def _found(self) -> dict[str, Recipe]:
        found: dict[str, Recipe] = {self._owner.name: self._owner.recipe}
        waiting, seen = [self._owner], {id(self._owner)}
        while waiting:
            team = waiting.pop().team
            for member in team.members if team is not None and team.transfer else ():
                if id(member) not in seen:
                    if member.name in found:
                        raise ConfigError(
                            notice(
                                "team.name_twice",
                                "two agents of a team are called {name!r}: give each a name of its own, Agent(…, name=…)",
                                name=member.name,
                            )
                        )
                    found[member.name] = member.recipe
                    seen.add(id(member))
                    waiting.append(member)
        return {name: recipe for name, recipe in found.items() if name != self._owner.name}

    def __getitem__(self, name: str) -> Recipe:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class _Handing(Doing):
    """What both ways have in common."""

    listed = True
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

    def _refusal(self, to: str, path: list[str]) -> ToolResult | None:
        if to in path:
            told = " → ".join([*path, to])
            refused = notice(
                "team.had_it", "not handed over: {to} has had this already ({told}); answer it yourself", to=to, told=told
            )
            return ToolResult(error=refused, not_run=True)
        if len(path) > self.team.max_depth:
            told = " → ".join(path)
            times = len(path) - 1
            refused = notice(
                "team.too_deep",
                "not handed over: it has been passed on {times} times ({told}), which is the limit",
                times=times,
                told=told,
            )
            return ToolResult(error=refused, not_run=True)
        return None


class Transfer(_Handing):
    _called = TRANSFER
    _says = "Let another agent go on with this conversation, if it is the one for it. You are not asked again."
    _wanted, _about = "reason", "why this agent, in a few words"

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        to, path = prepared["agent"], _transfers(context.scope.state)
        if (refused := self._refusal(to, path)) is not None:
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

    async def _chosen(self, prepared: dict[str, Any], context: ToolContext) -> tuple[str, str]:
        """Who gets it, or why nobody does. What roles have decided is recorded, with the reason."""
        to, needs, roles = prepared.get("agent", ""), prepared.get("needs", ""), self.team.roles
        if to and needs and needs not in roles.get(to, Role()).may:
            return "", f"{to} may not {needs}"
        if to:
            return to, ""
        choice = choose(prepared["task"], roles, needs)
        await context.scope.view.note("assigned", {"to": choice.name, "reason": choice.reason, "call": context.call_id})
        return choice.name, choice.reason

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        to, reason = await self._chosen(prepared, context)
        if not to:
            return ToolResult(error=notice("team.not_delegated", "not delegated: {reason}", reason=reason), not_run=True)
        path = [*await _ancestors(context), *_transfers(context.scope.state)]
        if (refused := self._refusal(to, path)) is not None:
            return refused
        try:
            result = await context.run_child(self.team.by_name[to], prepared["task"])
        except ModelError as problem:  # the child has ended with it
            instead = await self._returned(to, problem)
            failed = notice("team.failed", "{to} failed: {problem}", to=to, problem=problem.public)
            return ToolResult(error=failed) if instead is None else ToolResult(instead)
        if (instead := await self._returned(to, result)) is not None:
            return ToolResult(instead)
        if result.stop.kind in ("completed", "degraded"):
            return ToolResult(result.recorded)
        unfinished = notice("team.unfinished", "{to} did not finish ({ended})", to=to, ended=result.stop.told)
        had = notice("team.it_had", "; it had: {output}", output=plain_text(result.recorded))
        return ToolResult(error=unfinished + had if result.recorded else unfinished)

    async def _returned(self, name: str, outcome: Any) -> Any:
        if self.team.on_handoff_return is None:
            return None
        said = self.team.on_handoff_return(name, outcome)
        return await said if isawaitable(said) else said


def _purpose(agent: Any) -> str:
    """The first line of its instructions."""
    told = agent.recipe.instructions.strip().split("\n")[0]
    return told[:_LONGEST] or "(it does not say what it is for)"


def _transfers(state: State) -> list[str]:
    """Who has had this turn of the conversation, up to who has it now."""
    handed = [(call_id, result.transfer) for call_id, result in state.results.items() if result.transfer]
    first = state.callers.get(handed[0][0], state.agent) if handed else state.agent
    return [first, *[to for _, to in handed]]


async def _ancestors(context: ToolContext) -> list[str]:
    """Who has had the work in the runs that this one is a child of."""
    path, state = list[str](), context.scope.state
    while state.parent is not None:
        state = await load(context.scope.journal, state.parent[0])
        path = [*_transfers(state), *path]
    return path
