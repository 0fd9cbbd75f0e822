"""`Permit`: check permissions before every tool call and every handoff."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...core.demands import Refuse
from ...core.errors import ConfigError
from ...core.messages import DELEGATE, TRANSFER, ToolCall
from ...core.record import replace
from ...kernel.boundary import Border
from ...kernel.load import agents_of_turn, ancestors
from ...kernel.ports import Action, Policy
from ...kernel.threads import runs_on_loop
from ..money.budget import Verdict
from ..names import known_tools
from .rules import HAND_OVER, READ, USE, PermitRequest, PermitRules

if TYPE_CHECKING:
    from ...kernel.view import RunView

Roles = Mapping[str, Any] | Callable[[str], Iterable[str]]
_ANCESTORS = "permit_path"  # the custom fact with the agents of the runs above
_ARGUMENT = re.compile(r"\{(\w+)\}")


class _Judge(Protocol):
    """Decides over requests: rules, or Cedar policies."""

    uses_path: bool
    text: str

    def judge(self, request: PermitRequest) -> Verdict: ...
    def denied_tools(self) -> set[str]: ...


class RunCaller(NamedTuple):
    """The caller of a tool: the user of the run, the agent at work, and the agents that had the work before it."""

    user: str
    agent: str
    path: tuple[str, ...] | None


class RoleDirectory:
    """The roles that a server knows: `known` returns those of a user, or None if it does not know the user."""

    known: Callable[[str], Iterable[str] | None] | None = None


class Permit(Policy):
    """Allows only what a rule allows: tools, handoffs to agents, and data. Everything else is refused.

        Permit([{"role": "clerk", "tool": "pay", "where": {"yen": {"at_most": 10_000}}}], roles={"ann": ["clerk"]})

    A refused call is not run. The model receives the reason, which names the rule. In a child run, the call must be allowed
    for the child and for every agent above it.

    Args:
        rules: The rules: `PermitRule` objects, or mappings with the same keys.
        roles: The roles of users: a mapping from the user's id to a role or a list of roles, or a function that returns them.
            It is called for every check, so a change takes effect at once.
        resources: The data that calls read, by tool: `{"open_order": "order:{order_id}"}`. Such a call also needs a rule with
            `data`. The names in braces are arguments of the tool.
        cedar: A file with Cedar policies, instead of rules. It needs the extra `cedar`.
        entities: Entities for the Cedar policies: a list, or a file with JSON.

    Raises:
        ConfigError: If a rule is wrong, or neither or both of rules and cedar are given.
    """

    def __init__(
        self,
        rules: Iterable[Any] | None = None,
        *,
        roles: Roles | None = None,
        resources: Mapping[str, str] | None = None,
        cedar: str | Path | None = None,
        entities: Any = None,
    ) -> None:
        if (rules is None) == (cedar is None):
            raise ConfigError.of("permit.what", "a Permit needs either rules or a file with Cedar policies (cedar=…)")
        self._judge: _Judge
        if cedar is not None:
            from .cedar import CedarRules

            self._judge = CedarRules(Path(cedar), entities)
        else:
            self._judge = PermitRules(rules)  # type: ignore[arg-type]
        self._roles = _check_roles(roles)
        self._resources = _check_resources(resources)
        self._directory = RoleDirectory()
        self.about = replace(self.about, roles=self._directory)
        self._above: tuple[RunCaller, ...] = ()  # in a child run: the callers of the runs above
        self.checks_names = True

    @property
    def fingerprint(self) -> str:
        """Return a hash of the rules, the resources and the given roles. It changes with each of them."""
        roles = (
            sorted((user, sorted(_role_list(given))) for user, given in self._roles.items())
            if isinstance(self._roles, Mapping)
            else ""
        )
        told = repr((self._judge.text, sorted(self._resources.items()), roles))
        return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()

    def check_permissions(
        self, user_identity: Any, action: str, resource_id: str, *, arguments: Mapping[str, Any] | None = None
    ) -> Verdict:
        """Say whether something is permitted, without doing it. The verdict is true or false, and has a `reason`.

        Args:
            user_identity: The user's id, or a mapping with some of `user`, `roles`, `agent` and `path`.
            action: "use" for a tool, "hand_over" for an agent, or an action on data such as "read".
            resource_id: The name of the tool or of the agent, or the id of the data.
            arguments: The arguments of the tool. Without them, a rule with conditions allows nothing.
        """
        known = user_identity if isinstance(user_identity, Mapping) else {"user": user_identity}
        user, agent, path, roles = (known.get(key) for key in ("user", "agent", "path", "roles"))
        path = path.split("/") if isinstance(path, str) else path
        had = self._roles_of(str(user or "")) if roles is None else frozenset([roles] if isinstance(roles, str) else roles)
        verdict = Verdict(False)
        for one, resource in self._asks(resource_id, arguments or {}) if action == USE else [(action, resource_id)]:
            way = None if path is None else tuple(path)
            verdict = self._judge.judge(PermitRequest(str(user or ""), had, str(agent or ""), way, one, resource, arguments))
            if not verdict:
                break
        return verdict

    def check(self, tools: Mapping[str, Action]) -> None:
        if self.checks_names:
            known_tools("Permit", self._judge.denied_tools() | {*self._resources}, tools)

    async def demand(self, call: ToolCall, view: RunView) -> Refuse | None:
        await self._learn_path(view)
        verdict = self.verdict(call, view)
        return None if verdict else Refuse(verdict.reason)

    def for_child(self, view: RunView) -> Permit:
        """Return the permit as it holds for a child run: the child needs the permission of all agents above it, too."""
        child = object.__new__(type(self))
        child.__dict__ |= self.__dict__
        child._above, child.checks_names = (*self._above, self._caller(view.agent.name, view)), False
        return child

    def verdict(self, call: ToolCall, view: RunView) -> Verdict:
        """Decide over a call of a run, for its caller and for the callers of the runs above."""
        verdict = Verdict(False)
        args = call.args if isinstance(call.args, Mapping) else {}
        for user, agent, path in (*self._above, self._caller(_caller_name(call, view), view)):
            roles = self._roles_of(user)
            for action, resource in self._asks(call.name, args):
                verdict = self._judge.judge(PermitRequest(user, roles, agent, path, action, resource, args))
                if not verdict:
                    return verdict
        return verdict

    def _asks(self, tool: str, args: Mapping[str, Any]) -> list[tuple[str, str | None]]:
        """Return the actions of a call, each with its resource. None: it is not known which."""
        if tool in (TRANSFER, DELEGATE):
            agent = args.get("agent")
            return [(HAND_OVER, agent if isinstance(agent, str) and agent else None)]
        if tool not in self._resources:
            return [(USE, tool)]
        return [(USE, tool), (READ, _resource_id(self._resources[tool], args))]

    def _caller(self, agent: str, view: RunView) -> RunCaller:
        state, above = view.state, self._above[-1].path if self._above else ()
        if state.parent is not None and not self._above:
            known = state.custom.get(_ANCESTORS)
            above = tuple(known["value"]) if known and known.get("turn") == state.turns else None
        return RunCaller(state.user, agent, None if above is None else (*above, *agents_of_turn(state)))

    async def _learn_path(self, view: RunView) -> None:
        """Record which agents had the work in the runs above: a replay, or a check of answers, cannot read other runs."""
        if self._judge.uses_path and not self._above and view.state.parent is not None:
            await view.recall(_ANCESTORS, lambda: ancestors(view.journal, view.state), turn=True)

    def _roles_of(self, user: str) -> frozenset[str] | None:
        """Return the user's roles, or None if they are unknown.

        Under a server, they are the given ones and those that the server knows. A user whom neither knows has unknown roles.
        """
        if not user:
            return None
        with Border() as border:
            directory = self._directory.known
            known = None if directory is None else directory(user)
            if known is None and directory is not None and isinstance(self._roles, Mapping) and user not in self._roles:
                return None
            given: Any = self._roles(user) if callable(self._roles) else self._roles.get(user, ())
            listed = [*_role_list(given), *(known or ())]
            return frozenset(listed) if all(isinstance(role, str) for role in listed) else None
        getLogger("kaname").warning("the roles of a user could not be read: %s", border.failure and border.failure.kind)
        return None


def _role_list(given: Any) -> list[Any]:
    return [given] if isinstance(given, str) else [*given]


def _caller_name(call: ToolCall, view: RunView) -> str:
    root, name = view.root, view.state.callers.get(call.id) or view.state.agent
    return root.team[name].name if root.team and name in root.team else root.name


def _resource_id(template: str, args: Mapping[str, Any]) -> str | None:
    """Return the id of the data with a call's arguments in it, or None if one of them is missing or not a text or integer."""
    names = _ARGUMENT.findall(template)
    if any(type(args.get(name)) not in (str, int) for name in names):
        return None
    return _ARGUMENT.sub(lambda match: str(args[match[1]]), template)


def _check_roles(roles: Roles | None) -> Roles:
    if roles is None:
        return {}
    if callable(roles) and not runs_on_loop(roles):
        return roles
    if isinstance(roles, Mapping) and all(isinstance(one, str | list | tuple | set | frozenset) for one in roles.values()):
        return roles
    raise ConfigError.of(
        "permit.roles",
        "roles must be a mapping from users to lists of roles, or a plain function, not {it!r:.100}",
        it=roles,
    )


def _check_resources(resources: Mapping[str, str] | None) -> Mapping[str, str]:
    given = resources or {}
    if not isinstance(given, Mapping) or not all(isinstance(one, str) and one for one in given.values()):
        raise ConfigError.of("permit.resources", 'resources must be a mapping from tools to texts such as "order:{{order_id}}"')
    return dict(given)
