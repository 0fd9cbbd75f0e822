"""Progress of a graph: what became of each task, and which calls are to be made now. Folded from results, always the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from ...core.messages import ToolCall, ToolResult
from ...core.notices import Notice, join_notices, notice
from ...core.record import field, mutable, record
from ...core.state import State
from .expression import BadExpression, Expression, fill_template
from .task import ALWAYS, ON_FAILURE, Graph, Task, Use

Status = Literal["waiting", "running", "done", "failed", "skipped", "undone"]


def undo_failed(name: str, error: str) -> Notice:
    return notice("workflow.undo_failed", "; undoing {name} failed: {error}", name=name, error=error)


@mutable
class Node:
    """A task and what became of it. Of a task for each item, `outputs` has what came of each."""

    task: Task
    open: int  # of what it waits for, not settled yet
    good: int = 0  # of them, done
    bad: int = 0
    used: int = 0  # with `needs`: what only its expressions speak of, not settled yet; these are not counted above
    lost: int = 0  # of these, not done
    counted: frozenset[str] = frozenset()  # with `needs`: what it counts
    status: Status = "waiting"
    output: Any = None
    error: str = ""
    items: list[Any] | None = None
    outputs: list[Any] = field(factory=list)
    left: int = 0  # items that are not settled
    left_out: bool = False  # some of them will never be begun

    def heed(self, name: str, good: bool) -> None:
        """Take in that a task it waits for is settled."""
        if self.task.needs and name not in self.counted:
            self.used, self.lost = self.used - 1, self.lost + (not good)
        else:
            self.open, self.good, self.bad = self.open - 1, self.good + good, self.bad + (not good)

    def as_json(self) -> dict[str, Any]:
        return {"status": self.status, "output": self.output, "error": self.error or None}


def _make_node(task: Task, waits: list[str]) -> Node:
    if not task.needs:
        return Node(task, len(waits))
    counted = frozenset(task.after)
    return Node(task, len(counted.intersection(waits)), used=len(set(waits) - counted), counted=counted)


@record
class Call:
    """One call of a task: of which item, in which round, at which try; itself, what stands in for it, or its undoing."""

    node: Node
    call: ToolCall
    place: int = 0
    round: int = 1
    attempt: int = 1
    kind: Literal["task", "fallback", "undo"] = "task"
    last: Any = None


class Progress:
    """`take` what came of calls; `calls` are those to be made, or under way; when there are none, all is done that can be."""

    def __init__(self, graph: Graph, params: Mapping[str, Any], prefix: str = "") -> None:
        self.graph, self.params, self._prefix = graph, params, prefix
        known = graph.by_name
        waits = {task.name: [name for name in graph.waits_for(task, known) if name in known] for task in graph.tasks}
        self.nodes = {task.name: _make_node(task, waits[task.name]) for task in graph.tasks}
        self._dependents: dict[str, list[str]] = {name: [] for name in self.nodes}
        for name, others in waits.items():
            for other in others:
                self._dependents[other].append(name)
        self._calls: dict[str, Call] = {}
        self._queue: deque[str] = deque()
        self._questions: deque[str] = deque()
        self._running: dict[str, ToolCall] = {}
        self._taken: set[str] = set()
        self._begun: set[str] = set()
        self._early: dict[str, ToolResult] = {}  # of undoings, which are not asked for before all else is done
        self._done: list[tuple[Node, int]] = []  # what could be undone, in the order in which it was done
        self._settling: deque[Node] = deque()
        self.failure = ""  # why no more tasks are started
        self._undo = False
        self.settled = 0
        for node in self.nodes.values():
            if not node.open and not node.used:
                self._begin(node)
        self._settle_all()

    # What came of calls

    def take(self, results: dict[str, ToolResult], started: Collection[str] = ()) -> None:
        """The results that are new: the newest are last, so that a long run costs no more than a short one. `started`: calls
        under way, now or when the process died; they are settled before anything else, whatever failed meanwhile."""
        new: list[str] = []
        for call_id in reversed(results):
            if call_id in self._taken:
                break
            new.append(call_id)
        self._begun = {*started, *new}  # what is done was begun, too
        for call_id in reversed(new):
            self._taken.add(call_id)
            self._running.pop(call_id, None)
            if (call := self._calls.get(call_id)) is not None:
                self._take_result(call, results[call_id])
                self._settle_all()
                self._leave_out()
            else:
                self._early[call_id] = results[call_id]
        for call_id in [one for one in started if one in self._calls and one not in self._taken and one not in self._running]:
            for waiting in (self._queue, self._questions):
                if call_id in waiting:
                    waiting.remove(call_id)
            self._running[call_id] = self._calls[call_id].call

    def _take_result(self, call: Call, result: ToolResult) -> None:
        task = call.node.task
        if call.kind == "undo":
            if result.error is not None:
                self.failure += undo_failed(task.name, result.error)
            elif call.node.status == "done":
                call.node.status = "undone"
            return
        if result.error is None:
            self._take_output(call, result.output)
        elif call.kind == "task" and call.attempt <= task.retries and result.retryable:
            self._issue(call.node, call.place, call.round, call.attempt + 1, last=call.last)
        elif call.kind == "task" and task.fallback is not None:
            self._issue(call.node, call.place, call.round, kind="fallback", last=call.last)
        else:
            self._item_failed(call.node, call.place, result.error)

    def _take_output(self, call: Call, output: Any) -> None:
        node, task = call.node, call.node.task
        if task.until is not None:
            try:
                holds = task.until.value(self._data(node, call.place, result=output, last=call.last, round=call.round))
            except BadExpression as problem:
                self._item_failed(node, call.place, str(problem))
                return
            if not holds:
                if call.round < task.rounds:
                    self._issue(node, call.place, call.round + 1, last=output)
                else:
                    message = notice(
                        "workflow.until",
                        "{text} was still false after {rounds} rounds",
                        text=task.until.text,
                        rounds=task.rounds,
                    )
                    self._item_failed(node, call.place, message)
                return
        node.outputs[call.place] = output
        if task.undo is not None:
            self._done.append((node, call.place))
        self._item_settled(node)

    def _item_failed(self, node: Node, place: int, error: str) -> None:
        where = f"[{place}]" if node.items is not None else ""
        error = f"{where} " + error if where else error
        node.error = join_notices("; ", (node.error, error)) if where and node.error else error
        self._item_settled(node)

    def _item_settled(self, node: Node) -> None:
        node.left -= 1
        if node.left == 0:
            self._settle(node, "failed" if node.error else "skipped" if node.left_out else "done")

    # What becomes of tasks

    def _settle(self, node: Node, status: Status) -> None:
        node.status = status
        if status == "done" or (status == "failed" and node.items is not None):
            node.output = node.outputs[0] if node.items is None else node.outputs
        self.settled += 1
        if status == "failed" and node.task.on_failure in ("stop", "compensate") and not self.failure:
            self.failure = notice("workflow.task_failed", "{name} failed: {error}", name=node.task.name, error=node.error)
            self._undo = node.task.on_failure == "compensate"
        self._settling.append(node)

    def _settle_all(self) -> None:
        """What waited for those that are settled is looked at, and what follows from that: without recursion, for a graph may
        be a chain of thousands."""
        while self._settling:
            node = self._settling.popleft()
            good = node.status == "done" or (node.status == "failed" and node.task.on_failure == "continue")
            for name in self._dependents[node.task.name]:
                other = self.nodes[name]
                other.heed(node.task.name, good)
                if other.status == "waiting":
                    self._look_at(other)

    def _look_at(self, node: Node) -> None:
        task = node.task
        if task.needs:
            if node.good + node.open < task.needs or (node.lost and task.when not in (ALWAYS, ON_FAILURE)):
                self._settle(node, "skipped")
            elif node.good >= task.needs and not node.used:
                self._begin(node)
        elif task.when in (ALWAYS, ON_FAILURE):
            if node.open == 0:
                self._begin(node) if task.when == ALWAYS or self._has_failed(node) else self._settle(node, "skipped")
        elif node.bad:
            self._settle(node, "skipped")
        elif node.open == 0:
            self._begin(node)

    def _has_failed(self, node: Node) -> bool:
        return any(self.nodes[name].status == "failed" for name in node.task.after)

    def _begin(self, node: Node) -> None:
        task = node.task
        try:
            if isinstance(task.when, Expression) and not task.when.value(self._data(node)):
                self._settle(node, "skipped")
                return
            if task.each is not None:
                items = fill_template(task.each, self._data(node))
                if not isinstance(items, list):
                    raise BadExpression(notice("expression.no_list", "for_each must be a list, not {items!r:.60}", items=items))
                node.items = items
        except BadExpression as problem:
            node.error = str(problem)
            self._settle(node, "failed")
            return
        count = 1 if node.items is None else len(node.items)
        node.status, node.left, node.outputs = "running", count, [None] * count
        if not count:
            self._settle(node, "done")
        for place in range(count):
            self._issue(node, place)

    # Calls

    def _issue(self, node: Node, place: int, round: int = 1, attempt: int = 1, *, kind: Any = "task", last: Any = None) -> None:
        task = node.task
        use: Use | None = {"task": task.use, "fallback": task.fallback, "undo": task.undo}[kind]
        assert use is not None
        own = {"last": last, "round": round} if kind != "undo" else {"result": node.outputs[place]}
        try:
            args = fill_template(use.args, self._data(node, place, **own))
        except BadExpression as problem:
            if kind == "undo":
                self.failure += undo_failed(task.name, str(problem))
            else:
                self._item_failed(node, place, str(problem))
            return
        marks = f"[{place}]" if node.items is not None else ""
        marks += f"@{round}" if round > 1 else ""
        marks += f"#{attempt}" if attempt > 1 else ""
        marks += {"task": "", "fallback": "?", "undo": "~"}[kind]
        call = ToolCall(f"{self._prefix}{task.name}{marks}", use.tool, args)
        self._calls[call.id] = made = Call(node, call, place, round, attempt, kind, last)
        if call.id in self._early:
            self._take_result(made, self._early.pop(call.id))
            return
        (self._questions if task.person and kind == "task" else self._queue).append(call.id)

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls to be made, and those under way. Once a task has failed for good, no other is
        begun. Questions come when nothing else is left to do. A task that runs alone waits for the others, and they for it."""
        self._start_some(self._queue)
        if not self._running:
            self._start_some(self._questions)
        while self._undo and self._done and not (self._running or self._queue or self._questions):  # all else is over
            self._issue(*self._done.pop(), kind="undo")
            self._start_some(self._queue)
        return tuple(self._running.values())

    def _start_some(self, waiting: deque[str]) -> None:
        while waiting and len(self._running) < self.graph.max_parallel and not self._is_alone():
            if self._running and self._calls[waiting[0]].node.task.alone:
                break
            self._start(waiting.popleft())

    def _leave_out(self) -> None:
        """Once a task has failed for good, only what is meant for that is still begun: `always`, `on_failure`, and undoing."""
        if not self.failure:
            return
        for waiting in (self._queue, self._questions):
            for call_id in [one for one in waiting if one not in self._begun and one not in self._taken]:
                call = self._calls[call_id]
                if call.kind != "undo" and call.node.task.when not in (ALWAYS, ON_FAILURE):
                    waiting.remove(call_id)
                    call.node.left_out = True
                    self._item_settled(call.node)
        self._settle_all()

    @property
    def strangers(self) -> list[str]:
        """Calls of this run that no task of this graph makes: it is not the graph that the run began with."""
        return [one for one in sorted({*self._early, *self._begun}) if one not in self._calls and not one.endswith("~")]

    def _is_alone(self) -> bool:
        return len(self._running) == 1 and self._calls[next(iter(self._running))].node.task.alone

    def _start(self, call_id: str) -> None:
        if call_id not in self._taken:  # what was done in an earlier life waits here, too
            self._running[call_id] = self._calls[call_id].call

    # What can be said of it

    def _data(self, node: Node, place: int = 0, **own: Any) -> Mapping[str, Any]:
        if node.items is not None:
            own |= {"item": node.items[place], "index": place}
        return Data(self, own)

    def output(self) -> Any:
        """Return the output of the graph, as far as it went."""
        if self.graph.outputs is not None:
            return fill_template(self.graph.outputs, Data(self, {}))
        last = [name for name, others in self._dependents.items() if not others]
        return self.nodes[last[0]].output if len(last) == 1 else {name: self.nodes[name].output for name in last}

    def brief(self, state: State) -> dict[str, Any]:
        """Return the progress in a few words, for readers of the stream."""
        running = dict.fromkeys([self._calls[call_id].node.task.name for call_id in self._running])
        return {
            "percent": round(100 * self.settled / max(1, len(self.nodes))),
            "done": self.settled,
            "of": len(self.nodes),
            "running": list(running),
            "seconds": round(state.spent.seconds, 3),
            "cost": state.spent.usage.cost,
        }

    def told(self) -> dict[str, dict[str, Any]]:
        return {name: node.as_json() for name, node in self.nodes.items()}

    def all_calls(self) -> list[ToolCall]:
        """All calls so far."""
        return [one.call for one in self._calls.values()]


class Data(Mapping[str, Any]):
    """The names that an expression can use: its own, `params`, `steps`, and the output of every task under its name."""

    def __init__(self, progress: Progress, own: Mapping[str, Any]) -> None:
        self._progress, self._own = progress, own

    def __getitem__(self, name: str) -> Any:
        if name in self._own:
            return self._own[name]
        if name == "params":
            return self._progress.params
        if name == "steps":
            return Steps(self._progress)
        if (node := self._progress.nodes.get(name)) is not None:
            return node.output
        return self._progress.params[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, "params", "steps", *self._progress.nodes, *self._progress.params])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        known = (self._own, self._progress.nodes, self._progress.params, ("params", "steps"))
        return any(name in held for held in known)


class Steps(Mapping[str, Any]):
    """`steps.NAME.status`, `.output`, `.error`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __getitem__(self, name: str) -> Any:
        return self._progress.nodes[name].as_json()

    def __iter__(self) -> Iterator[str]:
        return iter(self._progress.nodes)

    def __len__(self) -> int:
        return len(self._progress.nodes)
