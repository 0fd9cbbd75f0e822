"""Requests to forget: plain ones delete what they name, those in other words are not stored, and nothing else is deleted."""

import json
from itertools import product

import pytest

from kaname import Agent, Memory, ScriptedModel
from kaname.core.sentences import split_sentences
from kaname.memory.forgetting import without, words_to_forget
from kaname.memory.rules import hear, statements
from kaname.memory.store import Memories
from tests.tools.test_search import Letters

KNOWN = "The code of my locker is 5538."
KNOWN_JA = "私のロッカーの番号は5538です。"

PLAIN = [
    "", "Actually, ", "Hey Ines, ", "Ines, please ", "Well, now that I think of it, kindly ", "I no longer need it so please ",
    "Could you ", "Would you please ", "If you can, ", "pls ", "Ok then ",
]  # fmt: skip
OTHER = [
    "I would like you to ", "Can we ", "You can ", "Make sure to ", "Don't hesitate to ", "Why don't you ",
    "I would be glad if you did ",
]  # fmt: skip
VERBS = ["forget", "delete", "erase", "remove", "disregard", "get rid of"]
OBJECTS = ["my locker code 5538", "my locker code", "the locker code I gave you", "that the code of my locker is 5538"]
AFTER = [".", "!", "", ", please.", " now.", " from your memory.", ", it was a mistake."]

BEFORE_JA = ["", "すみません、", "やっぱり、", "さっきの", "先ほどお伝えした", "昨日言った", "私の"]
REQUESTS_JA = [
    stem + form
    for stem in ("忘れて", "削除して", "消去して", "記憶から消して")
    for form in (
        "",
        "。",
        "ね。",
        "ください",
        "下さい。",
        "くださいませんか",
        "くださると助かります。",
        "くれますか？",
        "いただけますか？",
        "頂けませんか。",
        "いただけますでしょうか。",
        "もらえますか",
        "もらってもいいですか",
        "ほしいです。",
        "おいてください。",
        "、お願いします。",
    )
] + [
    "お忘れください。",
    "忘れるようにしてください。",
    "忘れなさい。",
    "忘れてもいいです。",
    "削除をお願いします。",
    "なかったことにしてください。",
    "覚えないでください。",
    "覚えなくていいです。",
    "記録しないで。",
    "保存しないでいただけますか。",
    "覚えておく必要はありません。",
]


def left_of(known, said):
    """What is left of a stored sentence after a message."""
    for about in hear(said).unwanted:
        known = " ".join(without(split_sentences(known), words_to_forget(about)))
    return known


@pytest.mark.parametrize("verb", VERBS)
def test_request_to_forget_is_not_stored_whatever_stands_around_it(verb):
    for before, named, after in product(PLAIN, OBJECTS, AFTER):
        said = f"{before}{verb} {named}{after}"
        assert (statements(said), left_of(KNOWN, said)) == ([], ""), said
    for before, named, after in product(OTHER, OBJECTS, AFTER):
        said = f"{before}{verb} {named}{after}"
        assert statements(said) == [], said


def test_request_to_forget_is_not_stored_in_japanese():
    what = ("ロッカーの番号は", "ロッカーの番号を", "ロッカーの番号5538は", "ロッカーの番号のことは")
    for request_, before, named in product(REQUESTS_JA, BEFORE_JA, what):
        said = f"{before}{named}{request_}"
        assert (statements(said), left_of(KNOWN_JA, said)) == ([], ""), said


@pytest.mark.parametrize(
    "said",
    [
        "Would you mind forgetting my locker code 5538?",
        "I want my locker code 5538 deleted.",
        "My locker code 5538 should be forgotten.",
        "I'd rather you forgot my locker code 5538.",
        "Do not store my locker code 5538.",
        "I don't want you to remember my locker code 5538.",
        "You needn't keep my locker code 5538.",
        "I don't want my locker code 5538 to be saved.",
        "Answer without recording my locker code 5538.",
        "Do not forget to delete my locker code 5538.",
        "I would appreciate your forgetting my locker code 5538.",
        "I'm asking for my locker code 5538 to be deleted.",
        "Pretend I never told you my locker code 5538.",
    ],
)
def test_request_to_forget_in_other_words_is_not_stored(said):
    assert statements(said) == []
    assert left_of(KNOWN, said) == ("" if said.startswith("Do not store") else KNOWN)


@pytest.mark.parametrize(
    "said",
    [
        "I always forget my umbrella.",
        "I forgot the code 5538 of my locker.",
        "Don't forget that the code of my locker is 5538.",
        "Never let me forget the code of my locker.",
        "I don't remember the code of my locker.",
        "My brother does not keep a car in town.",
        "My account was deleted last year.",
        "After the removal of my tonsils I sleep well.",
        "ロッカーの番号を忘れてしまいました。",
        "ロッカーの番号を忘れて困っています。",
        "ロッカーの番号5538を忘れないでください。",
        "ロッカーの番号を忘れてほしくないです。",
        "母は約束を忘れてくれなかった。",
        "最近よく人の名前を忘れるようになった。",
    ],
)
def test_remark_about_forgetting_is_kept_and_deletes_nothing(said):
    assert statements(said) == [said]
    assert hear(said)[1:] == ([], False, [])


@pytest.mark.parametrize(
    "said",
    ["I want to forget my locker code 5538.", "I want to delete the old photos from my disk.", "居間の電気を消してください。"],
)
def test_doubtful_request_is_not_stored_and_deletes_nothing(said):
    assert statements(said) == []
    assert hear(said)[1:] == ([], False, [said])


@pytest.mark.parametrize(
    "said",
    [
        "The code of my locker is 5538. Please forget that.",
        "The code of my locker is 5538. It is on the left. Don't remember any of this.",
        "The code of my locker is 5538 - please forget it.",
        "Off the record: the code of my locker is 5538, don't save it.",
        "Don't remember this. The code of my locker is 5538.",
        "The code of my locker is 5538. Forget my locker code.",
        "私のロッカーの番号は5538です。忘れてください。",
        "私のロッカーの番号は5538です。これは覚えないでください。",
        "ロッカーの番号は5538ですが、これは忘れてください。",
        "これは覚えないでください。私のロッカーの番号は5538です。",
    ],
)
def test_request_to_forget_means_what_the_message_said_before_it(said):
    assert statements(said) == []
    assert not hear(said).means_message_before


def test_request_to_forget_leaves_the_rest_of_its_message():
    said = "My sister is called Ines. The code of my locker is 5538. It opens on the left. Forget my locker code."
    assert statements(said) == ["My sister is called Ines."]
    assert statements("Forget my locker code. My sister is called Ines.") == ["My sister is called Ines."]


@pytest.mark.parametrize(
    "said",
    ["Please forget that.", "Forget what I said!", "忘れてください。", "さっきの話は忘れて。", "Hi! Delete that, please."],
)
def test_bare_request_that_follows_nothing_means_the_message_before(said):
    assert hear(said) == ([], [], True, [])


# The file


@pytest.fixture
def store(tmp_path):
    made = Memories(tmp_path / "m.db", "user ines", Letters())
    yield made
    made.close()


@pytest.mark.parametrize(
    ("known", "about", "left"),
    [
        ("The code of my locker is 5538. My sister is called Ines.", "my locker code", "My sister is called Ines."),
        (
            "My sister is called Ines. My locker is on the left. Its code is 5538. I swim.",
            "my locker",
            "My sister is called Ines. I swim.",
        ),
        ("私のロッカーの番号は5538です。 姉はイネスです。", "ロッカーの番号", "姉はイネスです。"),
    ],
)
def test_forgetting_cuts_the_sentence_out_of_the_memory(store, known, about, left):
    store.add(known, "said")
    store.add("We meet on Tuesdays.", "said")
    store.forget_what(about)
    assert [one.text for one in store.all(past=True)] == [left, "We meet on Tuesdays."]
    assert all("5538" not in hit.memory.text for hit in store.search("5538", 5))
    store.close()
    assert b"5538" not in store.path.read_bytes()


def test_forgetting_cuts_the_sentence_out_of_past_versions_too(store):
    store.add("Ines lives in Leeds. Her code is 5538 for the locker.", about="home")
    new = store.add("Ines lives in York.", about="home")
    store.forget_what("code of the locker 5538")
    assert [one.text for one in store.history(new.id)] == ["Ines lives in York.", "Ines lives in Leeds."]
    store.close()
    assert b"5538" not in store.path.read_bytes()


async def talk(tmp_path, *said, **options):
    """Each message as (session, text), in runs; returns what is remembered at the end."""
    memory = Memory(tmp_path / "memory", embeddings=Letters(), **options)
    async with Agent(ScriptedModel(lambda request: "Yes."), context=memory, journal="memory") as agent:
        for session, text in said:
            await agent.run(text, user_id="ines", session_id=session)
    found = [one.text for one in memory.of("ines").all(past=True)]
    memory.close()
    return found


async def test_bare_request_deletes_what_the_message_before_it_in_the_session_said(tmp_path):
    said = [("a", "My sister is called Rosa."), ("a", "The code of my locker is 5538."), ("b", "I swim on Fridays.")]
    kept = await talk(tmp_path, *said, ("a", "Please forget that."))
    assert kept == ["My sister is called Rosa.", "I swim on Fridays."]


async def test_bare_request_at_the_beginning_of_a_session_deletes_nothing(tmp_path):
    assert await talk(tmp_path, ("a", "I swim on Fridays."), ("b", "Forget it.")) == ["I swim on Fridays."]


async def test_learning_model_is_not_shown_what_the_message_wants_forgotten(tmp_path):
    shown = []

    def write(request):
        shown.append(request.messages[-1].text)
        return '{"facts": []}'

    await talk(tmp_path, ("a", "I swim. The code of my locker is 5538. Forget my locker code."), model=ScriptedModel(write))
    assert len(shown) == 1
    assert "I swim." in shown[0]
    assert "5538" not in shown[0]


async def test_learning_model_decides_about_requests_in_other_words(tmp_path):
    """It names the memory to forget by its number. It cannot name one that it was not shown, or a profile."""

    def write(request):
        shown = request.messages[-1].text
        known = next((line.partition(":")[0] for line in shown.splitlines() if "5538" in line and line[0].isdigit()), "")
        if "deleted" in shown:
            return f'{{"facts": [], "forget": [{known}, 99]}}'
        said = shown.rpartition("The user said:\n")[2]
        return json.dumps({"facts": [{"text": said}]})

    said = [("a", "The code of my locker is 5538."), ("a", "I swim on Fridays."), ("b", "I want my locker code deleted.")]
    assert await talk(tmp_path, *said, model=ScriptedModel(write)) == ["I swim on Fridays."]


@pytest.mark.parametrize(
    "said",
    [
        "You always forget my birthday.",
        "You never remember my name.",
        "You didn't remember my name!",
        "Can't you remember my name?",
        "Couldn't you save my address?",
        "You cannot remember my address.",
        "Will you ever forget my birthday?",
    ],
)
def test_complaint_deletes_nothing(said):
    assert hear(said).unwanted == []
