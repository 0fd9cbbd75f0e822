"""Plan, execute, evaluate, and plan again with what was learnt, until the task is done or cancelled with a reason.

It always ends: revisions are counted, and time and money have their own limits. Pure, like every strategy: which plan is at
work, how far it is, and what was said of it, follows from the replies and results so far.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, cast

from ..core.messages import ToolCall, ToolResult
from ..core.notices import Notice, joined, notice
from ..core.people.answers import decided
from ..core.record import field, mutable, record
from ..core.state import State
from ..core.steps import CallModel, CallTools, Finish, Step, Stop
from ..core.values import plain_text
from ..kernel.boundary import Border
from ..kernel.ports import Action
from .graph.asking import EvaluationResult, Form, read_verdict
from .graph.bounds import bounds_of
from .graph.plan import BadPlan, ExecutionPlan, graph_of, read_plan, told_plan
from .graph.progress import Progress
from .graph.strategy import Kept
from .graph.task import Graph, Use

_LONGEST = 2_000  # characters of one result, as the judge reads it
_STATUS: dict[str, Notice] = {
    "failed": notice("plan.failed", "failed"),
    "skipped": notice("plan.skipped", "skipped"),
    "waiting": notice("plan.waiting", "waiting"),
}


Phase = Literal["planning", "execution", "monitoring", "evaluation", "completed", "cancelled"]
Judge = Callable[[ExecutionPlan, Mapping[str, Mapping[str, Any]]], EvaluationResult | None]
"""A rule over a plan that was carried out, and what became of its steps; `None` if it has nothing to say. Pure."""


@mutable
class Attempt:
    """One plan and what became of it."""

    number: int
    plan: ExecutionPlan | None = None
    graph: Graph | None = None
    progress: Progress | None = None
    results: dict[str, ToolResult] = field(factory=dict)
    verdict: EvaluationResult | None = None
    problem: str = ""  # why it was not carried out

    @property
    def prefix(self) -> str:
        return f"plan{self.number}."


@record
class Orchestrate:
    """`misuse`: what is wrong with the use of a tool. `approve`: a person sees every plan before it is carried out.

    `limits`: of the whole run, by their kind: `deadline` in seconds, `budget` in dollars.
    """

    tools: Mapping[str, Action]
    misuse: Callable[[Use], Iterable[str]]
    ask: str
    max_revisions: int = 3
    judges: bool = True
    approve: bool = False
    rules: tuple[Judge, ...] = ()
    form: Callable[[], Form] = Form
    limits: Callable[[], Mapping[str, float]] = dict
    only_plan: bool = False
    kept: Kept[list[Attempt]] = field(factory=Kept)

    def next(self, state: State) -> Step:
        return self.course(state)[1]

    def conclude(self, state: State, stop: Stop) -> Step:
        """A limit is reached: what there is by then is delivered."""
        return Finish(stop, self.partial(state))

    def partial(self, state: State) -> Any:
        return partial_output(self.course(state)[0])

    def course(self, state: State) -> tuple[list[Attempt], Step]:
        """All attempts so far, and what is to be done next."""
        kept = self.kept.of(state, list)
        attempts: list[Attempt] = []
        replies = [one.reply.message.text for one in state.replies]
        feedback = ""
        while len(attempts) <= self.max_revisions:
            if not replies:
                return attempts, self._ask_for_a_plan(feedback)
            if len(attempts) == len(kept):
                kept.append(Attempt(len(kept) + 1))
            attempts.append(attempt := kept[len(attempts)])
            outcome = self._carried_out(attempt, attempts, replies, state)
            if not isinstance(outcome, str):
                return attempts, outcome
            feedback = outcome
        why = notice(
            "plan.no_more",
            "no plan led to the goal after {revisions} revisions: {feedback}",
            revisions=self.max_revisions,
            feedback=feedback,
        )
        return attempts, Finish(Stop("cancelled", why), partial_output(attempts))

    def _carried_out(self, attempt: Attempt, attempts: list[Attempt], replies: list[str], state: State) -> Step | str:
        """The next step of this attempt; or, as a text, what the next plan has to know."""
        written = replies.pop(0)
        if attempt.graph is None and not attempt.problem:
            try:
                attempt.plan = read_plan(written)
                pure = {name for name, tool in self.tools.items() if tool.effect == "pure"}
                graph = graph_of(attempt.plan, self.misuse, pure.__contains__)
                self._check_time(graph)
                attempt.graph = graph
            except BadPlan as problem:
                told = str(problem)
                attempt.problem = notice("plan.impossible", "the plan cannot be carried out:\n{problem}", problem=told)
        if attempt.graph is None or attempt.plan is None:
            return attempt.problem
        if self.approve and (asked := self._approval(attempt, state)) is not None:
            return asked
        attempt.progress = attempt.progress or Progress(attempt.graph, attempt.plan.parameters, attempt.prefix)
        if self.only_plan:
            return Finish(Stop("completed"), written)
        if calls := _calls(attempt, attempts, state):
            return CallTools(calls, as_completed=True, told=self._told(attempt, attempt.progress, state))
        return self._judged(attempt, replies)

    def _told(self, attempt: Attempt, progress: Progress, state: State) -> dict[str, Any]:
        """How far it is; at the beginning with the plan, unless a person has just seen it."""
        told = {"plan": attempt.number, **progress.brief(state)}
        fresh = not self.approve and not _is_begun(progress, state)
        return (
            {**told, "steps": told_plan(cast(ExecutionPlan, attempt.plan), progress.graph, self._effects())} if fresh else told
        )

    def _effects(self) -> dict[str, str]:
        return {name: tool.effect for name, tool in self.tools.items()}

    def _check_time(self, graph: Graph) -> None:
        """What a plan allows its steps has to fit into the time of the whole."""
        named, limit = bounds_of(graph, self.tools).named, self.limits().get("deadline")
        if limit is not None and named > limit:
            raise BadPlan(
                notice(
                    "plan.time",
                    "- the time limits of its steps come to {named:g} s, and the whole task has {limit:g} s",
                    named=named,
                    limit=limit,
                )
            )

    def _bounds(self, graph: Graph) -> Notice:
        limits = self.limits()
        whole = [notice("plan.seconds", "{seconds:g} s", seconds=limits["deadline"])] if "deadline" in limits else []
        whole += [notice("plan.money", "${budget:g}", budget=limits["budget"])] if "budget" in limits else []
        told = notice("plan.bounds", "In all: {bounds}.", bounds=bounds_of(graph, self.tools).told())
        ends = joined(notice("plan.or", " or "), whole)
        return told + notice("plan.ends", " The task ends at {ends}.", ends=ends) if whole else told

    def _approval(self, attempt: Attempt, state: State) -> Step | str | None:
        """`None`: it may be carried out."""
        assert attempt.plan is not None
        assert attempt.graph is not None
        call_id = f"plan{attempt.number}?approve"  # no step can be called that
        if (said := state.results.get(call_id)) is None:
            question = notice(
                "plan.run",
                "{plan}\n{bounds}\nRun this plan? Answer yes, no, or describe what to change.",
                plan=told_plan(attempt.plan, attempt.graph, self._effects()),
                bounds=self._bounds(attempt.graph),
            )
            return CallTools((ToolCall(call_id, self.ask, {"question": question}),))
        decision = decided(said.output)
        wish = plain_text(said.output) if decision is None else decision.reason
        if decision is not None and decision.approved and decision.args is None:
            return None
        if not wish:
            return Finish(Stop("cancelled", notice("plan.not_approved", "the user did not approve the plan")))
        attempt.problem = notice("plan.another", "the user wants another plan: {wish}", wish=wish)
        return attempt.problem

    def _judged(self, attempt: Attempt, replies: list[str]) -> Step | str:
        """Rules first: what failed, what a rule objects to. Then the model."""
        assert attempt.plan is not None
        assert attempt.progress is not None
        told = attempt.progress.told()
        failed = {name: one["error"] for name, one in told.items() if one["status"] == "failed"}
        if failed:
            listed = joined("\n", [f"- {name}: " + error for name, error in failed.items()])
            steps = notice("plan.steps_failed", "steps failed:\n{listed}\n{done}", listed=listed, done=_done(attempt))
            attempt.verdict = EvaluationResult(False, True, steps)
            return attempt.verdict.feedback
        for rule in self.rules:
            with Border() as border:
                verdict = rule(attempt.plan, told)
            if border.failure or not isinstance(verdict, EvaluationResult | None):
                why = border.failure or f"it returned {verdict!r:.100}, which is no EvaluationResult"
                name = getattr(rule, "__name__", type(rule).__name__)
                stop = Stop("failed", notice("plan.rule", "the rule {name} cannot be used: {why}", name=name, why=why))
                return Finish(stop, partial_output([attempt]))
            if verdict is not None:
                return self._decided(attempt, verdict)
        if not self.judges:
            return self._decided(attempt, EvaluationResult(True))
        note = f"{_done(attempt)}\n{self.form().done}"
        if not replies:
            return self._ask_for_a_verdict(note)
        if (verdict := read_verdict(replies.pop(0))) is not None:
            return self._decided(attempt, verdict)
        if not replies:
            return self._ask_for_a_verdict(f"{note}\nThe last answer could not be read: answer with the JSON object alone.")
        verdict = read_verdict(replies.pop(0))
        unknown = notice("plan.unjudged", "nobody could say whether the task was done")
        return self._decided(attempt, verdict or EvaluationResult(False, True, unknown))

    def _decided(self, attempt: Attempt, verdict: EvaluationResult) -> Step | str:
        attempt.verdict = verdict
        assert attempt.progress is not None
        if verdict.is_successful:
            return Finish(Stop("completed"), verdict.answer or attempt.progress.output())
        if verdict.should_retry:
            return joined("\n", (verdict.feedback, _done(attempt)))
        why = (
            verdict.reason
            or verdict.feedback
            or notice("plan.cannot", "the evaluation says that it cannot be done, and not why")
        )
        return Finish(Stop("cancelled", why), partial_output([attempt]))

    def listed(self) -> list[Action]:
        """The tools that a plan may use."""
        return [tool for name, tool in self.tools.items() if name != self.ask and getattr(tool, "listed", True)]

    def _ask_for_a_plan(self, feedback: str) -> CallModel:
        listed = "\n".join(
            [
                f"- {one.name}: {one.description}. Arguments: {json.dumps(one.parameters, ensure_ascii=False)}"
                for one in self.listed()
            ]
        )
        form = self.form()
        note = f"{feedback}\n{form.again}" if feedback else ""
        told = form.planning.replace("{tools}", listed)
        return CallModel(tools=False, schema=form.plan, note=note, instructions=told, shown=False)

    def _ask_for_a_verdict(self, note: str) -> CallModel:
        form = self.form()
        return CallModel(tools=False, schema=form.verdict, note=note, instructions=form.judging, shown=False)


def phase_of(attempts: list[Attempt], step: Step, state: State) -> Phase:
    """Where a task is. A plan that a person is asked about is still being planned; evaluation by rules takes no time."""
    stop = state.stop or (step.stop if isinstance(step, Finish) else None)
    if stop is not None:
        return "completed" if stop.kind == "completed" else "cancelled"
    if isinstance(step, CallModel):
        judged = not attempts or attempts[-1].problem or attempts[-1].verdict is not None
        return "planning" if judged else "evaluation"
    begun = attempts[-1].progress
    if begun is None:
        return "planning"
    return "monitoring" if _is_begun(begun, state) else "execution"


def _is_begun(progress: Progress, state: State) -> bool:
    return any(call.id in state.started or call.id in state.results for call in progress.made())


def _calls(attempt: Attempt, attempts: list[Attempt], state: State) -> tuple[ToolCall, ...]:
    """What is to be called. A call that an earlier plan made with success, with the same arguments, has its result already."""
    assert attempt.progress is not None
    known = {
        _key(call): one.results[call.id]
        for one in attempts[:-1]
        if one.progress
        for call in one.progress.made()
        if call.id in one.results and not one.results[call.id].is_error
    }
    for call_id, result in state.results.items():
        if call_id.startswith(attempt.prefix):
            attempt.results[call_id] = result
    attempt.progress.take(attempt.results, state.started)
    while calls := attempt.progress.calls():
        done = {call.id: known[_key(call)] for call in calls if _key(call) in known}
        if not done:
            break
        attempt.results |= done
        attempt.progress.take(attempt.results, state.started)
    return calls


def _key(call: ToolCall) -> str:
    return json.dumps([call.name, call.args], sort_keys=True, default=str)


def _done(attempt: Attempt) -> Notice:
    """What became of the steps, for the model, and for a person if no plan led to the goal."""
    assert attempt.plan is not None
    assert attempt.progress is not None
    lines: list[str] = [notice("plan.gave", "What the steps gave:")]
    for step in attempt.plan.steps:
        node = attempt.progress.nodes[step.name]
        how = _STATUS.get(node.status, node.status)
        said = plain_text(node.output)[:_LONGEST] if node.status == "done" else joined(" ", (how, node.error))
        wanted = (
            notice("plan.expected", " (expected: {outcome})", outcome=step.expected_outcome) if step.expected_outcome else ""
        )
        lines.append(joined("", (f"- {step.name}: ", said, wanted)))
    return joined("\n", lines)


def partial_output(attempts: list[Attempt]) -> Any:
    """What the steps of the last plan that was begun gave, by their names."""
    for attempt in reversed(attempts):
        if attempt.progress is not None:
            return {name: node.output for name, node in attempt.progress.nodes.items() if node.status == "done"}
    return None
