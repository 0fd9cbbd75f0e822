"""Plan, execute, evaluate, and plan again with what was learnt, until the task is done or cancelled with a reason.

It always ends: revisions are counted, and time and money have their own limits. Pure, like every strategy: which plan is at
work, how far it is, and what was said of it, follows from the replies and results so far.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Literal, cast

from ..core.calls import call_key
from ..core.messages import ToolCall, ToolResult
from ..core.notices import Notice, join_notices, notice
from ..core.people.answers import NO, read_decision
from ..core.people.todo import todo_of_plan
from ..core.record import field, mutable, record
from ..core.state import State
from ..core.steps import CallModel, CallTools, Finish, Step, Stop
from ..core.values import plain_text
from ..kernel.bases import StrategyBase, StrategyInfo, options_of
from ..kernel.boundary import Border
from ..kernel.effects import is_skipped
from ..kernel.ports import Action
from .graph.asking import EvaluationResult, Form, ask_for_verdict
from .graph.bounds import bounds_of
from .graph.plan import BadPlan, ExecutionPlan, graph_of, plan_from, read_plan, told_plan, values_of
from .graph.progress import Progress
from .graph.strategy import Kept
from .graph.task import Graph, Use, uses_results

_LONGEST = 2_000  # characters of one result, as the judge reads it
PLANNER, MONITOR = "planner:generate_plan", "monitor:evaluate_result"  # the calls that ask parts of the user's own
GENERATE, EVALUATE = "?generate", "?evaluate"  # how the ids of calls to a planner and a monitor end: no step is called that
_NO_REASON = notice("plan.cannot", "the evaluation found the task impossible and gave no reason")
_REPEATED = ("pure", "idempotent")  # effects of tools that a new plan calls again
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
    reused: set[str] = field(factory=set)  # ids of calls whose results are those of an earlier plan
    verdict: EvaluationResult | None = None
    problem: str = ""  # why it was not carried out
    reply: int = 0  # the number of the reply, of this turn, that is the plan

    @property
    def prefix(self) -> str:
        return f"plan{self.number}."

    def step_outcomes(self) -> dict[str, dict[str, Any]]:
        """Return the outcomes of its steps. A step that reuses the call of an earlier plan is marked as `reused`."""
        told = {} if self.progress is None else self.progress.told()
        return {name: {**one, "reused": True} if self.prefix + name in self.reused else one for name, one in told.items()}


@record
class Orchestrate(StrategyBase):
    """`misuse`: what is wrong with the use of one of the tools. `approve`: a person sees every plan before it is carried out.

    `limits`: of the whole run, by their kind: `deadline` in seconds, `budget` in dollars. `planner`, `monitor`: the tools that
    plan and evaluate in the place of the model; what they say is the result of a call, so that it is recorded.
    """

    tools: Mapping[str, Action]
    misuse: Callable[[Use, Mapping[str, Action]], Iterable[str]]
    ask: str
    max_revisions: int = 3
    judges: bool = True
    approve: bool = False
    rules: tuple[Judge, ...] = ()
    form: Callable[[], Form] = Form
    limits: Callable[[], Mapping[str, float]] = dict
    planner: str = ""
    monitor: str = ""
    kept: Kept[list[Attempt]] = field(factory=Kept)

    @property
    def about(self) -> StrategyInfo:  # type: ignore[override]
        """The kind says which of plans and verdicts are replies of the model."""
        own = ", ".join([part for part in (self.planner, self.monitor) if part])
        return StrategyInfo(f"{type(self).__name__}({own})" if own else "")

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
            written = self._next_plan(attempts, feedback, replies, state)
            if not isinstance(written, str | Mapping):
                return attempts, written
            if len(attempts) == len(kept):
                kept.append(Attempt(len(kept) + 1))
            attempts.append(attempt := kept[len(attempts)])
            attempt.reply = len(state.replies) - len(replies)
            outcome = self._carried_out(attempt, attempts, written, replies, state)
            if not isinstance(outcome, str):
                return attempts, outcome
            feedback = outcome
        why = notice(
            "plan.no_more",
            "no plan reached the goal after {revisions} revisions: {feedback}",
            revisions=self.max_revisions,
            feedback=feedback,
        )
        return attempts, Finish(Stop("cancelled", why), partial_output(attempts))

    def _next_plan(
        self, attempts: list[Attempt], feedback: str, replies: list[str], state: State
    ) -> str | Mapping[str, Any] | Step:
        """The next plan as it was written; or the step that asks for it."""
        if not self.planner:
            return replies.pop(0) if replies else self._ask_for_a_plan(feedback)
        said = self._said_by(self.planner, f"plan{len(attempts) + 1}{GENERATE}", attempts, state)
        if not isinstance(said, Mapping):
            return said
        if "plan" in said:
            return cast(Mapping[str, Any], said["plan"])
        stop = Stop("completed") if said["completed"] else Stop("cancelled", said["reason"] or _NO_REASON)
        return Finish(stop, partial_output(attempts))

    def _said_by(self, part: str, call_id: str, attempts: list[Attempt], state: State) -> Mapping[str, Any] | Step:
        """Return the output of the user's own planner or monitor, or the call that asks it."""
        said = state.results.get(call_id)
        if said is None:
            return CallTools((ToolCall(call_id, part, {}),))
        if said.is_error or not isinstance(said.output, Mapping):
            why = notice(
                "plan.part", "{part} returned no usable result: {problem}", part=part, problem=said.error or said.output
            )
            return Finish(Stop("failed", why), partial_output(attempts))
        return said.output

    def _carried_out(
        self, attempt: Attempt, attempts: list[Attempt], written: str | Mapping[str, Any], replies: list[str], state: State
    ) -> Step | str:
        """The next step of this attempt; or, as a text, what the next plan has to know."""
        if attempt.graph is None and not attempt.problem:
            try:
                attempt.plan = read_plan(written) if isinstance(written, str) else plan_from(written)
                attempt.graph = self.build_graph(attempt.plan)
            except BadPlan as problem:
                told = str(problem)
                attempt.problem = notice("plan.impossible", "the plan cannot be run:\n{problem}", problem=told)
        if attempt.graph is None or attempt.plan is None:
            return attempt.problem
        if self.approve and (asked := self._approval(attempt, state)) is not None:
            return asked
        attempt.progress = attempt.progress or Progress(attempt.graph, values_of(attempt.plan), attempt.prefix)
        if calls := self._calls(attempt, attempts, state):
            return CallTools(calls, as_completed=True, told=self._describe_progress(attempt, attempt.progress, state))
        if self.monitor:
            said = self._said_by(self.monitor, f"plan{attempt.number}{EVALUATE}", attempts, state)
            return self._decide(attempts, EvaluationResult(**said)) if isinstance(said, Mapping) else said
        return self._judge(attempts, replies)

    def build_graph(self, plan: ExecutionPlan) -> Graph:
        """Return the graph of a plan that can be carried out. Raises `BadPlan`."""
        pure = {name for name, tool in self.tools.items() if tool.effect == "pure"}
        graph = graph_of(plan, lambda use: self.misuse(use, self.tools), pure.__contains__)
        self._check_time(graph)
        return graph

    def _calls(self, attempt: Attempt, attempts: list[Attempt], state: State) -> tuple[ToolCall, ...]:
        """Return the calls to make. If an earlier plan made the same call and repeating it would repeat an effect,
        its result is reused; other calls are repeated. A call that a person skipped may have had its effect."""
        assert attempt.progress is not None
        effects = self._effects()
        known = {
            self._key(call): result
            for one in attempts[:-1]
            if one.progress
            for call in one.progress.all_calls()
            if (result := one.results.get(call.id)) is not None and effects.get(call.name) not in _REPEATED
            if not result.is_error or is_skipped(result)
        }
        for call_id, result in state.results.items():
            if call_id.startswith(attempt.prefix):
                attempt.results[call_id] = result
        attempt.progress.take(attempt.results, state.started)
        while calls := attempt.progress.calls():
            done = {call.id: known[key] for call in calls if (key := self._key(call)) in known}
            if not done:
                break
            attempt.results |= done
            attempt.reused |= done.keys()
            attempt.progress.take(attempt.results, state.started)
        return calls

    def _describe_progress(self, attempt: Attempt, progress: Progress, state: State) -> dict[str, Any]:
        """Return the progress, with the steps as things to do; at the beginning the plan, unless a person has just seen it."""
        items = todo_of_plan({name: node.status for name, node in progress.nodes.items()})
        told = {"plan": attempt.number, **progress.brief(state), "items": items}
        fresh = not self.approve and not _is_begun(progress, state)
        return (
            {**told, "steps": told_plan(cast(ExecutionPlan, attempt.plan), progress.graph, self._effects())} if fresh else told
        )

    def _key(self, call: ToolCall) -> Hashable:
        return call_key(call, self.tools.get(call.name))

    def _effects(self) -> dict[str, str]:
        return {name: tool.effect for name, tool in self.tools.items()}

    def _check_time(self, graph: Graph) -> None:
        """Check that the timeouts of the steps fit into the time of the task."""
        named, limit = bounds_of(graph, self.tools).named, self.limits().get("deadline")
        if limit is not None and named > limit:
            raise BadPlan(
                notice(
                    "plan.time",
                    "- the timeouts of the steps add up to {named:g} s, but the whole task has {limit:g} s",
                    named=named,
                    limit=limit,
                )
            )

    def _bounds(self, graph: Graph) -> Notice:
        limits = self.limits()
        whole = [notice("plan.seconds", "{seconds:g} s", seconds=limits["deadline"])] if "deadline" in limits else []
        whole += [notice("plan.money", "${budget:g}", budget=limits["budget"])] if "budget" in limits else []
        message = notice("plan.bounds", "In total: {bounds}.", bounds=bounds_of(graph, self.tools).describe())
        ends = join_notices(notice("plan.or", " or "), whole)
        return message + notice("plan.ends", " The task stops after {ends}.", ends=ends) if whole else message

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
        answer = said.output if said.error is None else state.answers.get(f"task:{call_id}", NO)  # an error: it was declined
        decision = read_decision(answer)
        wish = plain_text(answer) if decision is None else decision.reason
        if decision is not None and decision.approved and decision.args is None:
            return None
        if not wish:
            return Finish(Stop("cancelled", notice("plan.not_approved", "the user did not approve the plan")))
        attempt.problem = notice("plan.another", "the user asked for a different plan: {wish}", wish=wish)
        return attempt.problem

    def _judge(self, attempts: list[Attempt], replies: list[str]) -> Step | str:
        """Rules first: what failed, what a rule objects to. Then the model."""
        attempt = attempts[-1]
        assert attempt.plan is not None
        assert attempt.progress is not None
        told = attempt.step_outcomes()
        failed = {name: one["error"] for name, one in told.items() if one["status"] == "failed"}
        if failed:
            listed = join_notices("\n", [f"- {name}: " + error for name, error in failed.items()])
            steps = notice(
                "plan.steps_failed", "steps failed:\n{listed}\n{done}", listed=listed, done=_describe_results(attempt)
            )
            attempt.verdict = EvaluationResult(should_retry=True, feedback=steps)
            return attempt.verdict.feedback
        for rule in self.rules:
            with Border() as border:
                verdict = rule(attempt.plan, told)
            if border.failure or not isinstance(verdict, EvaluationResult | None):
                why = border.failure or f"it returned {verdict!r:.100}, which is not an EvaluationResult"
                name = getattr(rule, "__name__", type(rule).__name__)
                stop = Stop("failed", notice("plan.rule", "the rule {name} failed: {why}", name=name, why=why))
                return Finish(stop, partial_output([attempt]))
            if verdict is not None:
                return self._decide(attempts, verdict)
        if not self.judges:
            return self._decide(attempts, EvaluationResult(is_successful=True))
        form = self.form()
        said = ask_for_verdict(form, f"{_describe_results(attempt)}\n{form.done}", replies)
        return said if isinstance(said, CallModel) else self._decide(attempts, said)

    def _decide(self, attempts: list[Attempt], verdict: EvaluationResult) -> Step | str:
        """Another plan, the end with success, or cancelled: in this order, as the design has it."""
        attempt = attempts[-1]
        attempt.verdict = verdict
        assert attempt.progress is not None
        if verdict.should_retry:
            return join_notices("\n", (verdict.feedback, _describe_results(attempt)))
        if verdict.is_successful:
            return Finish(Stop("completed"), verdict.answer or attempt.progress.output())
        why = verdict.reason or verdict.feedback or _NO_REASON
        return Finish(Stop("cancelled", why), partial_output(attempts))

    def plan_tools(self) -> list[Action]:
        """The tools that a plan may use."""
        options = {name: options_of(tool) for name, tool in self.tools.items() if name != self.ask}
        return [self.tools[name] for name, one in options.items() if one.listed and not one.loads_tools]

    def planning_prompt(self) -> str:
        """Return the prompt that describes the form of a plan and lists its tools."""
        listed = "\n".join(
            [
                f"- {one.name}: {one.description}. Arguments: {json.dumps(one.parameters, ensure_ascii=False)}"
                for one in self.plan_tools()
            ]
        )
        return self.form().planning.replace("{tools}", listed)

    def _ask_for_a_plan(self, feedback: str) -> CallModel:
        form = self.form()
        note = f"{feedback}\n{form.again}" if feedback else ""
        return CallModel(tools=False, schema=form.plan, note=note, instructions=self.planning_prompt(), shown=False)

    def planned_at(self, call_id: str, state: State) -> int:
        """Return the number of the reply that planned a call. A plan that a person has approved is the person's.

        A call with values from earlier results is decided only now: the number is that of the next reply.
        """
        for attempt in self.kept.of(state, list):
            if call_id.startswith(attempt.prefix) and not self.approve:
                if attempt.graph is not None and uses_results(call_id.removeprefix(attempt.prefix), attempt.graph):
                    return state.replied + 1
                return state.replied if self.planner else state.replied - len(state.replies) + attempt.reply
        return 0

    def time_of(self, call_id: str, state: State) -> float | None:
        """Return the seconds that the plan allows this call; None if it names no limit, or the call is not a plan's."""
        for attempt in self.kept.of(state, list):
            if attempt.graph is not None and call_id.startswith(attempt.prefix):
                task = attempt.graph.by_name.get(call_id.removeprefix(attempt.prefix))
                return None if task is None else task.timeout
        return None


def phase_of(attempts: list[Attempt], step: Step, state: State) -> Phase:
    """Return the phase of a task. A plan that waits for approval is still being planned; evaluation by rules takes no time."""
    if state.stop is not None:
        return "completed" if state.stop.kind == "completed" else "cancelled"
    if isinstance(step, CallModel):
        judged = not attempts or attempts[-1].problem or attempts[-1].verdict is not None
        return "planning" if judged else "evaluation"
    asked = step.calls[0].id if isinstance(step, CallTools) and step.calls else ""
    begun = attempts[-1].progress if attempts else None
    if begun is None or asked.endswith(GENERATE):
        return "planning"
    if asked.endswith(EVALUATE) or isinstance(step, Finish):
        return "evaluation"
    return "monitoring" if _is_begun(begun, state) else "execution"


def _is_begun(progress: Progress, state: State) -> bool:
    return any(call.id in state.started or call.id in state.results for call in progress.all_calls())


def _describe_results(attempt: Attempt) -> Notice:
    return told_results(attempt.plan, attempt.step_outcomes())


def told_results(plan: ExecutionPlan | None, told: Mapping[str, Mapping[str, Any]]) -> Notice:
    """Return the results of the steps as text, for the model, and for a person if no plan led to the goal."""
    lines: list[str] = [notice("plan.gave", "What the steps gave:")]
    expected = {step.name: step.expected_outcome for step in plan.steps} if plan else {}
    for name, node in told.items():
        how = _STATUS.get(node["status"], node["status"])
        gave = plain_text(node["output"])[:_LONGEST]
        said = gave if node["status"] == "done" else join_notices(" ", (how, node["error"] or ""))
        wanted = notice("plan.expected", " (expected: {outcome})", outcome=outcome) if (outcome := expected.get(name)) else ""
        kept = notice("plan.reused", " (from an earlier plan: the call was not repeated)") if node.get("reused") else ""
        lines.append(join_notices("", (f"- {name}: ", said, kept, wanted)))
    return join_notices("\n", lines)


def partial_output(attempts: list[Attempt]) -> Any:
    """Return the outputs of the last plan that was begun, by the names of its steps."""
    for attempt in reversed(attempts):
        if attempt.progress is not None:
            return {name: node.output for name, node in attempt.progress.nodes.items() if node.status == "done"}
    return None
