"""The fold of a graph: random graphs, failures, orders of completion and deaths; expressions, good and hostile."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname.core.messages import ToolResult
from kaname.strategies.graph.check import problems
from kaname.strategies.graph.expression import BadExpression, Expression, fill_template, template
from kaname.strategies.graph.progress import Progress
from kaname.strategies.graph.task import ALWAYS, ON_FAILURE, Graph, Task, Use
from tests.properties import tries


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 12))
    tasks = []
    for n in range(count):
        after = tuple([f"t{m}" for m in draw(st.sets(st.integers(0, n - 1), max_size=3))]) if n else ()
        whens = ["", ALWAYS, *([ON_FAILURE] if after else []), Expression("params.yes"), Expression("not params.yes")]
        used = [f"${{t{m}}}" for m in draw(st.sets(st.integers(0, n - 1), max_size=2))] if n else []
        tasks.append(
            Task(
                f"t{n}",
                Use("tool", template({"n": n, "of": "${params.yes}", "used": used})),
                after=after,
                when=draw(st.sampled_from(whens)),
                needs=draw(st.integers(0, len(after))),
                each=draw(st.sampled_from([None, None, [], [1, 2, 3]])),
                retries=draw(st.integers(0, 2)),
                on_failure=draw(st.sampled_from(["stop", "skip", "continue", "compensate"])),
                fallback=draw(st.sampled_from([None, Use("other")])),
                undo=draw(st.sampled_from([None, Use("undo", template({"was": "${result}"}))])),
                alone=draw(st.booleans()) and n % 3 == 0,
                person=draw(st.booleans()) and n % 4 == 0,
            )
        )
    return Graph("g", tuple(tasks), max_parallel=draw(st.integers(1, 5)), params=("yes",))


@tries(150)
@given(graphs(), st.booleans(), st.data())
def test_graph_always_ends_and_keeps_its_promises(graph, yes, data):
    """Whatever fails, in whatever order things are done, and wherever it dies."""
    assert problems(graph) == [] or all("never run" in one.text for one in problems(graph))
    progress, results, made = Progress(graph, {"yes": yes}), {}, []
    for _ in range(500):
        calls = progress.calls()
        if not calls:
            break
        assert len(calls) <= graph.max_parallel
        assert len(calls) == 1 or not any(_task(call.id, graph).alone for call in calls)
        for call in calls:
            if call.id not in made:
                made.append(call.id)
                _may_start(call.id, graph, progress)
        done = data.draw(st.sampled_from([call.id for call in calls]))
        failed = data.draw(st.booleans())
        results[done] = ToolResult(None if failed else done, "broken" if failed else None, call_id=done)
        progress.take(results)
        if data.draw(st.integers(0, 5)) == 0:  # the process dies, and another folds the same facts
            again = Progress(graph, {"yes": yes})
            flying = [call.id for call in calls if call.id != done]
            again.take(results, flying)
            assert {call.id for call in again.calls()} >= {call.id for call in calls if call.id != done}
            assert bool(again.calls()) == bool(progress.calls())
            assert again.told() == progress.told()
            assert again.failure == progress.failure
            progress = again
    else:
        raise AssertionError("it does not end")
    assert len(made) == len(set(made))
    told = progress.told()
    if not progress.failure:
        assert progress.settled == len(graph.tasks)
        assert all(one["status"] in ("done", "failed", "skipped", "undone") for one in told.values())
    for name, one in told.items():
        if one["status"] == "failed" and graph.by_name[name].on_failure in ("stop", "compensate"):
            assert progress.failure


def _task(call_id, graph):
    return graph.by_name[call_id.split("[")[0].rstrip("?~").partition("#")[0]]


def _may_start(call_id, graph, progress):
    """It is not begun before what it waits for is settled as it wants it."""
    if call_id.endswith("~"):
        return
    task = _task(call_id, graph)
    states = [progress.nodes[name] for name in task.after]
    good = [
        node for node in states if node.status == "done" or (node.status == "failed" and node.task.on_failure == "continue")
    ]
    if task.needs:
        assert len(good) >= task.needs
    elif task.when in (ALWAYS, ON_FAILURE):
        assert all(node.status in ("done", "failed", "skipped") for node in states)
    else:
        assert len(good) == len(states)
    for node in [progress.nodes[name] for name in graph.waits_for(task, graph.by_name) if name not in task.after]:
        assert node.status in ("done", "failed", "skipped"), "what its arguments use is settled, whatever it needs"
        carries_on = node.status == "failed" and node.task.on_failure == "continue"
        assert node.status == "done" or carries_on or task.when in (ALWAYS, ON_FAILURE)


@tries(150)
@given(graphs(), st.data())
def test_graph_undoes_what_was_done_in_reverse_and_nothing_else(graph, data):
    progress, results, finished, undone = Progress(graph, {"yes": True}), {}, [], []
    for _ in range(500):
        calls = progress.calls()
        if not calls:
            break
        done = data.draw(st.sampled_from([call.id for call in calls]))
        if done.endswith("~"):
            undone.append(done[:-1])
        failed = not done.endswith("~") and data.draw(st.integers(0, 3)) == 0
        results[done] = ToolResult(None if failed else done, "broken" if failed else None, call_id=done)
        task = _task(done, graph)
        if not failed and not done.endswith("~") and task.undo is not None:
            finished.append(done.rstrip("?").partition("#")[0])
        progress.take(results)
    assert undone in ([], finished[::-1])


def test_chain_of_thousands_is_no_recursion():
    tasks = [Task("t0", Use("x"))]
    tasks += [Task(f"t{n}", Use("x"), after=(f"t{n - 1}",), when=Expression("false") if n == 1 else "") for n in range(1, 5000)]
    progress = Progress(Graph("g", tuple(tasks)), {})
    progress.calls()
    progress.take({"t0": ToolResult(1, call_id="t0")})
    assert progress.settled == 5000


# Expressions

DATA = {"rows": [1, 2, 3], "user": {"name": "Ann", "age": 30}, "none": None, "text": "abc"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rows[0] + rows[-1]", 4),
        ("user.name == 'Ann' and user.age >= 18", True),
        ("user['name'] in ['Ann', 'Bob']", True),
        ("none == null or false", True),
        ("none or 'x'", "x"),
        ("'yes' if rows[2] > 2 else 'no'", "yes"),
        ("1 < rows[1] < 3", True),
        ("not (text == 'abc')", False),
        ("text + 'd'", "abcd"),
        ("7 // 2 * 2 % 4 - -1", 3),
        ("rows", [1, 2, 3]),
    ],
)
def test_expression_has_its_value(text, value):
    assert Expression(text).value(DATA) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "user.__class__",
        "rows.__len__()",
        "(lambda: 1)()",
        "[x for x in rows]",
        "{1: 2}",
        "f'{user}'",
        "9 ** 9 ** 9",
        "1 << 99",
        "rows[0:2]",
        "x := 1",
        "b'x'",
        "..." * 3,
        "a" * 2000,
        "(" * 500 + "1" + ")" * 500,
        "-" * 900 + "1",
        "1 +" * 300 + "1",
    ],
)
def test_hostile_expression_is_refused_when_it_is_read(text):
    begun = time.process_time()
    with pytest.raises(BadExpression):
        Expression(text)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nothing", "there is no 'nothing'"),
        ("user.nothing", "there is no 'nothing'"),
        ("rows[9]", "index 9 is out of range"),
        ("text * 3", "is not a number"),
        ("rows[0] / 0", "division by zero"),
        ("rows < 3", "not supported"),
        ("true + 1", "is not a number"),
    ],
)
def test_expression_without_a_value_says_why(text, told):
    with pytest.raises(BadExpression, match=told):
        Expression(text).value(DATA)


def test_numbers_and_texts_cannot_grow_without_end():
    with pytest.raises(BadExpression, match="too large|too long"):
        Expression(" * ".join(["99999999999999999999"] * 40)).value({})
    with pytest.raises(BadExpression, match="too long"):
        Expression("t + t").value({"t": "x" * 900_000})


def test_template_is_filled_in():
    made = template({"a": "${rows}", "b": "n = ${rows[0]}, $${x}", "c": ["${user.name}"], "d": 5})
    assert fill_template(made, DATA) == {"a": [1, 2, 3], "b": "n = 1, ${x}", "c": ["Ann"], "d": 5}


@tries(300)
@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused(text):
    with suppress(BadExpression):
        Expression(text).value(DATA)
