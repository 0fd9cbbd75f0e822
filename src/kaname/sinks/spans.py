"""Spans from facts: what a run did as a tree with times, in the GenAI conventions of OpenTelemetry.

They are complete when the run ends or is parked: a crash loses none and repeats none, because whoever goes on with the run
makes them from its recorded facts (`recall`). Names as of the GenAI semantic conventions, November 2026.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..core import errors, tracing
from ..core.events import (
    Answered,
    Asked,
    Compacted,
    Event,
    HandedOff,
    ModelReplied,
    Opened,
    Resumed,
    Stopped,
    ToolFinished,
    ToolStarted,
    Warned,
)
from ..core.messages import Usage
from ..core.openai_shape import result_text
from ..core.record import field, mutable, record, replace
from ..core.state import State, evolve
from ..core.values import plain_text
from .genai_messages import final_answer, input_messages, instructions, output_message

_MOST = 10_000  # runs that are remembered at once
_INPUT, _OUTPUT, _TOLD = "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"
_SHOWN_INPUT = "input.value"
_MODEL_ERRORS = {name for name, it in vars(errors).items() if isinstance(it, type) and issubclass(it, errors.ModelError)}
_GAVE_UP = ("retry", "limit")  # whose warnings tell that a model call has failed


@record
class Moment:
    """Something that happened at a point of a span."""

    name: str
    time: float
    attributes: Mapping[str, Any] = field(factory=dict)


@record
class Span:
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: Literal["internal", "client"]
    start: float
    end: float
    attributes: Mapping[str, Any]
    error: str = ""
    moments: tuple[Moment, ...] = ()
    links: tuple[str, ...] = ()  # ids of the traces' spans that it goes on from, as traceparent


@mutable
class _Run:
    """What is known of a run that is not over."""

    run_id: str
    begun: float
    agent: str
    trace: str = ""
    parent: tuple[str, str] | None = None
    session: str = ""
    user: str = ""
    model: str = ""
    base: str = ""
    last: float = 0.0
    usage: Usage = field(factory=Usage)
    started: dict[str, tuple[float, ToolStarted]] = field(factory=dict)
    moments: list[Moment] = field(factory=list)
    spans: list[Span] = field(factory=list)
    instructions: str = ""
    state: State = field(factory=State)  # kept only where what was said is told
    lives: int = 0  # that have ended: somebody may go on after a stop


class Spans:
    """`take` gives the spans that are complete with a fact. `content`: whether what was said is in them."""

    def __init__(self, content: bool = False) -> None:
        self._content = content
        self._runs: dict[str, _Run] = {}

    def recall(self, facts: Sequence[Event]) -> None:
        """What a run did before this process took it up; what it told when it was parked is not told again."""
        if facts:
            self._runs.pop(facts[0].run_id, None)
        for fact in facts:
            self._taken(fact)

    def take(self, event: Event) -> list[Span]:
        spans = self._taken(event)
        if isinstance(event.body, Stopped):
            del self._runs[event.run_id]  # who goes on with it recalls it
        while len(self._runs) > _MOST:  # parked, and gone on with elsewhere
            del self._runs[next(iter(self._runs))]
        return spans

    def _taken(self, event: Event) -> list[Span]:
        run = self._runs.get(event.run_id)
        if isinstance(event.body, Opened):
            run = self._runs[event.run_id] = self._opened(event, event.body)
        if run is None:  # it began elsewhere
            run = self._runs[event.run_id] = _Run(event.run_id, event.time, event.agent, last=event.time)
        over = self._note(run, event)
        if self._content:
            evolve(run.state, event)
        if type(event.body) is not ToolStarted:
            run.last = event.time
        if not over:
            return []
        spans, run.spans = run.spans, []
        return spans

    def _opened(self, event: Event, body: Opened) -> _Run:
        return _Run(
            event.run_id,
            event.time,
            event.agent,
            body.trace,
            body.parent,
            body.session,
            body.user,
            str(body.recipe.get("model", "")),
            body.base[0] if body.base else "",
            instructions=str(body.recipe.get("instructions", "")),
        )

    def _note(self, run: _Run, event: Event) -> bool:
        """Take a fact in; whether what is complete is told now."""
        match event.body:
            case ModelReplied():
                self._replied(run, event, event.body)
            case ToolStarted(call=call) if call.id not in run.started:
                run.started[call.id] = (event.time, event.body)
            case ToolFinished():
                self._finished(run, event, event.body)
            case Compacted(usage=usage):
                run.usage += usage
            case Asked(key, prompt):
                run.moments.append(Moment("question", event.time, {"key": key, **self._said(prompt=prompt)}))
                return True
            case Answered(key, answer, by):
                run.moments.append(Moment("answer", event.time, {"key": key, "by": by, **self._said(answer=answer)}))
            case HandedOff(to):
                run.moments.append(Moment("handoff", event.time, {"gen_ai.agent.name": to}))
            case Warned(source, text):
                if source in _GAVE_UP:
                    self._failed(run, event, "_OTHER", text)
                run.moments.append(Moment("warning", event.time, {"source": source, "text": text}))
            case Resumed(attempt):
                run.moments.append(Moment("resumed", event.time, {"attempt": attempt}))
            case Stopped():
                self._stopped(run, event, event.body)
                return True
        return False

    def _replied(self, run: _Run, event: Event, body: ModelReplied) -> None:
        reply = body.reply
        run.usage += reply.usage
        name = reply.model or run.model
        attributes = {
            **self._asked(run, event, name, body.step.instructions),
            "gen_ai.response.model": name,
            "gen_ai.response.finish_reasons": [reply.stop_reason or "unknown"],
            **_usage(reply.usage),
            **({_OUTPUT: output_message(reply)} if self._content else {}),
        }
        place = tracing.span_id(run.run_id, event.seq)
        run.spans.append(self._span(run, place, f"chat {name}", "client", run.last, event.time, attributes, body.reply.problem))

    def _failed(self, run: _Run, event: Event, error: str, text: str) -> None:
        """Tell of a model call that gave no reply. `error`: its type, or `_OTHER`, which is how the conventions say unknown."""
        place = tracing.span_id(run.run_id, event.seq, "failed")
        attributes = {**self._asked(run, event, run.model), "error.message": text}
        run.spans.append(self._span(run, place, f"chat {run.model}", "client", run.last, event.time, attributes, error))

    def _asked(self, run: _Run, event: Event, model: str, told: str | None = None) -> dict[str, Any]:
        """Return what is known of a model call before its reply. `told`: instructions for this call, instead of the agent's."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": model.partition("/")[0] or "unknown",
            "gen_ai.request.model": run.model or model,
            "gen_ai.agent.name": event.agent,
        }
        if self._content:
            attributes[_INPUT], left_out = input_messages(run.state.history)
            if left_out:
                attributes["kaname.input.left_out"] = left_out
            known = run.instructions if event.agent == run.agent else ""  # only the first agent's are recorded
            if told := known if told is None else told:
                attributes[_TOLD] = instructions(told)
        return attributes

    def _finished(self, run: _Run, event: Event, body: ToolFinished) -> None:
        result = body.result
        run.usage += result.usage
        begun, started = run.started.pop(result.call_id, (run.last, None))
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": result.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": result.call_id,
            "gen_ai.agent.name": event.agent,
        }
        if started is not None:
            attributes |= {
                "kaname.tool.effect": started.effect,
                **self._said(**{"gen_ai.tool.call.arguments": started.call.args}),
            }
        attributes |= self._said(**{"gen_ai.tool.call.result": result_text(result)})
        place, told = tracing.span_id(run.run_id, "call", result.call_id), f"execute_tool {result.name}"
        problem = "" if not result.is_error else "tool_error"
        run.spans.append(self._span(run, place, told, "internal", begun, event.time, attributes, problem))

    def _stopped(self, run: _Run, event: Event, body: Stopped) -> None:
        """Its own span. What was started and never finished was cut off. A message that was blocked is in no span."""
        stop = body.stop
        if stop.error in _MODEL_ERRORS:
            self._failed(run, event, stop.error, stop.detail)
        if stop.blocks_input:
            run.spans = [replace(span, attributes=_without_input(span.attributes)) for span in run.spans]
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": run.agent,
            "gen_ai.request.model": run.model,
            "kaname.run.id": run.run_id,
            "kaname.stop": stop.kind,
            **({"gen_ai.conversation.id": run.session} if run.session else {}),
            **({"enduser.id": run.user, "user.id": run.user} if run.user else {}),
            **_usage(run.usage),
            **self._conversation(run, body),
        }
        problem = (stop.error or stop.kind) if stop.kind == "failed" else ""
        links: tuple[str, ...] = (tracing.of_run(run.base, ""),) if run.base else ()
        place = tracing.span_id(run.run_id, "life", run.lives) if run.lives else tracing.span_id(run.run_id)
        links += (tracing.of_run(run.run_id, run.trace),) if run.lives else ()
        own = self._span(run, place, f"invoke_agent {run.agent}", "internal", run.begun, event.time,
                         attributes, problem, tuple(run.moments), links)  # fmt: skip
        run.spans.append(own)
        run.lives, run.moments, run.usage = run.lives + 1, [], Usage()

    def _conversation(self, run: _Run, body: Stopped) -> dict[str, str]:
        """Return what the run was asked and what it answered. `input.value` and `output.value` are OpenInference's names:
        viewers show these in their lists of traces."""
        if not self._content:
            return {}
        told = {_TOLD: instructions(run.instructions)} if run.instructions else {}
        question = run.state.question
        if question is not None and not body.stop.blocks_input:
            told |= {_INPUT: input_messages([question])[0], _SHOWN_INPUT: question.text}
        if body.output is not None:
            told |= {_OUTPUT: final_answer(body.output), "output.value": plain_text(body.output)}
        return told

    def _span(
        self,
        run: _Run,
        place: str,
        name: str,
        kind: Literal["internal", "client"],
        start: float,
        end: float,
        attributes: Mapping[str, Any],
        error: str = "",
        moments: tuple[Moment, ...] = (),
        links: tuple[str, ...] = (),
    ) -> Span:
        trace, own = tracing.parsed(tracing.of_run(run.run_id, run.trace)) or ("", "")
        above = own
        if name.startswith("invoke_agent"):
            known = tracing.parsed(run.trace)
            above = known[1] if known else ""
            if run.parent is not None:
                above = tracing.span_id(run.parent[0], "call", run.parent[1])
        told = {**attributes, "error.type": error} if error else attributes
        return Span(trace, place, above, name.strip(), kind, min(start or end, end), end, told, error, moments, links)

    def _said(self, **values: Any) -> dict[str, Any]:
        return _written(values) if self._content else {}


def _written(values: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes are texts."""
    return {name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=plain_text)
            for name, value in values.items()}  # fmt: skip


def _without_input(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name != _INPUT}


def _usage(usage: Usage) -> dict[str, Any]:
    told: dict[str, Any] = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    return told if usage.cost is None else {**told, "kaname.usage.cost": usage.cost}
