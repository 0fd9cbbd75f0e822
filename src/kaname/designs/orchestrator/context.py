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
    """The result of one plan, or of a whole task.

    Attributes:
        plan: The plan. For a task: the last one.
        steps: The outcome of each step by name, with `status`, `output` and `error`.
        problem: The reason that the plan was not carried out, or "".
        output: The output of the plan or of the task.
        is_successful: True if all steps are done. For a task: True if the task is done.
        reason: The reason that the task was cancelled or waits, or "".
        context: The context of the task; None for the result of one plan.
    """

    plan: ExecutionPlan | None = None
    steps: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    problem: str = ""
    output: Any = None
    is_successful: bool = False
    reason: str = ""
    context: AgentContext | None = None


@mutable
class AgentContext:
    """The progress of a task. A run computes it from its recorded facts, so that a killed process continues where it was.

    A planner or a monitor of your own can call its methods. Their effect is recorded with the value that the planner or the
    monitor returns. Changes to the attributes are not recorded.

    Attributes:
        user_input: The task.
        current_plan: The plan that is carried out, or was carried out last.
        execution_history: The results of all plans so far.
        feedback_history: The feedback on all plans so far.
        is_completed: True if the task is done.
        is_cancelled: True if the task ended without being done.
        cancellation_reason: The reason of the cancellation.
        output: The output of the task, or of its plan so far.
        run_id: The run of the task.
        usage: Tokens and cost so far, as a `Usage`.
        progress: The share of the current plan that is done, from 0 to 1.
        phase: "planning", "execution", "monitoring", "evaluation", "completed" or "cancelled".
        questions: The questions that wait for an answer, by the key to answer with.
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
    progress: float = 0.0
    phase: Phase = "planning"
    questions: Mapping[str, str] = field(factory=dict)
    _unnamed_ = ("inside",)  # what a planner or a monitor can call in the run: see own_parts.Inside

    def add_feedback(self, feedback: str) -> None:
        """Add feedback for the next plan."""
        self.feedback_history.append(feedback)

    def mark_completed(self) -> None:
        """Mark the task as done."""
        self.is_completed = True

    def mark_cancelled(self, reason: str) -> None:
        """Cancel the task with a reason."""
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
