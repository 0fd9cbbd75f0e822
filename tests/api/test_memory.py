"""`Memory`: what is remembered over conversations, for whom, and what becomes of it when it no longer holds."""

import asyncio
import json
import os
import signal
import sys
from datetime import UTC, datetime

import pytest

from kaname import Agent, ConfigError, Memory, ModelError, ScriptedModel, Sessions, call
from kaname.memory.files import moment
from kaname.memory.rules import statements
from kaname.memory.store import Memories
from tests import warm


def at(day):
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


@pytest.fixture
def store(tmp_path):
    made = Memories(tmp_path / "m.db", "user ken")
    yield made
    made.close()


def remembering(tmp_path, seen=None, answer="noted", **options):
    def reply(request):
        if seen is not None:
            seen.append(request.messages)
        return answer(request) if callable(answer) else answer

    memory = Memory(tmp_path / "memory", **options)
    return Agent(ScriptedModel(reply), context=memory, journal=tmp_path / "j.db"), memory


# What holds, and what held


def test_a_fact_about_the_same_thing_replaces_the_old_one_which_stays_as_its_past(store):
    store.add("Ken lives in Leeds.", about="home", said=at("2025-06-03"))
    store.add("Ken lives in York.", about="home", said=at("2026-02-01"))
    assert [one.text for one in store.all()] == ["Ken lives in York."]
    (found,) = store.search("Where does Ken live?")
    assert found.memory.text == "Ken lives in York."
    assert [old.text for old in found.before] == ["Ken lives in Leeds."]
    (then,) = store.search("Where does Ken live?", at=at("2025-12-24"))
    assert then.memory.text == "Ken lives in Leeds."
    assert store.search("Where does Ken live?", at=at("2020-01-01")) == []


def test_a_past_fact_leads_to_what_holds_now(store):
    first = store.add("ケンは大阪の中津に住んでいる。", said=at("2025-06-03"))
    store.add("ケンは京都に引っ越した。", replaces=first.id, said=at("2026-02-01"))
    (found,) = store.search("中津")
    assert found.memory.text == "ケンは京都に引っ越した。"
    assert found.before[0].text == "ケンは大阪の中津に住んでいる。"


def test_older_news_does_not_replace_what_is_newer(store):
    store.add("Ken works at Initech.", about="employer", said=at("2026-02-01"))
    store.add("Ken works at Globex.", about="employer", said=at("2025-01-01"))
    assert [one.text for one in store.all()] == ["Ken works at Initech."]
    (found,) = store.search("Where does Ken work?")
    assert found.before[0].text == "Ken works at Globex."


def test_what_is_said_now_is_the_newest_although_the_clock_was_set_back(store):
    store.add("Ken lives in Leeds.", about="home", said=at("2099-01-01"))
    store.add("Ken lives in York.", about="home")
    assert [one.text for one in store.all()] == ["Ken lives in York."]


def test_what_is_said_twice_is_remembered_once(store):
    store.add("Ken likes green tea.")
    store.add("ken likes green tea")
    store.add("Ken likes coffee.")
    assert [one.text for one in store.all()] == ["Ken likes green tea.", "Ken likes coffee."]


def test_what_is_forgotten_is_gone_with_its_past_also_from_the_file(store):
    first = store.add("Ken's number is 0123-456789.", about="phone")
    second = store.add("Ken's number is 0987-654321.", about="phone")
    kept = store.add("Ken likes tea.")
    assert {one.id for one in store.forget([second.id])} == {first.id, second.id}
    assert [one.text for one in store.all(past=True)] == ["Ken likes tea."]
    assert all(one.memory.id == kept.id for one in store.search("phone number 0123-456789"))
    mistaken = store.add("Ken's password is Xylophone77.")
    store.correct(mistaken.id, "Ken has a dog.")
    store.add("Ken was in Quedlinburg.")
    store.forget([store.all()[-1].id])
    written = (store.path.read_bytes() + store.path.with_name("m.db-wal").read_bytes()).lower()
    for gone in (b"0123-456789", b"456789", b"xylophone77", b"quedlinburg"):
        assert gone not in written
    for unknown in (99, 10**30, -1):
        with pytest.raises(ConfigError, match=f"there is no memory with the number {unknown}"):
            store.forget([unknown])


def test_forgetting_by_age_leaves_what_was_said_since_and_the_profile(store):
    store.add("Ken had a cold.", said=at("2024-01-01"))
    store.add("Ken lives in Leeds.", about="home", said=at("2024-01-01"))
    store.add("Ken lives in York.", about="home", said=at("2026-02-01"))
    store.add("short answers", "profile", about="style", said=at("2023-01-01"))
    assert [one.text for one in store.forget_before(at("2025-01-01"))] == ["Ken had a cold."]
    assert len(store.all(past=True)) == 3


def test_a_correction_has_no_past(store):
    wrong = store.add("Ken lives in Leads.", about="home")
    store.correct(wrong.id, "Ken lives in Leeds.")
    (found,) = store.search("home of Ken in Leeds")
    assert (found.memory.text, found.before) == ("Ken lives in Leeds.", ())


@pytest.mark.parametrize("text", ["", "  \n", "x" * 3_000])
def test_a_text_that_is_no_memory_is_refused(store, text):
    kept = store.add("Ken likes tea.")
    with pytest.raises(ConfigError, match="a memory must have 1 to"):
        store.add(text)
    with pytest.raises(ConfigError, match="a memory must have 1 to"):
        store.correct(kept.id, text)
    with pytest.raises(ConfigError, match="a time in seconds"):
        store.add("Ken likes coffee.", said=1_750_000_000_000)
    assert [one.text for one in store.all()] == ["Ken likes tea."]


def test_a_profile_is_replaced_by_none_but_its_like(store):
    store.add("日本語", "profile", about="language")
    store.add("Ken's language is mostly Python these days.", about="language")
    assert [(one.kind, one.text) for one in store.all()] == [
        ("profile", "日本語"),
        ("fact", "Ken's language is mostly Python these days."),
    ]


def test_what_is_known_takes_the_place_of_another_when_that_is_said(store):
    store.add("Ken lives in York.", said=at("2025-01-01"))
    store.add("Ken lives in Leeds.", about="home", said=at("2025-06-01"))
    store.add("Ken lives in York.", about="home", said=at("2026-01-01"))
    assert [one.text for one in store.all()] == ["Ken lives in York."]
    assert [one.text for one in store.history(store.all()[0].id)] == ["Ken lives in York.", "Ken lives in Leeds."]


def test_what_is_said_again_holds_from_the_last_time(store):
    store.add("I live in Leeds.", "said", said=at("2025-02-01"))
    store.add("I live in York.", "said", said=at("2025-10-01"))
    store.add("I live in Leeds.", "said", said=at("2026-05-01"))
    assert [(one.text, one.said) for one in store.all()][-1] == ("I live in Leeds.", at("2026-05-01"))
    assert store.forget_before(at("2025-12-01"))[0].text == "I live in York."


def test_one_text_may_be_about_two_things(store):
    store.add("English", "profile", about="language")
    store.add("English", "profile", about="documents")
    store.add("Ken likes Python.", replaces=store.all()[0].id)
    assert [(one.about, one.text) for one in store.all()] == [
        ("language", "English"),
        ("documents", "English"),
        ("", "Ken likes Python."),
    ]


def test_a_day_is_meant_to_its_end():
    assert moment("2026-03-01") == moment("2026-03-02T00:00")
    assert moment("2026-03-01T12:00") < moment("2026-03-01")


# An agent with a memory


async def test_what_was_said_is_recalled_in_another_conversation_and_another_process(tmp_path):
    agent, _ = remembering(tmp_path)
    await agent.run("I am allergic to cashews and peanuts. What shall I cook?", user_id="ken", session_id="monday")
    await agent.close()
    seen = []
    later, _ = remembering(tmp_path, seen)
    await later.run("Suggest a dish with nuts", user_id="ken", session_id="friday")
    told = seen[-1][-2].text
    assert told.startswith("[From memory")
    assert "I am allergic to cashews and peanuts." in told
    assert "What shall I cook" not in told
    assert seen[-1][-1].text == "Suggest a dish with nuts"


async def test_a_memory_never_reaches_another_user(tmp_path):
    seen = []
    agent, memory = remembering(tmp_path, seen, learn="nothing")
    memory.of("ken").add("Ken's door code is 4711.")
    memory.of(agent="other").add("The other agent knows the code 4711.")
    memory.of(project=True).add("The door has a code since May.")
    await agent.run("What is the door code?", user_id="mika")
    await agent.run("What is the door code?", user_id="../ken")
    told = "\n".join(message.text for messages in seen for message in messages)
    assert "4711" not in told
    assert "The door has a code since May." in told
    await agent.run("What is the door code?", user_id="ken")
    assert "4711" in "\n".join(message.text for message in seen[-1])


async def test_a_child_remembers_for_the_user_of_its_parent(tmp_path):
    def helper(request):
        return "done" if request.messages[-1].role == "tool" else call("remember", fact="Ken's PIN code is 4711.")

    told = []

    def look(request):
        told.append("\n".join(message.text for message in request.messages))
        return "looked"

    def delegating(request):
        asked = call("delegate_to_agent", agent="helper", task="What is the PIN code?")
        return "done" if request.messages[-1].role == "tool" else asked

    def lead(script):
        member = Agent(ScriptedModel(script), name="helper", context=Memory(tmp_path / "memory", learn="nothing"))
        return Agent(ScriptedModel(delegating), name="lead", team=[member], journal="memory")

    await lead(helper).run("go", user_id="ken")
    await lead(look).run("go", user_id="mallory")
    await lead(look).run("go", user_id="ken")
    assert ["4711" in text for text in told] == [False, True]


async def test_what_is_recalled_is_not_shown_to_the_reader_of_the_run(tmp_path):
    agent, memory = remembering(tmp_path, learn="nothing")
    memory.of("ken").add("Ken's salary is 90000.")
    chunks = [chunk async for chunk in agent.run("What is the salary of Ken?", user_id="ken")]
    assert "90000" not in json.dumps(chunks)


class Away:
    """An embedding server that cannot be reached."""

    name = "away"

    def embed(self, texts):
        raise ConnectionRefusedError("no such server")


async def test_embeddings_of_ones_own_that_fail_are_a_warning(tmp_path):
    Memory(tmp_path / "memory").of("ken").add("Ken likes tea.")
    agent = Agent(
        ScriptedModel(["noted"]), context=Memory(tmp_path / "memory", learn="nothing", embeddings=Away()), journal="memory"
    )
    assert (await agent.run("What does Ken like?", user_id="ken")).output == "noted"


async def test_trouble_with_the_memory_is_a_warning_and_the_answer_comes(tmp_path):
    agent, memory = remembering(tmp_path, learn="nothing")
    memory.of("ken").add("Ken likes tea.")
    path = memory.path(("user", "ken"))
    memory.close()
    path.write_bytes(b"no database at all" * 500)
    run = agent.run("What does Ken like?", user_id="ken")
    chunks = [chunk async for chunk in run]
    assert (await run).output == "noted"
    assert any("memories could not be read" in chunk.data.get("content", "") for chunk in chunks if chunk.type == "status")


async def test_deleting_a_session_deletes_what_was_asked_to_learn_from_it(tmp_path):
    facts = json.dumps({"facts": [{"text": "He has a PIN."}]})
    agent, _ = remembering(tmp_path, model=ScriptedModel([facts]))
    async with agent:
        await agent.run("My bank PIN is SECRET4711.", user_id="ken", session_id="s")
    sessions = Sessions(agent.journal)
    assert len(await agent.journal.runs()) == 2
    await sessions.delete(await sessions.get("s"))
    assert await agent.journal.runs() == []


async def test_many_users_at_once_each_keep_their_own(tmp_path):
    """More than the files that are held open."""
    agent, memory = remembering(tmp_path)
    async with agent:
        await asyncio.gather(*[agent.run(f"I am guest number {n} of the hotel.", user_id=f"guest {n}") for n in range(40)])
    for number in range(40):
        assert [one.text for one in memory.of(f"guest {number}").all()] == [f"I am guest number {number} of the hotel."]


async def test_what_was_recalled_is_recorded_and_a_replay_sees_the_same(tmp_path):
    agent, memory = remembering(tmp_path, learn="nothing")
    kept = memory.of().add("The printer is on the second floor.")
    result = await agent.run("Where is the printer?")
    memory.of().forget([kept.id])
    memory.of().add("The printer was given away.")
    (await agent.replay(result.run_id)).raise_for_difference()
    assert "second floor" in json.dumps(result.state.custom["memory:agent:0"])


async def test_recalled_lines_keep_to_their_budget(tmp_path):
    seen = []
    agent, memory = remembering(tmp_path, seen, learn="nothing", most=3, tokens=60)
    for number in range(10):
        memory.of().add(f"Box {number} of the archive holds letters of the year {1900 + number}, tied with a red ribbon.")
    await agent.run("What is in the boxes of the archive?")
    assert 1 <= seen[-1][-2].text.count("Box ") <= 3
    await agent.run("Hello!")
    assert not any("From memory" in message.text for message in seen[-1])


async def test_a_profile_is_told_always_and_the_newest_holds(tmp_path):
    seen = []
    agent, memory = remembering(tmp_path, seen, learn="nothing")
    memory.of("ken").add("English", "profile", about="language")
    memory.of("ken").add("日本語", "profile", about="language")
    await agent.run("Hello!", user_id="ken")
    assert "- language: 日本語" in seen[-1][-2].text
    assert "English" not in seen[-1][-2].text


async def test_the_model_remembers_recalls_and_forgets_by_tools(tmp_path):
    steps = [
        call("remember", fact="Ken's cat is called Momo.", about="cat"),
        call("recall", query="name of the cat"),
        "Momo",
    ]
    memory = Memory(tmp_path / "memory", learn="nothing")
    agent = Agent(ScriptedModel(steps), context=memory, journal="memory")
    result = await agent.run("Remember my cat.", user_id="ken")
    kept, found = result.state.results.values()
    assert found.output[0]["text"] == "Ken's cat is called Momo."
    assert found.output[0]["run"] == result.run_id
    agent = Agent(ScriptedModel([call("forget", id=kept.output["id"]), "gone"]), context=memory, journal="memory")
    assert (await agent.run("Forget my cat.", user_id="mika")).state.results["c1_0"].error
    await agent.run("Forget my cat.", user_id="ken")
    assert memory.of("ken").all() == []


# Learning


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("What is the capital of France?", []),
        ("Thanks, that was helpful!", []),
        ("ありがとうございます、助かりました!", []),
        ("明日の天気はどうですか。", []),
        ("Hi!", []),
        ("My phone number is 0123-456. Thanks!", ["My phone number is 0123-456."]),
        ("We moved the launch to May 4. Can you tell them?", ["We moved the launch to May 4."]),
        ("水曜の夜は毎週ヨガに通っています。何か他の候補はありますか?", ["水曜の夜は毎週ヨガに通っています。"]),
        ("Hiking in the Alps is what I love most.", ["Hiking in the Alps is what I love most."]),
        ("Will Smith works with me.", ["Will Smith works with me."]),
        ("Please keep your answers short.", ["Please keep your answers short."]),
    ],
)
def test_rules_keep_what_is_told_and_not_what_is_asked(said, kept):
    assert statements(said) == kept


def test_rules_keep_a_long_message_in_parts_to_its_end():
    said = " ".join([f"Room {number} of the old house has {number} windows to the garden." for number in range(60)])
    kept = statements(f"{said} I am allergic to peanuts.")
    assert len(kept) > 10
    assert max(map(len, kept)) < 300
    assert "peanuts" in kept[-1]


async def test_what_the_user_wants_forgotten_is_not_kept_by_rules(tmp_path):
    memory = Memory(tmp_path / "memory")
    number = memory.of("ken").add("Ken's PIN is 4711.").id
    script = lambda request: "Gone." if request.messages[-1].role == "tool" else call("forget", id=number)  # noqa: E731
    async with Agent(ScriptedModel(script), context=memory, journal="memory") as agent:
        await agent.run("Please forget that my PIN is 4711.", user_id="ken")
    assert memory.of("ken").all() == []


async def test_by_rules_no_remark_ends_another(tmp_path):
    agent, memory = remembering(tmp_path)
    async with agent:
        await agent.run("My wife is severely allergic to nuts.")
        await agent.run("My wife is at work today.")
    assert [(one.text, one.kind) for one in memory.of().all()] == [
        ("My wife is severely allergic to nuts.", "said"),
        ("My wife is at work today.", "said"),
    ]


async def test_a_model_writes_facts_down_and_says_what_they_replace(tmp_path):
    asked = []

    def write(request):
        asked.append(request.messages[-1].text)
        home = next((line.split(":")[0] for line in asked[-1].splitlines() if line.endswith("Ken lives in Leeds.")), "0")
        if "York" in asked[-1]:
            return json.dumps({"facts": [{"text": "Ken lives in York.", "kind": "fact", "replaces": int(home)}]})
        return json.dumps({"facts": [{"text": "Ken lives in Leeds."}] if "Leeds" in asked[-1] else []})

    agent, memory = remembering(tmp_path, model=ScriptedModel(write))
    async with agent:
        for said in ("I live in Leeds, by the way.", "Hello!", "We have found a house in York at last and moved in."):
            await agent.run(said, user_id="ken")
    assert len(asked) == 3
    (holds,) = memory.of("ken").all()
    assert holds.text == "Ken lives in York."
    assert [one.text for one in memory.of("ken").history(holds.id)] == ["Ken lives in York.", "Ken lives in Leeds."]
    cards = await agent.journal.runs(agent="memory")
    assert [card.status for card in cards] == ["completed"] * 3
    assert {card.user for card in cards} == {"ken"}


async def test_a_model_replaces_only_what_it_was_shown_and_never_a_profile(tmp_path):
    memory = Memory(
        tmp_path / "memory",
        model=ScriptedModel([json.dumps({"facts": [{"text": f"Fact {n}.", "replaces": n} for n in range(40)]})]),
    )
    memory.of().add("日本語", "profile", about="language")
    hidden = memory.of().add("Ken's wife is allergic to nuts.")
    for number in range(12):
        memory.of().add(f"The bridge number {number} was painted green.")
    agent = Agent(ScriptedModel(["fine"]), context=memory, journal=tmp_path / "j.db")
    async with agent:
        await agent.run("The bridges were painted green.")
    held = {one.id: one.text for one in memory.of().all()}
    assert hidden.id in held
    assert "日本語" in held.values()
    assert len([text for text in held.values() if text.startswith("Fact")]) == 20


async def test_a_profile_is_learnt_and_gives_way_to_what_a_person_sets(tmp_path):
    told = iter([("short answers", "length"), ("English", "language"), ("long answers", "length")])

    def write(request):
        text, about = next(told)
        return json.dumps({"facts": [{"text": text, "kind": "profile", "about": about}]})

    agent, memory = remembering(tmp_path, model=ScriptedModel(write))
    memory.of("ken").add("日本語", "profile", about="language")
    async with agent:
        for said in ("Please keep it short.", "English please.", "You may write more from now on."):
            await agent.run(said, user_id="ken")
    assert {one.about: one.text for one in memory.of("ken").all()} == {"language": "日本語", "length": "long answers"}


async def test_what_nobody_has_spoken_of_is_forgotten_after_a_time(tmp_path):
    agent, memory = remembering(tmp_path, forget_after="365d")
    memory.of().add("Ken had a cold.", said=at("2024-01-01"))
    memory.of().add("brief", "profile", about="style", said=at("2024-01-01"))
    async with agent:
        await agent.run("I keep bees on the roof.")
    assert [one.text for one in memory.of().all()] == ["brief", "I keep bees on the roof."]


async def test_one_run_that_cannot_be_learnt_from_holds_no_other_up(tmp_path):
    asked = []

    def write(request):
        asked.append(request.messages[-1].text)
        if "filtered" in asked[-1]:
            raise ModelError("refused by the content filter", status=400)
        return json.dumps({"facts": [{"text": asked[-1].splitlines()[-1]}]})

    agent, memory = remembering(tmp_path, model=ScriptedModel(write))
    async with agent:
        for said in (
            "This is filtered.",
            "I play the oboe.",
            "Half a letter: \ud83d",
            "I have two sisters.",
            "I ski.",
            "I swim.",
        ):
            await agent.run(said, user_id="ken")
    texts = [one.text for one in memory.of("ken").all()]
    assert (texts[0], len(texts)) == ("I play the oboe.", 5)
    assert sum("filtered" in text for text in asked) == 2, "once more at once, and then after a while"


async def test_what_could_not_be_learnt_is_learnt_after_the_next_run(tmp_path):
    away = [ModelError("away", status=401)]

    def write(request):
        if away:
            raise away.pop()
        return json.dumps({"facts": [{"text": f"He said: {request.messages[-1].text.splitlines()[-1]}"}]})

    agent, memory = remembering(tmp_path, model=ScriptedModel(write))
    async with agent:
        await agent.run("I play the oboe.", user_id="ken")
    assert memory.of("ken").all() == []
    async with agent:
        await agent.run("I have two sisters.", user_id="ken")
    assert [one.text for one in memory.of("ken").all()] == ["He said: I play the oboe.", "He said: I have two sisters."]


def test_a_run_is_learnt_from_although_its_process_died(tmp_path):
    """Killed right after the answer, before anything was learnt: the next process learns it."""
    script = (
        "import asyncio, os, signal\n"
        "from kaname import Agent, Memory, ScriptedModel\n"
        f"agent = Agent(ScriptedModel(['fine'] * 9), context=Memory({str(tmp_path / 'memory')!r}), journal={str(tmp_path / 'j.db')!r})\n"
        "async def main():\n"
        "    await agent.run('I keep bees on the roof of the library.', user_id='ken')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    died = warm.run([sys.executable, "-c", script], check=False, env={**os.environ})
    assert died.returncode == -signal.SIGKILL
    memory = Memory(tmp_path / "memory")
    assert memory.of("ken").all() == []

    async def next_life():
        agent = Agent(ScriptedModel(lambda request: "fine"), context=memory, journal=tmp_path / "j.db")
        await agent.run("Hello!", user_id="ken")
        await agent.close()

    asyncio.run(next_life())
    assert [one.text for one in memory.of("ken").all()] == ["I keep bees on the roof of the library."]


@pytest.mark.nightly
def test_learning_that_kills_its_process_is_given_up(tmp_path):
    script = (
        "import asyncio, os, signal, sys\n"
        "from kaname import Agent, Memory, ScriptedModel\n"
        "def write(request):\n"
        "    if 'deadly' in request.messages[-1].text: os.kill(os.getpid(), signal.SIGKILL)\n"
        '    return \'{"facts": [{"text": "He plays the oboe."}]}\'\n'
        f"memory = Memory({str(tmp_path / 'memory')!r}, model=ScriptedModel(write))\n"
        f"agent = Agent(ScriptedModel(lambda request: 'fine'), context=memory, journal={str(tmp_path / 'j.db')!r})\n"
        "agent.run_sync(sys.argv[1], user_id='ken')\n"
    )
    codes = []
    for said in ("This is deadly.", "I play.", "I play the oboe.", "The oboe again."):
        codes.append(warm.run([sys.executable, "-c", script, said], check=False, env={**os.environ}).returncode)
    assert codes == [-signal.SIGKILL] * 3 + [0]
    assert [one.text for one in Memory(tmp_path / "memory").of("ken").all()] == ["He plays the oboe."]


def test_options_that_cannot_be_meant_are_told(tmp_path):
    with pytest.raises(ConfigError, match="learn must be rules, model or nothing"):
        Memory(tmp_path, learn="magic")
    with pytest.raises(ConfigError, match="learn must be rules, model or nothing"):
        Memory(tmp_path, learn="rules", model="openai/x")
    with pytest.raises(ConfigError, match="most and tokens"):
        Memory(tmp_path, most=0)
