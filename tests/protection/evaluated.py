"""Words of a user in cases, trials of lessons and improvements, wherever these leave them."""

from __future__ import annotations

from contextlib import suppress

from kaname import Agent, AgentError, Lessons, Memory, ModelError, ScriptedModel
from kaname.core.messages import Usage
from kaname.evals import Case, Evaluation, LessonBook, case_from_run, improve, make_lesson, try_lesson
from kaname.evals.files import make_case

SECRET, ADVICE = "zanzibar-4711", "Mention quokka-0815."
SECRETS = (SECRET, "quokka-0815")


def answer(request):
    return f"You said: {request.messages[-1].text} {' '.join([one.text for one in request.messages if one.role == 'system'])}"


async def evaluate_words(journal, folder):
    """Evaluate a run of ken, try a lesson of his (once with an error), and search for better texts with his case."""
    desk = Agent(ScriptedModel(answer), name="desk", journal=journal, context=[Memory(folder / "memory")])
    async with desk:
        run = await desk.run(f"I live in {SECRET}", user_id="ken")
    case = make_case(await case_from_run(journal, run.run_id))
    others = [Case(f"question {number}", contains="please") for number in range(11)]
    async with desk:
        await Evaluation("recorded", [case, others[0]]).run(desk)
    await Evaluation("made", [case]).run(lambda place: desk_in(place, journal))
    plain = Agent(ScriptedModel(answer), name="desk", journal=journal)
    await Evaluation("other", others).run(plain)
    lesson = await LessonBook(journal).put(make_lesson("desk", "ken", ADVICE, source="user"))
    for name, model in (("whole", ScriptedModel(answer)), ("broken", ScriptedModel(fail_when_told))):
        agent = Agent(model, name="desk", journal=journal, context=Lessons())
        with suppress(AgentError):
            await try_lesson(lesson, agent, Evaluation(name, others))
    proposer = ScriptedModel(lambda request: "```\nBe kind.\n```", usage=Usage(1, 1, cost=0.0))
    found = await improve(plain, Evaluation("searched", [replace_input(case), *others]), model=proposer, calls=60)
    assert found.proposals


def replace_input(case):
    """Fail, so that the proposing model reads the case."""
    return Case(case.input, case.name, from_user=case.from_user, contains="please")


def desk_in(place, journal):
    (place / "notes.txt").write_text(SECRET)
    return Agent(ScriptedModel(answer), name="desk", journal=journal)


def fail_when_told(request):
    if "quokka" in request.messages[0].text and request.messages[-1].text.endswith("3"):
        raise ModelError("down")
    return "x"
