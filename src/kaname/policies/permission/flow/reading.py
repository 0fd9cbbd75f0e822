"""Look through what a run has read so far: text from outside, and trusted records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ....core.messages import Message, Provided, Text, ToolCall, ToolResult
from ....core.people.labels import ParameterRole, ToolLabels, read_labels
from ....core.record import replace
from ....core.values import plain_text
from ....kernel.bases import options_of
from ...content.guardrails.folded import fold_text
from .judge import FlowJudge, Mark, targets_of
from .records import TrustedRecords
from .words import UserWords, stands_in

if TYPE_CHECKING:
    from ....kernel.ports import Action
    from ....kernel.view import RunView

_PROVIDED = ("citations", "results", "content", "action", "queries")  # keys of a provider's part that brings text


class Labelled:
    """The labels of an agent's tools: those of the policy, then those of the tool, then the defaults."""

    def __init__(self, given: Mapping[str, ToolLabels]) -> None:
        self.given = given

    def of(self, name: str, tool: Action | None) -> ToolLabels:
        """Return the labels of a tool. What only a server says of its tool never makes kaname less careful.

        A tool that its server calls read-only changes nothing, but its arguments reach the server and may go further, as an
        address does. So all its parameters are checked until the user labels the tool.
        """
        if (given := self.given.get(name)) is not None:
            return given
        own = options_of(tool).labels
        labels = (own if isinstance(own, ToolLabels) else read_labels(own, name)) if own is not None else ToolLabels()
        if tool is not None and labels.role != "acts" and self.is_hinted(name, tool):
            known = tool.parameters.get("properties") or {}
            roles: dict[str, ParameterRole] = {one: "bounded" if _is_choice(how) else "target" for one, how in known.items()}
            return replace(labels, role="reads", parameters=roles)
        return labels

    def is_hinted(self, name: str, tool: Action | None) -> bool:
        """Return True for a tool that only its server declares to read."""
        served = tool is not None and name not in self.given and options_of(tool).server[0]
        return bool(served) and tool is not None and tool.effect == "pure"

    def judged_arguments(self, call: ToolCall, tool: Action | None) -> Mapping[str, Any]:
        """Return the arguments that are checked if a tool reads: those with a role, or all of a hinted tool."""
        args = call.args if isinstance(call.args, Mapping) else {"": call.args}
        if self.is_hinted(call.name, tool):  # a server's schema can leave names open
            return args
        roles = self.of(call.name, tool).parameters or {}
        return {name: value for name, value in args.items() if name in roles}

    def role(self, name: str, tool: Action | None) -> str:
        """Return whether a tool reads, acts, or changes only what is the user's own."""
        pure = tool is not None and tool.effect == "pure"
        return self.of(name, tool).role or ("reads" if pure else "acts")

    def is_trusted(self, name: str, tool: Action | None) -> bool:
        return self.of(name, tool).result == "trusted"

    def concern(self, agents: Iterable[Mapping[str, Action]], outside: bool = False) -> bool:
        """Return True if some tool of these agents is declared to return other people's text, and some tool acts.

        The descriptions of an MCP server's tools are such text, too, for all tools that act but the server's own: what they ask
        for there, the server could do itself. `outside`: the run has read such a text already, in its input.
        """
        tools = [one for tools in agents for one in tools.items()]
        if outside or any(self.of(name, tool).reads_others for name, tool in tools):
            return any(self.role(name, tool) == "acts" or self.is_hinted(name, tool) for name, tool in tools)
        servers = {name: options_of(tool).server[0] for name, tool in tools}
        foreign = {server for name, server in servers.items() if server and name not in self.given}
        return any(foreign - {servers[name]} for name, tool in tools if self.role(name, tool) == "acts")


def _is_choice(schema: Any) -> bool:
    """Return True for a parameter that takes a truth value or one of a few choices: it can carry nothing away."""
    return isinstance(schema, Mapping) and (schema.get("type") == "boolean" or len(schema.get("enum") or ()) in range(1, 33))


def source_of_taint(message: Message) -> str:
    """Return the source of text from outside in a reply or a user's message: a provider's own tool, or a file; "" if none."""
    for part in message.parts:
        if type(part) is Provided and any(part.data.get(key) for key in _PROVIDED):
            return part.provider
        if type(part).__name__ == "Media" and message.role == "user":
            return getattr(part, "name", "") or "file"
        if type(part) is Text and part.source:
            return part.source
    return ""


class ReadSoFar:
    """The results of a run, by call, in the order in which they were read. Built when a call has to be judged."""

    def __init__(self, view: RunView, labelled: Labelled) -> None:
        self._view, self._labelled = view, labelled
        self._calls: dict[str, ToolCall] = {}
        self._results: dict[str, ToolResult] = {}
        for message in view.state.messages:
            for part in message.parts:
                if type(part) is ToolCall:
                    self._calls[part.id] = part
                elif type(part) is ToolResult and not part.waiting:
                    self._results[part.call_id] = part
        self._calls |= {call_id: one.call for call_id, one in view.state.started.items()}
        self._results |= {key: one for key, one in view.state.results.items() if not one.waiting}
        self._texts: list[tuple[str, str]] | None = None

    def judge(self, words: UserWords) -> FlowJudge:
        records, private = TrustedRecords(words), False
        for call_id, result in self._results.items():
            labels = self._labelled.of(result.tool or result.name, self._tool(result.tool or result.name))
            private = private or labels.private
            call = self._calls.get(call_id)
            if not result.is_error and not result.source and call is not None:
                records.learn(call.args, result.output, labels)
        return FlowJudge(words, records, self.find_source, private, self._has_run)

    def find_source(self, text: str) -> str:
        """Return the tool whose untrusted result holds a text, the latest first."""
        if self._texts is None:
            told = [(one.name, one.error or plain_text(one.output)) for one in reversed(self._results.values())]
            state = self._view.state
            retold = [one for one in state.messages if one.role == "assistant" and one.is_retold]
            parts = [part for message in (*state.said, *retold) for part in message.parts if type(part) is Text]
            told += [(part.source, part.text) for part in parts if part.source]
            self._texts = [(name, fold_text(text).casefold()) for name, text in told]
        sought = " ".join(fold_text(text).casefold().split())
        return next((name for name, read in self._texts if stands_in(sought, " ".join(read.split()))), "")

    def _has_run(self, tool: str, targets: Any) -> bool:
        """Return True if a tool has run with these targets, in this conversation."""
        results = [(call_id, one) for call_id, one in self._results.items() if not one.source]  # a caller's word is no proof
        ran = [call_id for call_id, result in results if result.name == tool and not result.not_run]
        ran += [call_id for call_id, one in self._view.state.started.items() if one.call.name == tool]
        return any(_same_targets(self._calls[call_id], targets) for call_id in ran if call_id in self._calls)

    def _tool(self, name: str) -> Action | None:
        root = self._view.root
        for agent in (self._view.agent, root, *root.team.values()):
            if name in agent.tools:
                return agent.tools[name]
        return None


def _same_targets(call: ToolCall, targets: Any) -> bool:
    args = call.args if isinstance(call.args, Mapping) else {}
    names = {name for name, _ in targets}
    marks = tuple([Mark(name, value, "target", "user") for name, value in args.items() if name in names])
    return bool(targets_of(marks) == targets)
