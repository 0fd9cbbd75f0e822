"""Ways in: how the words of users and outsiders reach an agent.

A way in is one async function that takes a `Stage`. Add it to `WAYS` with `@way`, and the generator tries it with every other
feature. It

1. takes the user's words with `stage.all_words(but=(…))`, where `but` names the places for texts that it fills itself with
   `stage.slot("system" | "assistant" | "tool" | "file" | "other")`. "other" holds the words of another person;
2. starts the run, with `stage.begin(…)` or in a way of its own around `stage.attempt(…)`, with `user=stage.user`;
3. lets people answer with `stage.settle(result)`, which also records what the user got back. A way with answers of its own (a
   protocol) appends an `PersonAnswer` to `stage.ledger.answers` for each one, with `accepted` set, and a `Got` for each reply.

Write `with stage.inside(run_id, user):` around whatever executes a run, so that the ledger knows whose it is.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

from ...agent.work.worker import Worker
from ...core.errors import InvalidState
from ...core.messages import Media
from ...designs.orchestrator.orchestrator import AgentOrchestrator
from ...designs.step_sequence.configuration import AgentConfiguration
from ...run.many.map import MapInput
from ...run.request import SharedSession
from .ledger import Got, PersonAnswer, root
from .stage import Stage

Way = Callable[[Stage], Awaitable[None]]
WAYS: dict[str, Way] = {}
ON_FILE: set[str] = set()  # ways that need a journal in a file


def way(function: Way) -> Way:
    """Register a way in under the name of its function."""
    WAYS[function.__name__.rstrip("_")] = function
    return function


def on_file(function: Way) -> Way:
    """Register a way in that needs a journal in a file, such as the queue."""
    ON_FILE.add(function.__name__)
    return way(function)


@way
async def run(stage: Stage) -> None:
    """One run, and further turns of its session."""
    given: Any = stage.all_words(but=("file",))
    if file := stage.slot("file"):
        given = [given, Media("text/plain", base64.b64encode(file.encode()).decode(), name="note.txt")]
    await stage.settle(await stage.begin(given))
    for words in stage.turns:
        await stage.settle(await stage.begin(words))


@way
async def messages(stage: Stage) -> None:
    """A list of messages with other roles, as a client with its own history sends it."""
    system, said, found, other = (stage.slot(name) for name in ("system", "assistant", "tool", "other"))
    if stage.rng.random() < 0.5:  # the client keeps texts only: what a tool found is in the words of the assistant
        said, other = f"{said} {other}".strip(), ""
    history: list[Any] = [{"role": "system", "content": system}] if system else []
    history += [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": said or "Hello."}]
    if found or other:
        called = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"q": "x"}'}}
        history += [{"role": "assistant", "content": None, "tool_calls": [called]}]
        history += [{"role": "tool", "tool_call_id": "call_1", "content": f"{found} {other}"}]
    history.append({"role": "user", "content": stage.all_words()})
    result = await stage.settle(await stage.begin(history))
    for words in stage.turns if result is not None else ():
        history += [{"role": "assistant", "content": str(result.output or "…")}, {"role": "user", "content": words}]
        await stage.settle(await stage.begin(history))


@way
async def say(stage: Stage) -> None:
    """Another person, and the user, say something between two turns of a session."""
    stage.session = stage.session or "talk"
    own, other = stage.slot("say"), stage.slot("other")
    first = await stage.settle(await stage.begin(stage.all_words()))
    if first is None:
        return
    if other:
        await stage.attempt("say", stage.agent.say(first.run_id, other, by="bob"))
    if own:
        await stage.attempt("say", stage.agent.say(first.run_id, own, by=stage.user))
    await stage.settle(await stage.begin("Go ahead."))


@way
async def interject(stage: Stage) -> None:
    """Another person, and the user, say something while the run works."""
    own, other = stage.slot("say"), stage.slot("other")
    run = stage.agent.run(stage.all_words(), user_id=stage.user, session_id=stage.session)
    stage.runs.append((run.run_id, stage.user))
    with stage.inside(run.run_id, stage.user):
        await stage.attempt("begin", run.begun())
        for text, by in ((other, "bob"), (own, stage.user)):
            if text:
                await stage.attempt("say", stage.agent.say(run.run_id, text, by=by))
        result = await stage.revive(run.run_id, await stage.attempt("run", _wait_for(run)), stage.user)
        await stage.settle(result)


async def _wait_for(run: Any) -> Any:
    return await run


@way
async def meeting(stage: Stage) -> None:
    """Two people share a session with the agent."""
    stage.session = SharedSession("meeting")
    user, other = stage.user, stage.slot("other")
    if other:
        stage.rules.foreign |= {value: "bob" for value in stage.rules.foreign if value in other}  # they are his words
        await stage.settle(await stage.begin(f"bob: {other}", user="bob"), "bob")
    await stage.settle(await stage.begin(f"{user}: {stage.all_words()}", user=user), user)


@way
async def steps(stage: Stage) -> None:
    """The caller pulls the steps, answers questions, and runs tools by hand."""
    by_hand = stage.rng.random() < 0.4
    sequence = stage.agent.steps(
        stage.all_words(), user_id=stage.user, configuration=AgentConfiguration(auto_execute_tools=not by_hand)
    )
    stage.runs.append((sequence.run_id, stage.user))
    with stage.inside(sequence.run_id, stage.user):
        await stage.attempt("steps", _pull(stage, sequence, by_hand))
        await stage.attempt("aclose", sequence.aclose())


async def _pull(stage: Stage, sequence: Any, by_hand: bool) -> None:
    for _ in range(30):
        try:
            step = await sequence.next_step()
        except InvalidState:
            if not await _answer_step(stage, sequence):
                return
            continue
        if step is None:
            return
        if step.kind == "tool_call" and by_hand:
            done = await stage.attempt("execute_tool", sequence.execute_tool(step.call))
            await stage.attempt("submit", sequence.submit(step.call.id, done or "failed"))


async def _answer_step(stage: Stage, sequence: Any) -> bool:
    """PersonAnswer a question of a step sequence. It has no place for the name of the person."""
    questions = sequence.result.questions
    if not questions:
        return False
    key, asked = stage.rng.choice(sorted(questions.items(), key=lambda one: str(one[0])))
    form = stage.rng.choice([one for one in stage.forms if one != "silence"])
    value = stage.form_of(form, asked)
    about = getattr(asked, "about", None)
    entry = PersonAnswer(
        stage.ledger.now(), sequence.run_id, key, value, "", about.name if about else "", about.args if about else None
    )
    entry.prompt, entry.user, entry.root, entry.accepted = str(asked.prompt), stage.user, root.get(), True
    stage.ledger.answers.append(entry)
    try:
        await sequence.answer(key, value)
    except InvalidState as problem:
        entry.accepted, entry.problem = False, f"InvalidState: {problem}"
        return not key.startswith("approve") or stage.rng.random() < 0.8
    return True


@way
async def plan(stage: Stage) -> None:
    """A model plans the whole task before it reads anything, and may write the plan again."""
    stage.rules.planned = True
    stage.brain.revisions = stage.rng.choice((0, 1))
    build = stage.make
    stage.make = lambda user: AgentOrchestrator.around(build(user)).agent
    stage.agent = stage.make(stage.user)
    await stage.settle(await stage.begin(stage.all_words()))


@way
async def map_(stage: Stage) -> None:
    """The same job is mapped for two users."""
    words, known = stage.all_words(), set[str]()
    for user in (stage.user, "zoe"):
        agent = stage.make(user)
        with stage.inside(f"map of {user}", user):
            results = await stage.attempt("map", _map(agent, [MapInput(words, key="A-17", user=user)]))
        for result in results or ():
            if result is not None:
                stage.ledger.requests[f"map of {user}"] = result.run_id
                if result.run_id in known:  # the second call of `map` resumes a run that has reached a limit
                    stage.ledger.resumed.add(result.run_id)
                known.add(result.run_id)
                stage.ledger.got.append(Got(stage.ledger.now(), user, str(result.output), result.run_id, result.stop.kind))
    stage.agent = stage.make(stage.user)  # a tool that two agents share works for the user of the agent that was made last


async def _map(agent: Any, inputs: list[MapInput]) -> Any:
    return await agent.map(inputs, job="orders")


@on_file
async def submit(stage: Stage) -> None:
    """The run is queued, and a worker executes it."""
    run_id = await stage.attempt(
        "submit", stage.agent.submit(stage.all_words(), user_id=stage.user, session_id=stage.session or "")
    )
    stage.note_files(" while queued")
    if run_id is None:
        return
    stage.runs.append((run_id, stage.user))
    with stage.inside(run_id, stage.user):
        await work(stage, run_id)
        await stage.settle(await stage.attempt("result", stage.agent.result(run_id)))


async def work(stage: Stage, run_id: str) -> None:
    """Let a worker take runs from the queue until this one ends or waits for an answer."""
    worker = Worker([stage.agent])
    working = asyncio.create_task(worker.work())
    for _ in range(200):
        await asyncio.sleep(0.005)
        cards = await stage.agent.journal.runs(run_id=run_id)
        if working.done() or (cards and cards[0].status not in ("running", "queued")):
            break
    worker.stop()
    await stage.attempt("work", working)
