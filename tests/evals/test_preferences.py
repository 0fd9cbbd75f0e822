"""Preferences: corrections and ratings become the profile of the user, which can be seen, changed and forgotten."""

from __future__ import annotations

import pytest

from kaname import Agent, Memory, MemoryJournal, ScriptedModel
from kaname.agent.figures import rate
from kaname.memory.preferences import preferences_in


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("From now on, answer in Japanese.", {"language": "Japanese"}),
        ("No, please reply in French, and keep it short", {"language": "French", "length": "brief"}),
        ("今後は日本語で答えてください", {"language": "日本語"}),
        ("違います。もっと短く、丁寧にお願いします", {"length": "brief", "tone": "polite"}),
        ("いつも詳しく説明して", {"length": "detailed"}),
        ("Always be more formal with me", {"tone": "polite"}),
        ("Write a shorter poem about Japanese tea", {}),
        ("The letter to Ann must be more polite", {}),
        ("俳句を短く書いて", {}),
        ("No, I meant the other Ann", {}),
    ],
)
def test_correction_says_how_the_user_wants_to_be_answered(text, found):
    assert preferences_in(text) == found


@pytest.fixture
async def made(tmp_path):
    seen = []
    agent = Agent(
        ScriptedModel(lambda request: seen.append(request.messages) or "A long answer."),
        name="desk",
        context=Memory(tmp_path / "memory"),
        journal=MemoryJournal(),
    )
    agent.seen = seen
    yield agent
    await agent.close()


def profile(agent, user="ken"):
    (memory,) = [part for part in agent.recipe.context if isinstance(part, Memory)]
    return memory.of(user), {one.about: one.text for one in memory.of(user).profile()}


async def test_rating_with_a_note_becomes_a_profile_that_the_next_run_is_told(made):
    result = await made.run("Tell me about tea", user_id="ken")
    await rate(made.journal, result.run_id, "bad", "Too long, and please answer in Japanese.")
    async with made:
        await made.run("And coffee?", user_id="ken")
    store, known = profile(made)
    assert known == {"length": "brief", "language": "Japanese"}
    assert [one.run for one in store.profile()] == [result.run_id] * 2
    async with made:
        await made.run("And cocoa?", user_id="ken")
    assert "- length: brief" in made.seen[-1][-2].text
    await made.run("Hello", user_id="mika")
    assert not any("brief" in message.text for message in made.seen[-1])


async def test_what_a_person_set_stays_and_what_was_forgotten_is_not_learned_again(made):
    store, _ = profile(made)
    store.add("English", "profile", about="language")
    result = await made.run("Tell me about tea", user_id="ken")
    await rate(made.journal, result.run_id, "bad", "Too long, and please answer in Japanese.")
    async with made:
        await made.run("And coffee?", user_id="ken")
    assert profile(made)[1] == {"language": "English", "length": "brief"}
    store.forget([one.id for one in store.profile() if one.about == "length"])
    async with made:
        await made.run("And cocoa?", user_id="ken")
    assert profile(made)[1] == {"language": "English"}


async def test_correction_in_a_conversation_becomes_a_profile_and_another_note_a_preference(made):
    result = await made.run("Tell me about tea", user_id="ken", session_id="s")
    await rate(made.journal, result.run_id, "bad", "I only drink green tea.")
    async with made:
        await made.run("No, shorter please.", user_id="ken", session_id="s")
    store, known = profile(made)
    assert known == {"length": "brief"}
    assert [one.text for one in store.all() if one.kind == "preference"] == ["I only drink green tea."]
