"""What is recalled before a turn and what is not, in which order it is told, and what the user wants forgotten."""

import json
import re
import sqlite3
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

import numpy
import pytest

from kaname import Agent, Memory, ScriptedModel, call
from kaname.memory.names import in_first_person, names_in
from kaname.memory.rules import hear, statements
from kaname.memory.store import Memories
from kaname.tools.search.chunk import TextChunk
from kaname.tools.search.index import FileRow
from tests.tools.test_search import Letters

MEMORIES = Path(__file__).parent.parent / "corpora" / "memories" / "memories.jsonl"
KNOWN = [
    "Rosa lives in Malmö, on the third floor, with two cats.",
    "Rosa is allergic to penicillin.",
    "Rosa's brother Emil runs a bakery in Lund.",
    "Rosa plays the cello in an amateur orchestra on Tuesdays.",
    "Rosa works as a nurse and has night shifts every other week.",
    "Rosa is saving for a sailing boat.",
    "ローザは来年の春に日本へ旅行する予定です。",
    "ローザは辛い料理が苦手です。",
]
FITTING = [
    "Which drug am I allergic to?",
    "On which evening do I have rehearsal with the orchestra?",
    "What does my brother do for a living?",
    "私はいつ日本に行くんでしたっけ",
]
OFF_TOPIC = [  # each has a little in common with one of them
    "Translate good evening into Portuguese.",
    "What is the boiling point of ethanol?",
    "Name three rivers in Africa.",
    "How tall is Mount Kilimanjaro?",
    "「速い」の類語を五つ挙げて",
    "潮の満ち引きはなぜ起こりますか",
    "さびた門を題に俳句を詠んで",
    "納品の遅れをわびる文面を作って",
]


@pytest.fixture(scope="module")
def rosa(tmp_path_factory):
    memory = Memory(tmp_path_factory.mktemp("memory"), learn="nothing")
    for text in KNOWN:
        memory.of("rosa").add(text)
    yield memory
    memory.close()


def told_to(memory, said, user="rosa"):
    return memory.lines(said, user, "helper")


# Silence


@pytest.mark.parametrize("said", OFF_TOPIC)
def test_recall_is_silent_when_nothing_fits(rosa, said):
    assert told_to(rosa, said) == []


@pytest.mark.parametrize("said", FITTING)
def test_recall_speaks_when_something_fits(rosa, said):
    assert told_to(rosa, said) != []


LIFE = ["I keep bees on the roof.", "My office closes at four.", "うちの犬は八歳です。", "The boat needs new sails."]


def memory_of(folder, texts, user="ken"):
    memory = Memory(folder, learn="nothing")
    for text in texts:
        memory.of(user).add(text)
    return memory


def told_of(memory, said, user="ken"):
    """The texts, without the dates."""
    return [line.removeprefix("- ").rpartition(" (since")[0] for line in told_to(memory, said, user)]


@pytest.mark.parametrize(
    ("user", "fact", "asked"),
    [
        ("ken", "Ken likes sencha.", "what tea do I like?"),
        ("健", "健さんは煎茶が好きです。", "私の好きなお茶は何ですか"),
    ],
)
def test_recall_finds_what_is_told_of_the_user_by_name(tmp_path, user, fact, asked):
    assert fact in told_of(memory_of(tmp_path, [*LIFE, fact], user), asked, user)


def test_recall_knows_the_name_from_the_profile_and_the_user_id(tmp_path):
    memory = Memory(tmp_path, learn="nothing")
    memory.of("u7").add("Ken Ito", "profile", about="name")
    memory.of("u7").add("The user's name is 健.", about="name")
    for user in ("u7", "ken", "mika", ""):
        for fact in (*LIFE, "Ken likes sencha."):
            memory.of(user).add(fact)
    near = {user: memory.of(user).search("What tea do I like?", 8) for user in ("u7", "ken", "mika", "")}
    scores = {user: next(one.score for one in found if "sencha" in one.memory.text) for user, found in near.items()}
    assert scores["u7"] == pytest.approx(scores["ken"], abs=0.02)
    assert min(scores["u7"], scores["ken"]) > max(scores["mika"], scores[""]) + 0.05


def test_a_name_is_read_as_the_first_person_only_where_it_stands_alone():
    assert in_first_person("Ken's cat likes Ken.", ["ken"]) == "my cat likes I."
    assert in_first_person("Kenneth will ken it.", ["ken"]) == "Kenneth will ken it."
    assert in_first_person("森さんは青森の森田さんと住んでいます。", ["森"]) == "私は青森の森田さんと住んでいます。"
    assert in_first_person("It is late.", names_in("")) == "It is late."
    assert names_in("My name is Ken Ito.") == ["Ken Ito", "Ken"]
    assert names_in("私の名前は森田です。") == ["森田"]
    assert names_in("ken@example.com") == names_in("u-7") == []


@pytest.mark.parametrize(
    ("fact", "asked", "before"),
    [
        ("My landlord is called Mr Okafor.", "Who do I rent from?", "The heating is broken and it is freezing."),
        ("I teach chemistry at a school.", "Which subject do I teach?", "We went to the lake and ate far too many cherries."),
        ("生の魚は食べられません。", "私は刺身が平気ですか", "昨日は遅くまで会議があって、電車も止まりました。"),
    ],
)
def test_recall_looks_up_each_sentence_so_that_one_does_not_dilute_another(tmp_path, fact, asked, before):
    memory = memory_of(tmp_path, [*LIFE, fact])
    alone, among = (memory.of("ken").search(text, 5) for text in (asked, f"{before} {asked}"))
    nearest = [next(one.score for one in found if one.memory.text == fact) for found in (alone, among)]
    assert nearest[1] >= nearest[0] - 1e-6
    assert fact in told_of(memory, f"{before} {asked}")


def test_recall_of_a_long_message_looks_up_its_first_and_last_sentences(tmp_path):
    fact = "My landlord is called Mr Okafor."
    talk = " ".join([f"Then we drove on for {number} miles." for number in range(2, 32)])
    memory = memory_of(tmp_path, [*LIFE, fact])
    assert fact in told_of(memory, f"{talk} Who do I rent from?")
    assert fact in told_of(memory, f"Who do I rent from? {talk}")


@pytest.mark.nightly
def test_recall_draws_no_more_off_topic_lines_the_more_there_is(tmp_path):
    said = [json.loads(line) for line in MEMORIES.read_text("utf-8").splitlines()]
    texts = [fact["text"] for one in said for fact in one["facts"]]
    texts += [text for one in said for text in statements(one["said"])]
    asked = [*OFF_TOPIC, "How do magnets work?", "What is the currency of Hungary?"]
    drawn = []
    for size in (50, len(texts)):
        memory = memory_of(tmp_path / str(size), texts[:size], "somebody")
        drawn.append([told_to(memory, question, "somebody") for question in asked])
        memory.close()
    assert len(texts) > 300
    few, many = ((sum(map(bool, lines)), sum(map(len, lines))) for lines in drawn)
    assert many <= few
    assert many[0] <= 3  # of 10 questions


def test_recall_of_a_single_memory_does_not_take_it_for_the_usual(tmp_path):
    memory = Memory(tmp_path, learn="nothing")
    memory.of("rosa").add("Rosa is allergic to penicillin.")
    assert told_to(memory, "Which medicine is Rosa allergic to?") != []
    assert told_to(memory, "Convert 3 miles to kilometres.") == []
    memory.close()


def test_looking_something_up_on_purpose_is_not_held_back(rosa):
    assert rosa.of("rosa").search("Convert 3 miles to kilometres.") != []


# Order


def clock(hour):
    return datetime.fromisoformat(f"2026-03-05T{hour}").astimezone().timestamp()


def test_corrections_of_one_day_are_told_in_order_with_their_time(tmp_path):
    memory = Memory(tmp_path, learn="nothing")
    store = memory.of("rosa")
    store.add("The meeting with the architect is on Thursday at ten.", "said", said=clock("16:40"))
    store.add("The meeting with the architect is on Wednesday at nine.", "said", said=clock("09:15"))
    store.add("The meeting with the architect is on Friday at two, that is final.", "said", said=clock("18:05"))
    lines = told_to(memory, "When is the meeting with the architect?")
    assert [re.search(r"on (\S+ \S+):.*on (\w+day)", line).groups() for line in lines] == [
        ("2026-03-05 09:15", "Wednesday"),
        ("2026-03-05 16:40", "Thursday"),
        ("2026-03-05 18:05", "Friday"),
    ]
    memory.close()


def test_what_was_said_in_one_message_is_told_in_its_order(tmp_path):
    memory = Memory(tmp_path, learn="nothing")
    for room in ("blue", "green", "small"):
        memory.of("rosa").add(f"The guests sleep in the {room} room.", "said", said=clock("09:15"))
    assert [line.split()[-2] for line in told_to(memory, "In which room do the guests sleep?")] == ["blue", "green", "small"]
    memory.close()


def test_days_are_told_without_the_time_if_each_has_one_entry(tmp_path):
    memory = Memory(tmp_path, learn="nothing")
    memory.of("rosa").add("The guests sleep in the blue room.", "said", said=clock("09:15"))
    assert told_to(memory, "In which room do the guests sleep?") == [
        "- the user said on 2026-03-05: The guests sleep in the blue room."
    ]
    memory.close()


async def test_the_tool_recalls_in_order_as_well(tmp_path):
    memory = Memory(tmp_path / "memory", learn="nothing")
    for text, hour in (("The door code is 77.", "12:00"), ("The door code is 55.", "08:00"), ("The door code is 99.", "17:30")):
        memory.of("rosa").add(text, "said", said=clock(hour))
    script = lambda request: "Done." if request.messages[-1].role == "tool" else call("recall", query="door code")  # noqa: E731
    async with Agent(ScriptedModel(script), context=memory, journal="memory") as agent:
        result = await agent.run("What is the code?", user_id="rosa")
    (given,) = [one.output for one in result.state.results.values()]
    assert [(one["text"][-3:-1], one["since"][-5:]) for one in given] == [("55", "08:00"), ("77", "12:00"), ("99", "17:30")]


# What is kept, and what is to be forgotten


@pytest.mark.parametrize(
    "said",
    [
        "My sister has a new flat in Turku, could you look up the trains?",
        "We are seven people now — is the table large enough?",
        "Since our office closes at four, when should I leave?",
        "来週から松本の支店に移りますが、手当は出ますか？",
        "膝を痛めたので走れる日を組み直してもらえますか。",
        "Can you change the delivery because we are in Turku until May?",
        "Our cellar is damp again so which paint should I take?",
        "息子が卵アレルギーなので何を焼けばいいですか？",
        "夫が夜勤だから静かな掃除機を教えて。",
        "アレルギーがあるから卵は抜いてください。",
        "朝が早いので会議は十時からにしてください。",
        "足が悪いから階段のない道を教えてください。",
        "来月引っ越すので住所の変更を手伝ってください。",
        "I'm allergic to eggs, so leave them out please.",
    ],
)
def test_rules_keep_the_whole_sentence_of_which_a_part_tells_something(said):
    assert statements(said) == [said]
    assert hear(said).unwanted == []


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("If we were seven people, would the table be large enough?", []),
        ("Is the shop open, and when does it close?", []),
        ("もし雨が降ったら、会場は変わりますか？", []),
        ("I keep forgetting my umbrella on the train.", ["I keep forgetting my umbrella on the train."]),
        ("Don't forget that I fly on Monday.", ["Don't forget that I fly on Monday."]),
        ("鍵を家に忘れてしまいました。", ["鍵を家に忘れてしまいました。"]),
    ],
)
def test_rules_keep_what_a_sentence_tells_and_not_what_it_asks_or_supposes(said, kept):
    assert statements(said) == kept
    assert hear(said).unwanted == []


@pytest.mark.parametrize(
    "said",
    [
        "Compare these two phones.",
        "Please draft a letter to the bank.",
        "Now tell me how a heat pump works.",
        "Look up the opening hours.",
        "掃除機の選び方を教えて",
        "来週の予定をまとめてください。",
        "この手紙を読んで。",
        "ご確認ください。",
    ],
)
def test_rules_keep_no_orders(said):
    assert statements(said) == []


@pytest.mark.parametrize(
    "said",
    [
        "Book a room for two, we are in Turku until May.",
        "Always give me the price with tax.",
        "Remember that our cellar is damp.",
        "Yesterday the boiler broke.",
        "Bought a second boat in March.",
        "Ines runs the bakery in Lund.",
        "これからは敬語を使わないで。",
        "先週から腰が痛くて。",
        "うちの犬は八歳でして。",
    ],
)
def test_rules_keep_what_only_looks_like_an_order(said):
    assert statements(said) == [said]


def test_sentences_that_are_kept_together_stay_apart():
    said = "My sister has a new flat in Turku, is it far? I sail on Sundays."
    assert statements(said) == [said]
    assert statements("My sister has a new flat in Turku\nI sail on Sundays.") == [
        "My sister has a new flat in Turku. I sail on Sundays."
    ]


@pytest.mark.parametrize(
    ("said", "gone"),
    [
        ("Please forget that the alarm code is 8802.", "the alarm code is 8802"),
        ("Could you forget what I told you about my divorce?", "my divorce"),
        ("Delete my old address from your memory.", "my old address"),
        ("警報の番号が8802だということは忘れてください。", "警報の番号が8802だ"),
        ("前の職場のことはもう忘れて。", "前の職場"),
        ("私の病気の話は記憶から消してください。", "病気"),
    ],
)
def test_rules_know_what_the_user_wants_forgotten(said, gone):
    assert statements(said) == []
    assert hear(said).unwanted == [gone]


@pytest.mark.parametrize(
    "said", ["Please don't remember my salary.", "私の年収は覚えなくていいです。", "Don't store my card number."]
)
def test_rules_do_not_keep_what_is_not_to_be_kept(said):
    assert statements(said) == []


@pytest.mark.parametrize(
    ("first", "other", "request_"),
    [
        ("The alarm code of the shop is 8802.", "The alarm of the shop is loud.", "Please forget that the alarm code is 8802."),
        ("店の警報の番号は8802です。", "店の警報は音が大きいです。", "警報の番号が8802だということは忘れてください。"),
    ],
)
async def test_what_the_user_wants_forgotten_is_gone_without_a_tool(tmp_path, first, other, request_):
    memory = Memory(tmp_path / "memory")
    async with Agent(ScriptedModel(lambda request: "Yes."), context=memory, journal="memory") as agent:
        for said in (first, other, request_):
            await agent.run(said, user_id="rosa", session_id="s")
    assert [one.text for one in memory.of("rosa").all(past=True)] == [other]
    memory.close()
    (path,) = (tmp_path / "memory").glob("user-rosa-*.db")
    assert b"8802" not in path.read_bytes()


async def test_a_model_that_learns_is_not_told_what_is_to_be_forgotten(tmp_path):
    class Writer:
        name = "writer"
        asked: list[str] = []

        async def reply(self, request, emit):
            from kaname.core.messages import ModelReply, assistant

            self.asked.append(request.messages[-1].text)
            return ModelReply(assistant(json.dumps({"facts": []})))

    memory = Memory(tmp_path / "memory", model=Writer())
    async with Agent(ScriptedModel(lambda request: "Yes."), context=memory, journal="memory") as agent:
        await agent.run("Forget that the alarm code is 8802. My sister is called Ines.", user_id="rosa")
        await agent.run("Please forget that the alarm code is 8802.", user_id="rosa")
    assert len(Writer.asked) == 1
    assert "Ines" in Writer.asked[0]
    assert "8802" not in Writer.asked[0]


async def test_a_profile_that_a_person_set_is_not_forgotten_by_a_remark(tmp_path):
    memory = Memory(tmp_path / "memory")
    memory.of("rosa").add("short answers in plain English", "profile", about="style")
    async with Agent(ScriptedModel(lambda request: "Yes."), context=memory, journal="memory") as agent:
        await agent.run("Forget my short answers in plain English.", user_id="rosa")
    assert [one.kind for one in memory.of("rosa").all()] == ["profile"]


# What is read


@pytest.fixture
def steps(monkeypatch):
    """Of an act, how many steps SQLite takes for it, on all connections that are made in the test."""
    made, real = [], sqlite3.connect

    def connect(*given, **more):
        made.append(real(*given, **more))
        return made[-1]

    def count(act, *given):
        counted = []
        for one in made:
            with suppress(sqlite3.ProgrammingError):  # it is closed
                one.set_progress_handler(lambda: counted.append(1), 10)
        act(*given)
        return len(counted)

    monkeypatch.setattr(sqlite3, "connect", connect)
    return count


def filled(folder, count):
    memory = Memory(folder, learn="nothing", embeddings=Letters())
    store = memory.of("rosa")
    vectors = Letters().embed([f"entry {number}" for number in range(count)])
    rows = [(number, f"Entry {number} names shelf w{number}.") for number in range(1, count + 1)]
    with closing(sqlite3.connect(store.path)) as made, made:
        made.executemany(
            "INSERT INTO memories (id, chain, text, kind, about, said, ended, run, same) VALUES (?1, ?1, ?2, 'said', '', ?1, 0, '', ?2)",
            rows,
        )
    for (number, text), vector in zip(rows, vectors, strict=True):
        store.put(FileRow(f"memory/{number}", 0.0, 0, "", 1, ""), [TextChunk(text, "", "")], [vector])
    store.add("English", "profile", about="language")
    return memory


def test_a_turn_looks_up_and_does_not_read_all(tmp_path, steps):
    taken = []
    for count in (200, 1_600):
        memory = filled(tmp_path / str(count), count)
        assert any("language: English" in line for line in told_to(memory, "And what of w77 and w78?"))
        taken.append(steps(told_to, memory, "And what of w77 and w78?"))
        memory.close()
    assert 0 < taken[1] < 1.5 * taken[0]


def test_forgetting_by_age_reads_only_what_is_old(tmp_path, steps):
    taken = []
    for count in (200, 1_600):
        memory = filled(tmp_path / str(count), count)
        taken.append(steps(memory.of("rosa").forget_before, 0.5))
        assert len(memory.of("rosa").all()) == count + 1
        memory.close()
    assert taken[1] < taken[0] + 20


def test_a_memory_that_names_its_speaker_is_found_with_what_was_said_before(tmp_path):
    store = Memories(tmp_path / "m.db", "friends", Letters())
    for said in (
        "Nora: Where did you put the spare keys?",
        "Ivan: Under the third flower pot.",
        "Nora: Fine.",
        "Ivan: Bye now.",
    ):
        store.add(said, "said")
    found = [one.memory.text for one in store.search("spare keys", 2)]
    assert found == ["Nora: Where did you put the spare keys?", "Ivan: Under the third flower pot."]
    store.forget([1])
    assert "Under" not in [one.memory.text for one in store.search("spare keys", 4) if one.score > 1]
    store.close()


def test_memories_from_before_are_brought_up_to_date_as_others_are_added(tmp_path):
    store = Memories(tmp_path / "m.db", "rosa", Letters())
    store.add("The first sentence is about the boat in the harbour. The second one is about the bread of the baker.")
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE chunks SET sentences = NULL")
    store.add("Another one.")
    assert store.without_sentences(5) == []
    assert len(store.by_sentence(numpy.ones(64), [1, 2])) == 1
    store.close()


def test_recall_speaks_where_all_memories_are_about_what_is_asked(tmp_path):
    memory = Memory(tmp_path, learn="nothing")
    for number in range(10):
        memory.of("rosa").add(f"Locker {number} of the boathouse holds oars of {number + 2} metres, tied with a blue rope.")
    assert len(told_to(memory, "What is in the lockers of the boathouse?")) > 1
    assert told_to(memory, "Who painted the Mona Lisa?") == []
    memory.close()
