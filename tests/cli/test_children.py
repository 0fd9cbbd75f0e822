"""Runs inside a run, as the terminal shows them: whole lines, with their names."""

import io

from kaname import Agent, ScriptedModel, call
from kaname.cli.terminal.chunks import Show
from kaname.cli.terminal.screen import Screen


async def test_children_that_speak_at_once_are_not_printed_into_each_other():
    def child(name):
        said = f"{name} says this,\nand then some more."
        return Agent(ScriptedModel([said], pace=0.002), name=name, journal="memory")

    both = [call("delegate_to_agent", agent=name, task="speak") for name in ("alpha", "beta")]
    lead = Agent(
        ScriptedModel([both, "Both have spoken."]), name="lead", team=[child("alpha"), child("beta")], journal="memory"
    )
    screen = Screen()
    screen.out, screen.err = io.StringIO(), io.StringIO()
    show = Show(screen)
    run = lead.run("go")
    async for chunk in run:
        show.take(chunk)
    show.finish((await run).output)
    lines = screen.err.getvalue().splitlines()
    for name in ("alpha", "beta"):
        assert f"{name}: {name} says this," in lines
        assert f"{name}: and then some more." in lines
    assert screen.out.getvalue() == "Both have spoken.\n"
    assert show.run_id == run.run_id
    assert show.tokens == 60
