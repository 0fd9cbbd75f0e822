"""A list of things to do inside a run."""

from io import StringIO

from kaname import Agent, MemoryJournal, ScriptedModel, Todo, call
from kaname.cli.terminal.chunks import Show
from kaname.cli.terminal.screen import Screen

FIRST = [{"text": "find flights", "status": "doing"}, {"text": "book", "status": "open"}]
DONE = [{**item, "status": "done"} for item in FIRST]


async def test_the_list_is_recorded_and_shown_with_each_change():
    agent = Agent(ScriptedModel([call("todo", items=FIRST), call("todo", items=DONE), "done"]), context=[Todo()])
    screen = Screen(StringIO(), StringIO())
    show = Show(screen)
    run = agent.run("Plan a trip.")
    chunks = []
    async for chunk in run:
        chunks.append(chunk)
        show.take(chunk)
    result = await run
    assert [chunk.data["items"] for chunk in chunks if chunk.type == "todo"] == [FIRST, DONE]
    assert result.state.custom["todo"] == {"items": DONE}
    shown = screen.err.getvalue()
    assert "[>] find flights" in shown
    assert "[x] book" in shown
    assert (await agent.replay(run.run_id)).same


async def test_the_model_is_reminded_of_the_list_when_it_is_no_longer_in_its_context():
    sent = []

    def script(request):
        sent.append([message.text for message in request.messages])
        return [call("todo", items=FIRST), call("todo", items=DONE), "done"][len(sent) - 1]

    async def only_the_question(messages, view):
        return messages[:1]

    agent = Agent(ScriptedModel(script), context=[only_the_question, Todo()], journal=MemoryJournal())
    result = await agent.run("Plan a trip.")
    assert sent[0] == ["Plan a trip."]
    assert sent[1][1].endswith("[>] find flights\n[ ] book")
    assert sent[2] == ["Plan a trip."], "everything is done"
    assert (await agent.replay(result.run_id)).same


async def test_an_item_of_the_wrong_form_is_told_to_the_model():
    agent = Agent(ScriptedModel([call("todo", items=[{"text": "book", "status": "soon"}]), "done"]), context=[Todo()])
    result = await agent.run("Plan a trip.")
    (told,) = result.state.results.values()
    assert told.is_error
