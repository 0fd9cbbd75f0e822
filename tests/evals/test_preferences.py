"""Preferences: corrections and ratings become the profile of the user, which can be seen, changed and forgotten."""

from __future__ import annotations

import pytest

from kaname import Agent, Memory, MemoryJournal, ScriptedModel
from kaname.memory.lessons.history import is_correction
from kaname.memory.preferences import preferences_in
from kaname.run.figures import rate

CORRECTIONS = """
That's wrong.
No, that is not what I asked.
This is incorrect: the capital is Canberra.
No, I meant the other Ann.
You misunderstood me. I want the train, not the bus.
It was still wrong!
You got the date wrong.
違います。アンナです
それは違います。
いいえ、間違っています。
そうじゃなくて、来週の話です
そういう意味ではありません。
答えが間違っているよ
まだ違うよ。
"""
WISHES = """
From now on, answer in Japanese.
Always keep it short.
Please never be so formal with me.
In future, please don't be so brief.
Never answer in French.
Reply in German from now on.
I want longer answers in all our chats.
Always be more casual, please.
今後は日本語で答えてください
いつも詳しく説明して
これからは短くしないでください。
今後、敬語で話さないで
常に簡潔にお願いします。
これからも英語で書いてほしいです
毎回もう少し丁寧に答えてくれると嬉しいです
今後は長く書かないように
"""
TRAPS = """
No problem, thanks!
No worries, take your time.
No, thank you, that is all.
Not that I know of. Can you look it up?
Wrong number, haha. I was talking to my phone.
I asked my boss yesterday, and she agreed.
I meant to thank you for the long letter.
That's not wrong at all, great!
Is that wrong?
Nope, all good.
Why is it always so long to wait for the short bus?
From now on, my office is on Long Street.
Will your answers always be this detailed?
I always take the shorter way home.
Never mind the long text below.
違いを教えてください
間違い探しを作って
いや、助かりました。ありがとう
違うかもしれませんが、これで大丈夫です
そうじゃないかと思っていました。さすがです
それは間違いないですね
今日ではなく明日の天気は?
違いますか?
いつも短い返事をありがとう
今後は日が短くなりますね
今後は日本語で話すことが増えそうです
いつも英語で書くのは大変ですか
これから長い会議です
兄はいつも丁寧に話して人気です
常に詳しく調べる人が好きです
"""


def lines(text):
    return [line for line in text.splitlines() if line]


def test_words_say_what_is_clear_and_nothing_else():
    """Of 60 sentences: 11 of 14 corrections and 14 of 16 wishes are found, and 1 of 30 traps is taken for a wish."""
    assert len(lines(CORRECTIONS) + lines(WISHES) + lines(TRAPS)) == 60
    missed = [said for said in lines(CORRECTIONS) if not is_correction(said)]
    missed += [said for said in lines(WISHES) if not preferences_in(said)]
    assert missed == [
        "You got the date wrong.",
        "そうじゃなくて、来週の話です",
        "答えが間違っているよ",
        "I want longer answers in all our chats.",
        "毎回もう少し丁寧に答えてくれると嬉しいです",
    ]
    assert [said for said in lines(TRAPS) if is_correction(said) or preferences_in(said)] == ["Never mind the long text below."]
    assert [said for said in lines(CORRECTIONS) if preferences_in(said)] == []
    assert [said for said in lines(WISHES) if is_correction(said)] == []


@pytest.mark.parametrize("said", [*lines(WISHES), "Not too short, please.", "日本語で答えないで"])
def test_wish_is_kept_in_the_words_of_the_user(said):
    found = preferences_in(said, lasting=True)
    assert found
    assert {*found.values()} == {said}, "what the user wants is not concluded: it could be the opposite"


def test_request_about_the_future_is_no_wish_about_answers():
    assert preferences_in("今後の予定を詳しく教えてください。") == {}
    assert preferences_in("いつもの店への道を短く教えて") == {}
    assert preferences_in("今後の回答は短くしてください。") == {"length": "今後の回答は短くしてください。"}


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
    said = '"Too long, and please answer in Japanese." (rating: bad)'
    assert known == {"length": said, "language": said}
    assert [one.run for one in store.profile()] == [result.run_id] * 2
    async with made:
        await made.run("And cocoa?", user_id="ken")
    assert f"- length: {said}" in made.seen[-1][-2].text
    await made.run("Hello", user_id="mika")
    assert not any("Too long" in message.text for message in made.seen[-1])


async def test_what_a_person_set_stays_and_what_was_forgotten_is_not_learned_again(made):
    store, _ = profile(made)
    store.add("English", "profile", about="language")
    result = await made.run("Tell me about tea", user_id="ken")
    await rate(made.journal, result.run_id, "bad", "Too long. Please answer in Japanese.")
    async with made:
        await made.run("And coffee?", user_id="ken")
    assert profile(made)[1] == {"language": "English", "length": '"Too long." (rating: bad)'}
    store.forget([one.id for one in store.profile() if one.about == "length"])
    async with made:
        await made.run("And cocoa?", user_id="ken")
    assert profile(made)[1] == {"language": "English"}


async def test_wish_for_all_answers_becomes_a_profile_and_another_note_a_preference(made):
    result = await made.run("Tell me about tea", user_id="ken", session_id="s")
    await rate(made.journal, result.run_id, "bad", "I only drink green tea.")
    async with made:
        await made.run("No, shorter please. Never answer in French.", user_id="ken", session_id="s")
    store, known = profile(made)
    assert known == {"language": '"Never answer in French."'}
    assert [one.text for one in store.all() if one.kind == "preference"] == ["I only drink green tea."]
