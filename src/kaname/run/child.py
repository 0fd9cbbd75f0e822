"""Child runs: an agent run inside a tool call, on the parent's journal, within its limits; questions are passed up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

from ..core.errors import (
    AgentError,
    ConfigError,
    InvalidState,
    JournalError,
    Released,
    RunBusy,
    RunNotFound,
    Suspend,
    UnexpectedError,
)
from ..core.events import Asked
from ..core.messages import NOTHING
from ..core.notices import join_notices, notice
from ..core.people.labels import FLOW
from ..core.record import replace
from ..core.runs import RunInfo
from ..core.state import State
from ..core.steps import Step, Stop
from ..kernel.bases import SinkBase, bound_of, optional
from ..kernel.chain import in_order
from ..kernel.family import Family
from ..kernel.load import load
from ..kernel.ports import Journal, Recipe, Sink, StopRule, ToolContext
from ..kernel.scope import Scope
from ..people.answers import AGAIN, Given, asked_key
from ..policies.money.funds import purse_of

if TYPE_CHECKING:
    from .result import Result
    from .run import Run

T = TypeVar("T")
_PAUSE = 0.2  # seconds between two looks at a child that is busy
_SHARED = ("budget", "deadline")  # what a child spends is its parent's


class Parent(NamedTuple):
    """The run and the call that open a child, and what they lend to it."""

    run_id: str
    call_id: str
    deps: Any
    user: str = ""
    first: bool = False  # the call is tried for the first time: there can be no such child yet
    sinks: tuple[Sink, ...] = ()  # those that tell of the children too
    by: str = ""  # the person who started the parent for the user
    seen: int | None = None  # the last fact of the child that readers of the parent have seen, if they are to see it


class Runnable(Protocol):
    """An agent, a workflow or an orchestrator, as far as its parent's tool needs it."""

    @property
    def name(self) -> str: ...
    @property
    def recipe(self) -> Recipe: ...
    def run_on(
        self, journal: Journal, recipe: Recipe, run_id: str, given: Any, answers: Mapping[str, Any], parent: Parent
    ) -> Run[Any]: ...


async def run_child(scope: Scope, context: ToolContext, agent: Runnable, user_input: Any, name: str) -> Result:
    """Start it, or go on with it: it is named after the call and the agent, so that a second try of the call finds it."""
    child_id, family = _name_child(scope, context, agent, name), scope.family(context.call_id)
    answers = await answers_for(scope, child_id)
    resumed = any(key.startswith(f"{scope.run_id}/{context.call_id}/") for key in scope.state.answers)  # of any of its children
    first = not resumed and context.attempt == 1 == scope.state.attempt  # a stopped run may have opened it before
    known = [] if first else await scope.journal.runs(run_id=child_id, limit=1)
    recipe = recipe_within(scope, child_id, agent.recipe, await seconds_so_far(scope, known))
    parent = parent_of(scope, context.call_id, first=first, seen=known[0].seq if known else 0)

    def open_run() -> Run[Any]:
        """Open the child. It is one of the family before it begins: what it spends counts, even if it is cut off at once."""
        if scope.stopping:
            _raise_released(family)
        opened = agent.run_on(scope.journal, recipe, child_id, user_input, answers, parent).relay_to(scope.channel)
        family.children[child_id] = opened
        keep_while_live(opened, scope.children, scope.tasks)
        return opened

    run = open_run()
    try:
        while await _is_busy(run):
            await asyncio.sleep(_PAUSE)
            run = open_run()
        with fails_with_the_journal(scope, context.call_id):
            result = await run.detach()
    except asyncio.CancelledError:
        another_asks = family.question is not None
        try:
            if another_asks and not scope.leaves_resumable():
                await run.wait()  # this child is not cut off for that
        finally:
            await _leave(run, resumable=scope.leaves_resumable() or another_asks)
        raise
    except UnexpectedError as problem:  # its own record tells which; its parent's model and readers need not know
        family.untrusted = True
        raise UnexpectedError(_programs_fault(agent.name, child_id)) from problem
    except InvalidState as unusable:  # an answer that does not fit, such as other arguments: the question is asked once more
        await _ask_again(child_id, str(unusable), scope, context)
        raise
    if scope.stopping and result.stop.kind == "released":
        await _release(scope, family)
    for key, asked in result.questions.items():
        _pass_up(f"{child_id}:{key}", asked, scope, context)
    if FLOW in result.state.custom:
        family.untrusted = True
    return result


def keep_while_live(run: Run[Any], runs: set[Any], tasks: set[Any]) -> None:
    """Start a child, and keep it among `runs` until it is over. Then keep the tasks in the background that it has left."""

    def end() -> None:
        runs.discard(run)
        tasks.update(run.tasks)

    runs.add(run)
    run.over(end)


async def _release(scope: Scope, family: Family) -> NoReturn:
    """Raise `Released` when the other children of the call are over, too: the tool may cut them for it."""
    for other in scope.children.intersection(family.children.values()):
        await other.wait()
    _raise_released(family)


def _raise_released(family: Family) -> NoReturn:
    """Raise `Released`, because a child is released with its parent: also after a tool that catches it."""
    family.failure = Released()
    raise family.failure


@contextmanager
def fails_with_the_journal(scope: Scope, call_id: str) -> Iterator[None]:
    """Fail the run, and not only its call, if the journal could not record a child inside: the run is resumed, and so is the
    child. For the model, the work has not failed."""
    try:
        yield
    except RunNotFound:
        raise
    except JournalError as problem:
        scope.family(call_id).failure = problem
        raise


def parent_of(scope: Scope, call_id: str, *, first: bool = False, seen: int | None = None) -> Parent:
    """Return the parent of a child: a run and a call, with the things that they lend."""
    state = scope.state
    return Parent(scope.run_id, call_id, scope.deps, state.user, first, sinks_of_children(scope), state.by, seen)


async def answers_for(scope: Scope, child_id: str) -> dict[str, Given]:
    """Return the answers to a child's questions that were asked in the run. Of several to one question, the last counts."""
    given = _answers_given(scope, child_id)
    if not any(AGAIN in key for key in given):
        return given
    child = await load(scope.journal, child_id)
    return {asked_key(key, {**child.questions, **child.answers}): answer for key, answer in given.items()}


def _answers_given(scope: Scope, child_id: str) -> dict[str, Given]:
    prefix, by = f"{child_id}:", scope.state.answered_by
    given = [(key, Given(answer, by.get(key, ""))) for key, answer in scope.state.answers.items() if key.startswith(prefix)]
    return {key.removeprefix(prefix): one for key, one in given}


def sinks_of_children(scope: Scope) -> tuple[Sink, ...]:
    return tuple([sink for sink in scope.sinks if "children" in optional(sink, SinkBase, "wants")])


async def seconds_so_far(scope: Scope, known: Sequence[RunInfo]) -> float:
    """Return the working time of a child that is resumed: its parent has counted it already."""
    return (await load(scope.journal, known[0].run_id)).spent.seconds if known else 0.0


def recipe_within(scope: Scope, child_id: str, recipe: Recipe, seconds: float, *, apart: bool = False) -> Recipe:
    """Return a child's recipe with the limits and policies of its parent that hold for it. It keeps its memo.

    `seconds`: its working time before it is resumed. `apart`: the call that opens it does not wait for it, so it has to watch
    the time itself.
    """
    limits = (*_shared_limits(scope, child_id, seconds, apart), *recipe.stops)
    inherited = [policy for one in scope.policies() if (policy := one.for_child(scope)) is not None]
    return replace(recipe, stops=limits, policies=in_order((*inherited, *recipe.policies)))


def _name_child(scope: Scope, context: ToolContext, agent: Runnable, name: str) -> str:
    """Return the id of a child that this attempt of the call has not opened yet."""
    if not callable(getattr(agent, "run_on", None)):
        raise ConfigError.of(
            "child.what", "run_child() expects an Agent, Workflow or AgentOrchestrator, not {given!r:.100}", given=agent
        )
    child_id = f"{scope.run_id}/{context.call_id}/{name or agent.name}"
    opened = scope.family(context.call_id).opened
    if (context.attempt, child_id) in opened:
        raise ConfigError.of(
            "child.twice",
            "this call has already started the child {child_id}. Give the second one a name: run_child(…, name=…)",
            child_id=child_id,
        )
    opened.add((context.attempt, child_id))
    return child_id


def _programs_fault(name: str, child_id: str) -> str:
    return notice(
        "child.failed", "{agent} failed because of a bug in its program: see run {run_id}", agent=name, run_id=child_id
    )


async def _ask_again(child_id: str, why: str, scope: Scope, context: ToolContext) -> None:
    """Pass up the first question whose answers could not be used, with the reason."""
    child, given = await load(scope.journal, child_id), _answers_given(scope, child_id)
    known = {**child.questions, **child.answers}
    for key, asked in child.questions.items():
        if times := len([one for one in given if asked_key(one, known) == key]):
            told = replace(asked, prompt=join_notices("\n", (why, asked.prompt)))
            _pass_up(f"{child_id}:{key}{AGAIN}{times}", told, scope, context)


async def _is_busy(run: Run[Any]) -> bool:
    """Begin a child. Return True if another process executes it, or a tool of it is still at work: it is waited for. As an
    error it would make the model delegate the same work again."""
    try:
        await run.begun()
    except RunBusy:
        return True
    except AgentError:  # told by the run itself
        pass
    return False


async def _leave(run: Run[Any], *, resumable: bool) -> None:
    """Stop executing a child when its parent's call is cancelled: leave it resumable, or abort it."""
    if not resumable:
        run.abort()
    with suppress(AgentError):  # one that was busy has never begun; its error must not take the cancellation's place
        await (run.let_go() if resumable else run)


def _pass_up(key: str, asked: Asked, scope: Scope, context: ToolContext) -> NoReturn:
    """Ask a child's question in its parent, even if the tool catches what is raised here."""
    question = scope.family(context.call_id).question = question_as(key, asked)
    raise question


def question_as(key: str, asked: Asked) -> Suspend:
    """Return the question of a child as its parent asks it."""
    terms: dict[str, Any] = {"in_doubt": asked.in_doubt, "about": asked.about, "by": asked.by, "rules": asked.rules}
    return Suspend(key, asked.prompt, asked.options, **terms, until=asked.until, then=asked.then)


class SharedLimit:
    """A parent's limit on money or time, judged by what it, this child and the others have spent. It may be a limit that the
    parent shares with its own parent."""

    def __init__(self, rule: StopRule, scope: Scope, child_id: str, seconds: float = 0.0, apart: bool = False) -> None:
        self._rule, self._scope, self._child_id = rule, scope, child_id
        self._begun = scope.state.spent.seconds - seconds  # children work at the same time: theirs is not added up
        bound = bound_of(rule)
        limit = rule.left if isinstance(rule, SharedLimit) else bound.most
        self.left: float | None = limit - self._begun if limit and bound.kind == "deadline" else None  # seconds
        self.bound = replace(
            bound,
            most=self.left if apart else None,  # else the parent's stands around the whole child
            is_default=False,
            root=bound.root or rule,  # the one that a person has written
            purse=bound.purse or purse_of(scope),
            left=lambda state: bound.dollars_left(self._family_state(state)),
        )

    def __call__(self, state: State, step: Step) -> Stop | None:
        return self._rule(self._family_state(state), step)

    def _family_state(self, state: State) -> State:
        """Return the state of the child with what its parent and the other children have spent."""
        usage = state.spent.usage + self._scope.state.spent.usage
        for family in self._scope.families.values():
            usage += family.charged
            usage += sum([one.usage for child_id, one in family.children.items() if child_id != self._child_id], NOTHING)
        return replace(state, spent=replace(state.spent, usage=usage, seconds=state.spent.seconds + self._begun))


def _shared_limits(scope: Scope, child_id: str, seconds: float, apart: bool) -> tuple[StopRule, ...]:
    found = [rule for rule in scope.stops if bound_of(rule).kind in _SHARED]
    return tuple([SharedLimit(rule, scope, child_id, seconds, apart) for rule in found])
