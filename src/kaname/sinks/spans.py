"""Build spans from facts: a run as a tree with times, in the GenAI conventions of OpenTelemetry.

Spans are complete when the run ends or is suspended. A crash loses none and repeats none, because the process that resumes the
run builds them from its recorded facts (`recall`). Names follow the GenAI semantic conventions of November 2026.
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
    """An event at one point of a span."""

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
    links: tuple[str, ...] = ()  # the spans from which it continues, as traceparent


@mutable
class _RunTrace:
    """The data collected about a run that is not over."""

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
    state: State = field(factory=State)  # kept only with `content`
    lives: int = 0  # executions that have ended: a run can be resumed after a stop


class Spans:
    """Collect facts and build spans. `content`: True to include messages, arguments and results."""

    def __init__(self, content: bool = False) -> None:
        self._content = content
        self._runs: dict[str, _RunTrace] = {}

    def recall(self, facts: Sequence[Event]) -> None:
        """Take in the facts of a run from before it was resumed here.

        Spans that were sent when it was suspended are not repeated.
        """
        if facts:
            self._runs.pop(facts[0].run_id, None)
        for fact in facts:
            self._take_fact(fact)

    def take(self, event: Event) -> list[Span]:
        """Take in a fact, and return the spans that it completes."""
        spans = self._take_fact(event)
        if isinstance(event.body, Stopped):
            del self._runs[event.run_id]  # if it is resumed, `recall` builds it again
        while len(self._runs) > _MOST:  # suspended here, and resumed elsewhere
            del self._runs[next(iter(self._runs))]
        return spans

    def _take_fact(self, event: Event) -> list[Span]:
        run = self._runs.get(event.run_id)
        if isinstance(event.body, Opened):
            run = self._runs[event.run_id] = self._new_trace(event, event.body)
        if run is None:  # it began elsewhere
            run = self._runs[event.run_id] = _RunTrace(event.run_id, event.time, event.agent, last=event.time)
        over = self._note(run, event)
        if self._content:
            evolve(run.state, event)
        if type(event.body) is not ToolStarted:
            run.last = event.time
        if not over:
            return []
        spans, run.spans = run.spans, []
        return spans

    def _new_trace(self, event: Event, body: Opened) -> _RunTrace:
        return _RunTrace(
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

    def _note(self, run: _RunTrace, event: Event) -> bool:
        """Take in a fact. Return True if the complete spans can be sent now."""
        match event.body:
            case ModelReplied():
                self._add_reply(run, event, event.body)
            case ToolStarted(call=call) if call.id not in run.started:
                run.started[call.id] = (event.time, event.body)
            case ToolFinished():
                self._add_tool_call(run, event, event.body)
            case Compacted(usage=usage):
                run.usage += usage
            case Asked(key, prompt):
                run.moments.append(Moment("question", event.time, {"key": key, **self._content_attributes(prompt=prompt)}))
                return True
            case Answered(key, answer, by):
                run.moments.append(
                    Moment("answer", event.time, {"key": key, "by": by, **self._content_attributes(answer=answer)})
                )
            case HandedOff(to):
                run.moments.append(Moment("handoff", event.time, {"gen_ai.agent.name": to}))
            case Warned(source, text):
                if source in _GAVE_UP or getattr(text, "code", "") == "model.fallback":
                    self._add_failed_call(run, event, "_OTHER", text)
                run.moments.append(Moment("warning", event.time, {"source": source, "text": text}))
            case Resumed(attempt):
                run.moments.append(Moment("resumed", event.time, {"attempt": attempt}))
            case Stopped():
                self._add_run(run, event, event.body)
                return True
        return False

    def _add_reply(self, run: _RunTrace, event: Event, body: ModelReplied) -> None:
        reply = body.reply
        run.usage += reply.usage
        name = reply.model or run.model
        attributes = {
            **self._request_attributes(run, event, name, body.step.instructions),
            "gen_ai.response.model": reply.served or name,
            **({"kaname.request.id": reply.request_id} if reply.request_id else {}),
            "gen_ai.response.finish_reasons": [reply.stop_reason or "unknown"],
            **_usage(reply.usage),
            **({_OUTPUT: output_message(reply)} if self._content else {}),
        }
        place = tracing.span_id(run.run_id, event.seq)
        run.spans.append(self._span(run, place, f"chat {name}", "client", run.last, event.time, attributes, body.reply.problem))

    def _add_failed_call(self, run: _RunTrace, event: Event, error: str, text: str) -> None:
        """Add a model call that got no reply. `error`: its type, or `_OTHER`, the conventions' word for unknown."""
        place = tracing.span_id(run.run_id, event.seq, "failed")
        attributes = {**self._request_attributes(run, event, run.model), "error.message": text}
        run.spans.append(self._span(run, place, f"chat {run.model}", "client", run.last, event.time, attributes, error))

    def _request_attributes(self, run: _RunTrace, event: Event, model: str, told: str | None = None) -> dict[str, Any]:
        """Return the attributes of a model call that are known before its reply.

        `told`: instructions for this call, instead of the agent's.
        """
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

    def _add_tool_call(self, run: _RunTrace, event: Event, body: ToolFinished) -> None:
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
                **self._content_attributes(**{"gen_ai.tool.call.arguments": started.call.args}),
            }
        attributes |= self._content_attributes(**{"gen_ai.tool.call.result": result_text(result)})
        place, told = tracing.span_id(run.run_id, "call", result.call_id), f"execute_tool {result.name}"
        problem = "" if not result.is_error else "tool_error"
        run.spans.append(self._span(run, place, told, "internal", begun, event.time, attributes, problem))

    def _add_run(self, run: _RunTrace, event: Event, body: Stopped) -> None:
        """Add the span of the run itself. Calls without a result were interrupted. A blocked message is in no span."""
        stop = body.stop
        if stop.error in _MODEL_ERRORS:
            self._add_failed_call(run, event, stop.error, stop.detail)
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

    def _conversation(self, run: _RunTrace, body: Stopped) -> dict[str, str]:
        """Return the question and the answer of the run.

        `input.value` and `output.value` are OpenInference's names: viewers show them in their lists of traces.
        """
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
        run: _RunTrace,
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
        trace, own = tracing.parse_traceparent(tracing.of_run(run.run_id, run.trace)) or ("", "")
        above = own
        if name.startswith("invoke_agent"):
            known = tracing.parse_traceparent(run.trace)
            above = known[1] if known else ""
            if run.parent is not None:
                above = tracing.span_id(run.parent[0], "call", run.parent[1])
        told = {**attributes, "error.type": error} if error else attributes
        return Span(trace, place, above, name.strip(), kind, min(start or end, end), end, told, error, moments, links)

    def _content_attributes(self, **values: Any) -> dict[str, Any]:
        return _as_texts(values) if self._content else {}


def _as_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the values of attributes to texts."""
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
