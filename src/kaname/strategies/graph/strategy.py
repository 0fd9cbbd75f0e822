"""Run a graph: a task starts the moment that what it waits for is done. Pure: the same results, the same calls."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from ...core.errors import ConfigError
from ...core.notices import join_notices, to_json
from ...core.state import State
from ...core.steps import CallTools, Finish, Step, Stop
from ...kernel.bases import StrategyBase, StrategyInfo
from .expression import BadExpression
from .progress import Progress
from .task import Graph, conditions

_MOST_KEPT = 64
_MOST_DRAWN = 500  # tasks

T = TypeVar("T")


class Kept(Generic[T]):
    """The folded states of the runs that were asked about last: one strategy may serve many runs at once."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, tuple[State, T]] = OrderedDict()

    def of(self, state: State, make: Callable[[], T]) -> T:
        known = self._held.get(id(state))
        if known is None or known[0] is not state:
            known = self._held[id(state)] = (state, make())
            if len(self._held) > _MOST_KEPT:
                self._held.popitem(last=False)
        self._held.move_to_end(id(state))
        return known[1]


class GraphStrategy(StrategyBase):
    """The parameters are the run's input: a JSON object."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._kept: Kept[Progress] = Kept()

    @property
    def info(self) -> StrategyInfo:  # type: ignore[override]
        """The graph as a list of tasks, to draw it. A huge graph is not drawn."""
        known = self.graph.by_name
        if len(known) > _MOST_DRAWN:
            return StrategyInfo()
        tasks = [
            {
                "name": one.name,
                "tool": one.use.tool,
                "after": list(self.graph.waits_for(one, known)),
                **({"conditions": told} if (told := to_json(conditions(one))) else {}),
            }
            for one in known.values()
        ]
        return StrategyInfo(graph=tasks)

    def next(self, state: State) -> Step:
        progress = self.progress(state)
        if calls := progress.calls():
            return CallTools(calls, as_completed=True, told=progress.brief(state))
        try:
            output = progress.output()
        except BadExpression as problem:
            return Finish(
                Stop("failed", "outputs: " + str(problem)), {name: one.output for name, one in progress.nodes.items()}
            )
        if progress.failure:
            return Finish(Stop("failed", progress.failure), output)
        failed = [f"{name}: " + node.error for name, node in progress.nodes.items() if node.status == "failed"]
        return Finish(Stop("degraded", join_notices("; ", failed)) if failed else Stop("completed"), output)

    def partial(self, state: State) -> Any:
        """Return the output so far of a run that has not ended."""
        return {name: node.output for name, node in self.progress(state).nodes.items() if node.status == "done"}

    def progress(self, state: State) -> Progress:
        """Return the progress that follows from the facts."""
        progress = self._kept.of(state, lambda: Progress(self.graph, params_of(state)))
        progress.take(state.results, state.started)
        if strangers := progress.strangers:
            raise ConfigError.of(
                "workflow.other",
                "this run contains calls that this workflow does not make ({listed}). Resume it with the workflow that "
                "started it",
                listed=", ".join(strangers[:5]),
            )
        return progress


def params_of(state: State) -> Mapping[str, Any]:
    given = [message for message in state.turn if message.role == "user"]
    try:
        held = json.loads(given[0].text) if given and given[0].text.strip() else {}
    except ValueError:
        held = {}
    return held if isinstance(held, dict) else {}
