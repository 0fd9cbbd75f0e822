"""`Flow`: text from outside cannot make the agent act."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ....core.demands import Ask, Wait
from ....core.errors import ConfigError
from ....core.messages import ModelReply, ModelRequest, ToolCall, ToolResult, hold_outside_text
from ....core.notices import Notice, join_notices, notice
from ....core.people.labels import FLOW, read_labels
from ....core.people.visible import visible_line
from ....core.record import replace
from ....kernel.bases import StrategyBase, optional, options_of
from ....kernel.door import refused_result
from ....kernel.ports import Action, ModelHandler, Policy, Recipe, ToolHandler
from ...names import known_tools
from .judge import FlowVerdict
from .outbox import RULE, Outbox, answer_of, describe_value, hold, outbox_of, release
from .reading import Labelled, ReadSoFar, source_of_taint
from .words import UserWords

if TYPE_CHECKING:
    from ....kernel.view import RunView

Mode = Literal["off", "everything", "strict"]
MODES: tuple[Mode, ...] = ("off", "everything", "strict")


class Flow(Policy):
    """Holds calls back that text from outside may have caused. The user is asked about all of them at the end, once.

        Agent(model, tools=[read_mail, send_mail], policies=[Flow("strict")])

    After the agent has read something that other people can write, a call of a tool that acts runs at once only if the user
    asked for that tool and named its values. Any other call waits: the model is told so and goes on. What the user allows is
    then run, in order, exactly as it was shown.

    Args:
        mode: "strict", or "everything" to hold back every such call, or "off".
        labels: The labels of tools that are not your own, by name: `ToolLabels`, or mappings with the same keys.
        words: A text that counts as the user's words, such as a standing order.

    Raises:
        ConfigError: The mode is unknown, or a label is wrong.
    """

    def __init__(self, mode: Mode = "strict", *, labels: Mapping[str, Any] | None = None, words: str = "") -> None:
        if mode not in MODES:
            raise ConfigError.of("flow.mode", "the mode of Flow must be off, everything or strict, not {mode!r}", mode=mode)
        if not isinstance(labels, Mapping | None):
            raise ConfigError.of("flow.labels", "labels must be a mapping from tools to labels, not {it!r}", it=labels)
        self.mode: Mode = mode
        self.about = replace(self.about, flow=mode)
        self.labelled = Labelled({name: read_labels(one, name) for name, one in (labels or {}).items()})
        self._words = (words,) if words else ()
        self._inherited: tuple[str, ...] | None = None  # in a child run: the words of the user who started the first run
        self._tainted_above = False

    def check(self, tools: Mapping[str, Action]) -> None:
        if self._inherited is None:
            known_tools("Flow", self.labelled.given, tools)

    def for_child(self, view: RunView) -> Flow | None:
        """Return the policy for a child run. What its parent tells it are not the user's words."""
        if self._is_idle(view):
            return None
        child = object.__new__(type(self))
        child.__dict__ |= self.__dict__
        child._inherited = tuple(self._all_words(view))
        child._tainted_above = self._is_tainted(view)
        return child

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        if self._is_idle(view):
            return await next(request)
        if FLOW not in view.state.custom and (source := self._source_in(request, view)):
            await self._note_taint(source, view)
        reply = await next(request)
        if source := source_of_taint(reply.message):
            await self._note_taint(source, view)
        box = outbox_of(view)
        unasked = box.reply in (0, view.state.replied + 1)  # the same number: a crash came before the reply was recorded
        if unasked and box.waiting and not reply.message.calls and not reply.problem:
            if not request.tools:
                await self._warn_of_lost(box, view)
                return reply
            calls = await release(len(reply.message.parts), view)
            message = replace(reply.message, parts=(*reply.message.parts, *calls))
            return replace(reply, message=message, stop_reason="tool_use")
        return reply

    async def demand(self, call: ToolCall, view: RunView) -> Ask | Wait | None:
        if self._is_idle(view) or not self._is_tainted(view) or self._came_before(call, view):
            return None
        box, sent = outbox_of(view), view.as_sent(call)
        if (place := box.place(sent)) is not None and place + 1 in answer_of(box, view).chosen:
            return None
        tool = view.tools(call).get(call.name, None)
        verdict = self._judge(call, tool, view)
        if verdict is None or not verdict.waits:
            return None
        text = notice(
            "flow.ask_call", "The agent has read text from outside and wants to run {name}:", name=visible_line(call.name)
        )
        reason = join_notices("\n", (text, self.describe(call, view)))
        if self._role(call, tool) == "reads":
            return Ask(RULE, reason)
        return Wait(RULE, reason, lambda: self._hold(call, sent, verdict, view))

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        if self._is_idle(view):
            return await next(call)
        box = outbox_of(view)
        if (place := box.place(view.as_sent(call))) is not None:
            return await self._run_if_allowed(place, box, call, next, view)
        return await self._run(call, next, view)

    async def _run(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        """Run a call, and note before its result is recorded whether other people may have written it."""
        result = await next(call)
        ran = result.tool or call.name
        brought = result.is_error or result.untrusted
        clean = self.labelled.is_trusted(ran, view.tools(call).get(ran, None)) and not brought
        if not clean and _says_something(result) and not result.transfer:
            await self._note_taint(ran, view)
        return result

    async def _hold(self, call: ToolCall, sent: ToolCall, verdict: FlowVerdict, view: RunView) -> ToolResult:
        if told := await hold(call, sent, verdict, view):
            return ToolResult(told, waiting=True)
        again = any(one.is_same(sent) for one in outbox_of(view).waiting)
        why = (
            notice("flow.waits_already", "this call waits for the user already; do not repeat it")
            if again
            else notice("flow.full", "not run: too many calls wait for the user. Finish, so that the user can be asked.")
        )
        return ToolResult(error=why, not_run=True, retryable=False)

    async def _run_if_allowed(self, place: int, box: Outbox, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        """Run a call that the user was shown, after those before it in the list."""
        said = answer_of(box, view)
        if place + 1 not in said.chosen:
            return refused_result(said.reason)
        turns: dict[int, asyncio.Event] = view.scratch.setdefault((FLOW, box.key), {})
        before, mine = [turn for number, turn in turns.items() if number < place], asyncio.Event()
        turns[place] = mine
        try:
            for turn in before:
                await turn.wait()
            return await self._run(call, next, view)
        finally:
            mine.set()

    async def _warn_of_lost(self, box: Outbox, view: RunView) -> None:
        """Say that calls in the outbox are not made, because the run ends at a limit."""
        names = ", ".join([one.name for one in box.waiting])
        text = notice("flow.lost", "not made, because a limit was reached before you could be asked: {names}", names=names)
        await view.warn(FLOW, text)

    # What was read

    def _is_idle(self, view: RunView) -> bool:
        """Return True if the policy does nothing: it is off, a parent judges this run, or it is a default that does not
        concern these tools."""
        if self.mode == "off":
            return True
        if self._inherited is not None:
            return False
        agents = (view.root, *view.root.team.values())
        judged = sum([len(agent.tools) for agent in agents]), len(view.state.said), view.agent.name
        known = view.scratch.get(self)
        if known is None or known[0] != judged:  # servers may add tools, and other people may say something
            known = view.scratch[self] = judged, self._gives_way(view), self._concerns(agents, view)
        return bool(known[1]) or not (known[2] or FLOW in view.state.custom)

    def _gives_way(self, view: RunView) -> bool:
        """Return True if another policy judges this run: that of a parent, or one of the user's in place of the default."""
        others = [one for one in view.policies() if isinstance(one, Flow) and one is not self]
        above = any(one._inherited is not None for one in others)
        return above or (self.about.is_default and any(not one.about.is_default for one in others))

    def _concerns(self, agents: Sequence[Recipe], view: RunView) -> bool:
        """Return True if the user has chosen this policy, or if it is a default and concerns the tools of these agents."""
        state = view.state
        outside = hold_outside_text(state.said, state.messages)
        return not self.about.is_default or self.labelled.concern([agent.tools for agent in agents], outside)

    def _is_tainted(self, view: RunView) -> bool:
        alone = self._inherited is None and view.state.parent is not None  # what its parent has read is unknown
        return FLOW in view.state.custom or self._tainted_above or alone

    def _came_before(self, call: ToolCall, view: RunView) -> bool:
        """Return True for a call that the model made before it could read any text from outside: with the call that brought it.

        Whether such calls wait does not depend on which of them ends first."""
        noted = view.state.custom.get(FLOW)
        if noted is None or self._inherited is not None or view.state.parent is not None:
            return False
        return call.id in view.state.open and noted.get("reply", 0) >= view.state.replied

    async def _note_taint(self, source: str, view: RunView) -> None:
        """Record that text from outside was read. It holds for the rest of the conversation."""
        if FLOW not in view.state.custom:
            if self.about.is_default and self._inherited is None:
                text = notice(
                    "flow.on",
                    "this agent reads text from outside and can act, so calls that you did not ask for wait for your answer; "
                    'Flow("off") switches this off',
                )
                await view.warn(FLOW, text)
            await view.note(FLOW, {"source": source, "reply": view.state.replied}, shown=False)

    def _source_in(self, request: ModelRequest, view: RunView) -> str:
        """Return the source of text from outside that came without a tool call of this run; "" if there is no such text.

        It may be in files of the user, memories, earlier conversations, or what MCP servers say of their tools.
        """
        state, seen = view.state, view.scratch.get(FLOW, 0)
        view.scratch[FLOW] = len(state.messages)
        for message in state.messages[seen:]:
            if source := source_of_taint(message) or self._brought_by(message, view):
                return source
        if view.agent.context:
            known = {id(message) for message in state.history}  # a result that is only shortened was judged when it came
            if any(message.role not in ("system", "tool") and id(message) not in known for message in request.messages):
                return "context"
        tools = {} if seen else view.agent.tools
        served = {name for name, tool in tools.items() if options_of(tool).server[0]}
        return "mcp" if served - self.labelled.given.keys() else ""  # a server writes the descriptions of its tools

    def _brought_by(self, message: Any, view: RunView) -> str:
        """Return the tool whose result of an earlier turn may be somebody else's text."""
        for part in message.parts:
            if type(part) is not ToolResult or part.waiting or not _says_something(part):
                continue
            ran = part.tool or part.name
            if part.untrusted or not self.labelled.is_trusted(ran, view.agent.tools.get(ran, None)):
                return ran or "tool"
        return ""

    # Whose call is it

    def _role(self, call: ToolCall, tool: Action | None) -> str:
        return self.labelled.role(call.name, tool)

    def _judge(self, call: ToolCall, tool: Action | None, view: RunView) -> FlowVerdict | None:
        """Return the verdict over a call, or None if the call needs none."""
        labels, role = self.labelled.of(call.name, tool), self._role(call, tool)
        read = self.labelled.judged_arguments(call, tool) if role == "reads" else None
        if role == "own" or read == {} or self._was_planned(call, view):
            return None
        judge = ReadSoFar(view, self.labelled).judge(UserWords(self._all_words(view), view.state.time))
        if read is not None:  # what the tool reads with can carry something out
            verdict = judge.judge(replace(call, args=read), labels, _schema(tool))
            return verdict._replace(waits=any(mark.whose in ("source", "nowhere") for mark in verdict.marks))
        verdict = judge.judge(call, labels, _schema(tool))
        return verdict._replace(waits=True) if self.mode == "everything" else verdict

    def _was_planned(self, call: ToolCall, view: RunView) -> bool:
        """Return True for the call of a plan that was made before text from outside was read."""
        state = view.state
        if call.id in state.open or self._inherited is not None or FLOW not in state.custom:
            return False
        planned = optional(view.agent.strategy, StrategyBase, "planned_at")(call.id, state)
        return bool(planned <= (state.custom[FLOW].get("reply", 0) if self.mode == "strict" else 0))

    def _all_words(self, view: RunView) -> Iterable[str]:
        if self._inherited is not None:
            return self._inherited
        said = [] if view.state.parent is not None else [message.own_text for message in view.state.said]
        own, by = ("", view.state.user), view.state.answered_by  # what another person answers are not the user's words
        given = [(key, answer) for key, answer in view.state.answers.items() if isinstance(answer, str)]
        asked = [answer for key, answer in given if key.startswith("task:") and by.get(key, "") in own]
        return [*self._words, *said, *asked]

    def describe(self, call: ToolCall, view: RunView) -> Notice:
        """Return a call with the origin of its values, as a question shows it."""
        tool = view.tools(call).get(call.name, None)
        judge = ReadSoFar(view, self.labelled).judge(UserWords(self._all_words(view), view.state.time))
        marks = judge.marks(call, self.labelled.of(call.name, tool), _schema(tool))
        return join_notices("\n", [join_notices("", ("   ", describe_value(mark._asdict()))) for mark in marks])


def _says_something(result: ToolResult) -> bool:
    """Return True if a result holds text or media. A number or a truth value cannot instruct anybody."""
    empty = result.output is None or isinstance(result.output, bool | int | float)
    return not result.not_run and (result.is_error or bool(result.media) or not empty)


def _schema(tool: Action | None) -> Mapping[str, Any]:
    """Return the schemas of a tool's parameters, by name."""
    known = {} if tool is None else tool.parameters.get("properties") or {}
    return {name: one for name, one in known.items() if isinstance(one, Mapping)}
