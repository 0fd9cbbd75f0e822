"""Turn one step into effects. Policies wrap here, and nothing else in the kernel has effects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import (
    AgentError,
    BadArguments,
    ConfigError,
    Halt,
    JournalError,
    Released,
    Signal,
    Suspend,
    ToolNotFoundError,
    UnexpectedError,
)
from ..core.events import RESULT, HandedOff, ModelReplied, Noted, Stopped, ToolFinished, ToolStarted, Warned
from ..core.messages import CLIENT_CALLS, NOTHING, Message, ModelReply, ModelRequest, ToolCall, ToolResult, user
from ..core.notices import notice
from ..core.record import replace
from ..core.state import State
from ..core.steps import CallModel, CallTools, Conclude, Finish, Step, Stop
from .arguments import IncomingCall, read_unknown
from .bases import ModelBase, optional, strategy_info
from .boundary import Failure, attempt, log_failure
from .chain import Chain
from .door import amend, decide
from .effects import settle
from .ports import Admission, ModelHandler, Recipe, StopRule, ToolHandler
from .replies import take_in
from .results import fit_result, must_be_json, result_from_caller, result_from_client
from .scope import Scope, silent
from .threads import inside, working_for

_ANOTHER = CallModel()
_A_TOOLS = (Exception, SystemExit, BaseExceptionGroup)  # what a tool may do wrong without ending anything but itself


async def perform(step: Step, scope: Scope) -> None:
    match step:
        case CallModel() if (limit := scope.state.concluding) is not None:
            await ask_for_last_words(step, limit, scope)
        case CallModel():
            await ask_model(step, scope)
        case Conclude(stop, note):
            why = notice("tool.not_run", "not run: {why}", why=stop.detail)
            await scope.write_pending()
            await scope.record(*refuse_open_calls(scope.state, why), Noted(user(note), stop))
        case CallTools(()) if not scope.running:
            name = type(scope.agent.strategy).__name__
            raise UnexpectedError(f"{name}.next() returned CallTools with no calls; return CallModel or Finish")
        case CallTools(calls, some) if some or not calls:
            await use_some(step, scope)
        case CallTools((call,)) if call.id not in scope.running:
            await use(call, scope)
        case CallTools(calls):
            going = scope.running
            tasks = [asyncio.ensure_future(going.pop(call.id) if call.id in going else use(call, scope)) for call in calls]
            try:
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            except asyncio.CancelledError:
                raise_halt(tasks, scope)
                raise
            raise_first(outcomes)
        case Finish() if scope.inbox and _goes_on(step, scope):
            await _take_messages(scope, joints(scope.agent, scope)[2])
        case Finish(stop, output):
            await scope.record(Stopped(stop, must_be_json(output, "the output"), decided=True))
        case _:
            raise UnexpectedError(f"{type(scope.agent.strategy).__name__}.next returned {step!r}, which is no step")


def refuse_open_calls(state: State, why: str) -> list[ToolFinished]:
    """Return results for the calls that are open: the strategy goes on without them."""
    return [ToolFinished(ToolResult(error=why, call_id=call.id, name=call.name, not_run=True)) for call in state.pending]


async def use_some(step: CallTools, scope: Scope) -> None:
    """Start the calls that are not running yet, and wait for the first to finish; for all, once a question is open."""
    if step.told is not None:
        scope.tell(step.told)
    for call in step.calls:
        if call.id not in scope.running:
            scope.running[call.id] = asyncio.create_task(use(call, scope))
    try:
        await asyncio.wait(scope.running.values(), return_when=asyncio.FIRST_COMPLETED)
        if scope.state.waiting:
            await asyncio.wait(scope.running.values())
    except asyncio.CancelledError:
        raise_halt(scope.running.values(), scope)
        raise
    done = [scope.running.pop(call_id) for call_id, task in tuple(scope.running.items()) if task.done()]
    raise_first([asyncio.CancelledError() if task.cancelled() else task.exception() for task in done])


def raise_halt(tasks: Iterable[asyncio.Future[None]], scope: Scope) -> None:
    """Raise the `Halt` of a call that has ended, if the others were cut because the run is released: it ends the run."""
    done = [task for task in tasks if task.done() and not task.cancelled()] if scope.leaves_resumable() else []
    raise_first([problem for task in done if isinstance(problem := task.exception(), Halt)])


def raise_first(outcomes: Iterable[BaseException | None]) -> None:
    """Raise the first exception. The other calls have finished and are recorded."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def ask_model(step: CallModel, scope: Scope) -> None:
    agent = scope.member(step.agent) if step.agent else scope.agent
    if (model := agent.model) is None:
        raise ConfigError.of("agent.no_model", "agent {name!r} has no model: pass Agent(model=…)", name=agent.name)
    await scope.write_pending()  # a reply before this one, if the strategy asks again at once
    told = [Noted(user(step.note))] if step.note and not scope.state.noted else []
    if told or scope.state.open:
        await scope.record(*refuse_open_calls(scope.state, notice("tool.left_out", "not run: this call was left out")), *told)
    tools = agent.memo.specs(agent.tools, step.tools) if step.tools else ()
    schema = None if tools else step.schema
    unchanged = tools and step.schema is None and step.shown
    sent = step if unchanged else replace(step, tools=step.tools if tools else False, schema=schema, shown=True)
    settings = {**agent.settings, **step.settings} if step.settings else agent.settings
    if agent.name not in scope.joints:
        await warn_of_ignored(settings, agent, scope)
    ask, _, admit = joints(agent, scope)
    if scope.inbox and not await _take_messages(scope, admit):
        return
    messages: tuple[Message, ...] = ()
    ending: tuple[Stopped, ...] = ()
    try:
        question = scope.state.question
        if question is not None and (judged := await admit(question)) is not NOTHING:
            scope.unbilled += judged
        messages = await build_messages(agent, step.instructions, scope)
        last = bool(tools) and is_last(scope.stops_of(agent), scope.state)
        unoffered = () if tools else agent.memo.specs(agent.tools)
        request = ModelRequest(messages, tools, schema, settings, stream=step.shown, last=last, unoffered=unoffered)
        scope.asking = True
        reply = await ask(replace(request, model=model) if step.agent else request)
    except Halt as end:
        if end.reply is None:
            raise
        reply, ending = end.reply, (Stopped(end.stop),)
    except asyncio.CancelledError as cut:
        await _interrupted(scope, cut)
        return
    finally:
        scope.asking = False
    if scope.interrupting:
        await _interrupted(scope)
    taken = take_in(scope.billed(reply), getattr(model, "name", type(model).__name__), scope.state.replied + 1, agent.tools)
    history = scope.state.messages if agent.context else None
    fingerprint = agent.memo.fingerprint(messages, history, tools, schema, settings)
    await scope.record(ModelReplied(taken, sent, fingerprint), *ending, agent=agent.name)


def _goes_on(step: Finish, scope: Scope) -> bool:
    """Return True if the strategy answers a message that came while the last reply was written, instead of ending."""
    answered = step.stop.kind in ("completed", "degraded") and scope.state.limit is None
    return answered and strategy_info(scope.agent.strategy).listens


async def _take_messages(scope: Scope, admit: Admission) -> bool:
    from .letters import take_messages  # few runs are talked to

    return await take_messages(scope, admit)


async def _interrupted(scope: Scope, cut: asyncio.CancelledError | None = None) -> None:
    """Go on after a model call that an urgent message has cancelled, or raise if the run is to stop."""
    from .letters import go_on_if_interrupted, settle_interruption

    await (settle_interruption(scope) if cut is None else go_on_if_interrupted(scope, cut))


async def warn_of_ignored(settings: Mapping[str, Any], agent: Recipe, scope: Scope) -> None:
    """Warn once, before an agent's first reply, about settings that its model leaves out of its requests."""
    first = not scope.state.replied or agent is not scope.root
    if first and agent.model is not None and (names := ", ".join(optional(agent.model, ModelBase, "ignores")(settings))):
        told = notice(
            "model.settings_ignored",
            "{model} does not support these settings, so they are not sent: {names}",
            model=agent.model.name,
            names=names,
        )
        await scope.record(Warned("model", told))


async def ask_for_last_words(step: CallModel, limit: Stop, scope: Scope) -> None:
    """Ask the model for a last answer. If that fails, the run ends at its limit anyway."""
    try:
        await ask_model(step, scope)
    except JournalError:
        raise
    except AgentError as failure:
        told = notice("warning.last_words", "the model gave no final answer: {problem}", problem=failure.public)
        await scope.record(Warned("limit", told), Stopped(limit, decided=True))


async def build_messages(agent: Recipe, instructions: str | None, scope: Scope) -> tuple[Message, ...]:
    """Return the messages that the model sees: the instructions and the whole history, passed through the agent's context
    parts."""
    told = agent.instructions if instructions is None else instructions
    messages = (agent.memo.system(told), *scope.state.history) if told else scope.state.history
    for part in agent.context:
        messages = tuple(await part(messages, scope))
        if not all(isinstance(message, Message) for message in messages):
            raise UnexpectedError(f"the context part {part!r} gave something else than messages: {messages!r:.200}")
    return messages


def is_last(stops: tuple[StopRule, ...], state: State) -> bool:
    """Return True if the stop rules would object to another model call after this one.

    They judge a copy of the state as it will be after this call.
    """
    after = replace(state, spent=replace(state.spent, steps=state.spent.steps + 1))
    for rule in stops:  # noqa: SIM110 - a generator would cost five calls a step
        if rule(after, _ANOTHER) is not None:
            return True
    return False


def joints(agent: Recipe, scope: Scope) -> tuple[ModelHandler, ToolHandler, Admission]:
    """Return an agent's handlers for model calls, tool calls and the user's question, wrapped in its policies.

    They are built once per run.
    """
    if agent.name not in scope.joints:

        async def reply_to(request: ModelRequest) -> ModelReply:
            assert agent.model is not None
            asked = request.model or agent.model
            return await asked.reply(request, (request.emit or scope.emit) if request.stream else silent)

        async def run_tool(call: ToolCall) -> ToolResult:
            return await execute(call, scope, is_judged)

        policies, is_judged = scope.policies_of(agent), bool(scope.deciders(agent))
        chain = agent.memo.kept("chain", policies, lambda: Chain(policies))
        scope.joints[agent.name] = (
            chain.around_model(reply_to, scope),
            chain.around_tool(run_tool, scope),
            chain.around_question(scope),
        )
    return scope.joints[agent.name]


async def use(call: ToolCall, scope: Scope) -> None:
    if call.id in scope.state.results and call.id not in scope.state.open:  # the limits would count it once for all
        raise UnexpectedError(f"the strategy called {call.name} with the id {call.id!r} again; every call needs a new id")
    try:
        before = scope.interrupted.get(call.id)
        result = None if before is None else await settle(before, scope)
        if result is None:  # if another tool replaced it before the crash, that tool continues
            going_on = call if before is None or before.call.name == call.name else before.call
            result = await call_through_policies(going_on, scope)
        if not isinstance(result, ToolResult):
            raise UnexpectedError(f"{call.name}, or a policy around it, returned {repr(result)[:100]}; expected a ToolResult")
        if result.transfer and result.transfer not in (scope.root.name, *scope.root.team):
            result = ToolResult(error=f"there is no agent named {result.transfer!r} to hand over to")
        if (family := scope.families.pop(call.id, None)) is not None:
            result = replace(result, usage=result.usage + family.charged + family.spent)
        finished = ToolFinished(fit_result(result, call))
        await (scope.record(finished, HandedOff(result.transfer)) if result.transfer else scope.record(finished))
    except Suspend as question:
        await scope.park(question, call.id)
    except Released:  # it is made when the run is resumed
        pass
    finally:
        if call.id in scope.acting:
            del scope.acting[call.id]


async def call_through_policies(call: ToolCall, scope: Scope) -> ToolResult:
    """Pass the call through the policies to its tool. Each policy sees the arguments that the tool would receive."""
    asked = scope.state.open.get(call.id, call)
    scope.incoming[call.id] = IncomingCall(asked.name)
    try:
        if scope.state.settled:
            call = amend(call, scope)
        return await joints(scope.caller(call), scope)[1](call)
    except BadArguments as problem:  # those that a person has approved do not fit any more
        return ToolResult(error=str(problem), not_run=True)
    finally:
        scope.incoming.pop(call.id, None)


def result_of_failure(call: ToolCall, failure: Failure, effect: str, scope: Scope) -> ToolResult:
    """Log a failure, and return it as a result. A call that can be repeated is not under way while a policy pauses."""
    log_failure(call.name, failure, scope.run_id)
    if effect == "idempotent":
        scope.acting.pop(call.id, None)
    return ToolResult(error=str(failure))


async def execute(call: ToolCall, scope: Scope, is_judged: bool) -> ToolResult:
    """Run the tool itself: check the arguments, pass the door, record the intent, act.

    `is_judged`: some policy states demands about calls.
    """
    tools, incoming = scope.caller(call).tools, scope.incoming[call.id]
    if (tool := tools.get(call.name, None)) is None:
        if call.name not in CLIENT_CALLS:
            return ToolResult(error=str(ToolNotFoundError(call.name, tools)))
        return await decide(read_unknown(call, tools), scope) or result_from_client(call, scope.state.answers)
    try:
        call, shown, prepared = incoming.arrive(call, tool)
    except BadArguments as problem:
        return ToolResult(error=str(problem), not_run=True)
    if is_judged and (refused := await decide(ToolCall(call.id, call.name, shown.args), scope)) is not None:
        return refused
    if scope.state.answers and f"{RESULT}{call.id}" in scope.state.answers:  # the caller has run it: it is not run once more
        return result_from_caller(call, "", scope.state.answers)
    scope.interrupted.pop(call.id, None)  # settled, if it was in doubt
    before = scope.state.started.get(call.id)  # tried before, in this life or a former one
    if before is not None and tool.effect == "compensable" and before.run_id != scope.run_id:
        before = None  # a fork makes the call for itself: undoing it must not undo that of the older run
    key, attempts = (f"{scope.run_id}:{call.id}", 1) if before is None else (before.key, before.attempt + 1)
    scope.begin(call, tool.effect)
    await scope.record(ToolStarted(call, tool.effect, key, attempts))
    if tool.effect != "pure" and (asking := scope.lease.confirm()) is not None:
        await asking
    if call.id in scope.families:
        scope.families[call.id].question = scope.families[call.id].failure = None
    within, counted = inside.set(scope.threads), working_for.set(None if tool.effect == "pure" else scope.threads)
    context = scope.tool_context(call.id, key, attempts)
    try:
        outcome = await attempt(tool.act, prepared, context, passing=(Signal,), caught=_A_TOOLS)
    finally:
        working_for.reset(counted)
        inside.reset(within)
    if (family := scope.families.get(call.id)) is not None:
        family.raise_caught()
    if isinstance(outcome, Failure):
        outcome = result_of_failure(call, outcome, tool.effect, scope)
    result: ToolResult = outcome
    if family is not None and family.untrusted:
        result = replace(result, untrusted=True)
    return result if call.name == incoming.requested else replace(result, tool=call.name)
