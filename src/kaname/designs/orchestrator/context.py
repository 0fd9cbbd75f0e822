"""`AgentContext`: how far a task of the orchestrator is, and `ExecutionResult`: what came of a plan or of the whole task."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ...core.notices import join_notices, notice
from ...core.record import field, mutable, record, replace
from ...core.state import State
from ...core.steps import Step, Stop
from ...strategies.graph.plan import ExecutionPlan
from ...strategies.orchestrate import GENERATE, Attempt, Phase, partial_output, phase_of


@record
class ExecutionResult:
    """What came of the steps of one plan, by their names: `status`, `output`, `error`; of a whole task, what came of it in the
    end, why it was cancelled, and its `context`."""

    plan: ExecutionPlan | None = None
    steps: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    problem: str = ""
    output: Any = None
    is_successful: bool = False
    reason: str = ""
    context: AgentContext | None = None


@mutable
class AgentContext:
    """How far a task is. In a run it follows from the recorded facts, so that a killed process continues where it was.

    A planner or a monitor of your own can call its methods: what they change is recorded with what the planner or the monitor
    returns. Changes to the attributes are not.
    """

    user_input: str = ""
    current_plan: ExecutionPlan | None = None
    execution_history: list[ExecutionResult] = field(factory=list)
    feedback_history: list[str] = field(factory=list)
    is_completed: bool = False
    is_cancelled: bool = False
    cancellation_reason: str = ""
    output: Any = None
    run_id: str = ""
    usage: Any = None
    progress: float = 0.0  # of the current plan: 0 to 1
    phase: Phase = "planning"
    questions: Mapping[str, str] = field(factory=dict)  # what it waits for, by the key to answer with
    _unnamed_ = ("inside",)  # what a planner or a monitor can call in the run: see own_parts.Inside

    def add_feedback(self, feedback: str) -> None:
        """Add what the next plan has to know."""
        self.feedback_history.append(feedback)

    def mark_completed(self) -> None:
        """Say that the task is done."""
        self.is_completed = True

    def mark_cancelled(self, reason: str) -> None:
        """Say that the task is given up, and why."""
        self.is_cancelled, self.cancellation_reason = True, reason

    def to_result(self) -> ExecutionResult:
        """Return the result of the task so far: the last plan's steps, the output, and the reason of a cancellation or wait."""
        last = self.execution_history[-1] if self.execution_history else ExecutionResult()
        waits = [notice("plan.waits", "waiting for an answer: {question}", question=one) for one in self.questions.values()]
        why = self.cancellation_reason or join_notices("; ", waits)
        output = last.output if self.output is None else self.output
        return replace(last, output=output, is_successful=self.is_completed, reason=why, context=self)


def context_of(state: State, run_id: str, attempts: list[Attempt], step: Step) -> AgentContext:
    """Return the context that follows from the facts of a run: from its attempts, and from what is to be done next."""
    plans = [one for one in attempts if one.progress is not None]
    stop = state.stop or Stop("running")
    done = plans[-1].progress if plans else None
    cancelled = stop.kind not in ("completed", "running")
    return AgentContext(
        next((message.text for message in state.turn if message.role == "user"), ""),
        deepcopy(plans[-1].plan) if plans else None,  # what is recorded stays, whatever a part does to its copy
        [_result_of(one) for one in attempts],
        _feedback_of(attempts, state),
        stop.kind == "completed",
        cancelled,
        stop.detail if cancelled else "",
        state.output if state.output is not None else partial_output(attempts),
        run_id,
        state.usage,
        0.0 if done is None else done.settled / max(1, len(done.nodes)),
        phase_of(attempts, step, state),
        {key: asked.prompt for key, asked in state.questions.items()},
    )


def _feedback_of(attempts: list[Attempt], state: State) -> list[str]:
    """Return the feedback on all plans: what the planner added while it made one, and what became of it."""
    feedback = list[str]()
    for one in attempts:
        planned = state.results.get(f"plan{one.number}{GENERATE}")
        feedback += planned.output.get("feedback", []) if planned is not None else []
        feedback.append(one.problem or (one.verdict.feedback if one.verdict else ""))
    return [text for text in feedback if text]


def _result_of(attempt: Attempt) -> ExecutionResult:
    if attempt.progress is None:
        return ExecutionResult(deepcopy(attempt.plan), {}, attempt.problem)
    steps = attempt.step_outcomes()
    return ExecutionResult(
        deepcopy(attempt.plan),
        steps,
        attempt.problem,
        output=partial_output([attempt]),
        is_successful=all(one["status"] == "done" for one in steps.values()),
    )
