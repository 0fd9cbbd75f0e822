"""3.10 Learning & Adaptation Engine as it is written, and what an agent itself learns from its runs."""

from __future__ import annotations

import pytest

from kaname import Agent, ConfigError, Lessons, Memory, MemoryJournal, ScriptedModel, call, max_steps, tool
from kaname.designs import LearningEngine
from kaname.evals import Case, Evaluation, LessonBook, try_lesson


@pytest.fixture
def engine(tmp_path):
    return LearningEngine(tmp_path / "memory")


@pytest.mark.requirement("D10")
def test_success_patterns_are_tracked_by_the_kind_of_task(engine):
    engine.track_success_patterns("How much is tea?", ["search_web", "calculator"], True)
    engine.track_success_patterns("How much is coffee?", {"tools": ["search_web", "calculator"]}, True, user_feedback="thanks")
    engine.track_success_patterns("How much is cocoa?", ["guess"], False)
    engine.track_success_patterns("紅茶はいくらですか", ["search_web"], True)
    (best,) = engine.track_success_patterns("How much is a cake?", "guess", False)
    assert (best.tools, best.good, best.runs) == (("search_web", "calculator"), 2, 2)
    (japanese,) = engine.track_success_patterns("珈琲はいくらですか", ["search_web"], True)
    assert (japanese.tools, japanese.good) == (("search_web",), 2)


@pytest.mark.requirement("D10")
def test_improvements_name_what_has_worked_and_what_users_have_said(engine):
    assert engine.suggest_improvements("How much is tea?") == ("Plan the steps first, and answer as soon as you can."), (
        "nothing else is known yet"
    )
    for item in ("tea", "coffee"):
        engine.track_success_patterns(f"How much is {item}?", ["search_web", "calculator"], True)
    engine.track_success_patterns("How much is cocoa?", ["guess"], False, user_feedback="Use yen, not dollars.")
    told = engine.suggest_improvements({"task": "How much is a cake?", "tool": "price", "cause": "tool error"})
    assert told == (
        "Use yen, not dollars. If price fails, do not repeat the same call: change the arguments or avoid it. "
        "This order of tools has worked: search_web → calculator."
    )
    assert "yen" not in engine.suggest_improvements("Book a room in Nara"), "it is about something else"
    assert engine.suggest_improvements({"task": "x", "cause": "error"}) == "Nothing is known about such failures yet."


@pytest.mark.requirement("D10")
async def test_responses_are_personalized_by_history_and_preferences_and_agents_are_told(engine, tmp_path):
    history = [
        {"role": "user", "content": "Always keep it short."},
        {"role": "assistant", "content": "Always answer in German."},
        "From now on, answer me in Japanese.",
        "Write a longer poem.",
    ]
    assert engine.personalize_responses("ken", history, {"tone": "casual"}) == {
        "length": '"Always keep it short."',
        "language": '"From now on, answer me in Japanese."',
        "tone": "casual",
    }
    assert engine.personalize_responses("ken", ["いつも丁寧に答えて"]) == {
        "length": '"Always keep it short."',
        "language": '"From now on, answer me in Japanese."',
        "tone": "casual",
    }, "what the user has set is not changed by what is learned"
    assert engine.personalize_responses("mika", [], {}) == {}
    seen = []
    agent = Agent(
        ScriptedModel(lambda request: seen.append(request.messages) or "ok"),
        context=Memory(tmp_path / "memory"),
        journal="memory",
    )
    await agent.run("Hello", user_id="ken")
    assert '- language: "From now on, answer me in Japanese."' in seen[-1][-2].text
    await agent.close()


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("track_success_patterns", {"task_description": 5, "approach_details": [], "was_successful": True}),
        ("track_success_patterns", {"task_description": "x", "approach_details": 5, "was_successful": True}),
        ("suggest_improvements", {"failed_task_context": None}),
        ("suggest_improvements", {"failed_task_context": {"task": "x", "cause": "bad luck"}}),
        ("personalize_responses", {"user_id": 5}),
        ("personalize_responses", {"user_id": "ken", "interaction_history": "Always keep it short."}),
        ("personalize_responses", {"user_id": "ken", "preferences": ["short"]}),
    ],
)
def test_wrong_argument_is_refused_and_named(engine, method, given):
    with pytest.raises(ConfigError, match="LearningEngine: .* must be"):
        getattr(engine, method)(**given)
    with pytest.raises(ConfigError, match="LearningEngine: memory must be"):
        LearningEngine(5)


@pytest.mark.requirement("D10")
async def test_agent_learns_from_failures_and_the_improvement_is_measured_before_it_is_applied():
    @tool(effect="pure")
    def price(item: str, currency: str) -> int:
        """The price of an item."""
        return 300

    def clumsy(request):
        told = "price" in "".join([message.text for message in request.messages if message.role == "system"])
        if any(message.role == "tool" for message in request.messages) and told:
            return "300"
        return call("price", item="tea", currency="yen") if told else call("price", thing=str(len(request.messages)))

    journal = MemoryJournal()
    agent = Agent(ScriptedModel(clumsy), [price], name="shop", journal=journal, stops=[max_steps(3)], context=Lessons("apply"))
    for item in ("tea", "cake"):
        assert (await agent.run(f"How much is {item}?")).stop.kind == "max_steps"
    await agent.close()
    (lesson,) = await LessonBook(journal).all()
    assert lesson.cause == "wrong arguments"
    assert (await agent.run("How much is cocoa?")).stop.kind == "max_steps", "it was not measured yet"
    cases = Evaluation("shop", [Case(f"How much is cup {number}?", contains="300") for number in range(6)])
    measured = await try_lesson(lesson, agent, cases)
    assert (measured.trial["decision"], measured.trial["helps"]["difference"]) == ("helps", 1.0)
    assert (await agent.run("How much is cocoa?")).output == "300"
    await LessonBook(journal).drop(lesson.id)
    assert (await agent.run("How much is cocoa?")).stop.kind == "max_steps", "rolled back"
    await agent.close()
