"""Search in dialogues and by sentences: a turn with the one before it, a chunk by its best sentence, indexes from before."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy
import pytest

from kaname import RAGPipeline
from kaname.tools.search.chunk import TextChunk, best, chunk_blocks, pack_vectors, sentences
from kaname.tools.search.dialogue import is_dialogue, named_speakers, without_names
from kaname.tools.search.index import FileRow, Index
from kaname.tools.search.rank import rank
from kaname.tools.search.readers.base import Block
from tests.tools.test_search import Letters

TALK = """\
Nora: Did the parcel from the harbour ever arrive?
Ivan: It did.
Nora: And where did you put the spare keys?
Ivan: Under the third flower pot, as always.
Nora: Good to know.
Ivan: See you on Monday.
"""


class Topics:
    """A model of meaning with five things in the world: each has a direction of its own, and so has everything else."""

    name = "topics"
    things = ("boat", "bread", "clock", "goat", "piano")
    asked = 0

    def embed(self, texts):
        self.asked += len(texts)
        made = numpy.zeros((len(texts), 6), dtype=numpy.float32)
        for row, text in enumerate(texts):
            counts = [text.lower().count(thing) for thing in self.things]
            made[row] = [*counts, 0.0 if any(counts) else 1.0]
        return made / numpy.linalg.norm(made, axis=1, keepdims=True)


@pytest.fixture
def pipeline(tmp_path):
    made = RAGPipeline(tmp_path / "index.db", embeddings=Letters())
    yield made
    made.close()


# dialogues


@pytest.mark.parametrize(
    "text",
    [
        TALK,
        TALK.replace("\n", "\n\n"),
        "[10:03] Ada: Ready?\n[10:04] Bo: Nearly.\n[10:05] Ada: Now?\n[10:06] Bo: Yes.",
        "12/05/2023, 10:03 - Ada: Ready?\n12/05/2023, 10:04 - Bo: Nearly.\n12/05/2023, 10:05 - Ada: Now?\n12/05/2023, 10:06 - Bo: Yes.",
        "**Ada:** Ready?\n**Bo:** Nearly.\n**Ada:** Now?\n**Bo:** Yes.",
        "陽子：もう着いた？\n大樹：まだ電車の中。\n陽子：何時ごろ？\n大樹：七時かな。",
    ],
)
def test_lines_of_speakers_who_take_turns_are_a_dialogue(text):
    assert is_dialogue(text.split("\n\n"))


@pytest.mark.parametrize(
    "text",
    [
        "Cause: the fuse is blown.\nAction: replace it.\nCause: the cable is loose.\nAction: tighten it.",
        "Weight: 3 kg\nColour: red\nWeight: 4 kg\nColour: blue",
        "https://a.example/x?\nhttps://b.example/y?\nhttps://a.example/z?\nhttps://b.example/?",
        "Note: this is a report.\nIt has lines of its own.\nIs it a dialogue?\nNo.\nNote: the end.",
        "",
    ],
)
def test_records_and_notes_are_no_dialogue(text):
    assert not is_dialogue([text])


def test_every_turn_is_a_chunk_and_says_its_line():
    long = "and then we walked on " * 60
    made = list(chunk_blocks([Block(TALK + f"Nora: {long}\nwithout a word", "", "line 3")]))
    assert [chunk.text.split(":")[0] for chunk in made[:6]] == ["Nora", "Ivan"] * 3
    assert [chunk.place for chunk in made[:3]] == ["line 3", "line 4", "line 5"]
    assert made[-1].text.endswith("without a word")


@pytest.mark.parametrize("blank", ["\n", "\n\n"])
def test_a_turn_is_found_by_the_words_of_the_turn_that_it_answers(tmp_path, pipeline, blank):
    (tmp_path / "talk.txt").write_text(TALK.replace("\n", blank), encoding="utf-8")
    pipeline.add(tmp_path / "talk.txt")
    question = "Where are the spare keys?"
    scores, _ = pipeline.score(question, pipeline.embed([question])[0])
    first = sorted(scores, key=lambda number: -scores[number])[:2]
    texts = [Index(pipeline.path).around(number) for number in first]
    assert {one.text for number, around in zip(first, texts, strict=True) for one in around if one.id == number} == {
        "Nora: And where did you put the spare keys?",
        "Ivan: Under the third flower pot, as always.",
    }


def turns_before(index):
    """For each turn the position of the one before it, or its own."""
    with index.comparing():
        return index.in_context(numpy.arange(len(index), dtype=float), 0.0, 1.0).astype(int).tolist()


def test_chunks_that_are_stored_one_by_one_are_turns_as_well(tmp_path):
    index = Index(tmp_path / "index.db")
    turns = TALK.splitlines()
    index.put(FileRow("talk", 0.0, 0, "", len(turns), ""), [TextChunk(text, "", "") for text in turns], Letters().embed(turns))
    assert turns_before(index) == [0, 0, 1, 2, 3, 4][: len(turns)]
    index.close()


def test_a_dialogue_ends_with_its_heading(tmp_path):
    index = Index(tmp_path / "index.db")
    turns = TALK.splitlines()
    chunks = [TextChunk(text, "Monday" if number < 3 else "Tuesday", "") for number, text in enumerate(turns)]
    index.put(FileRow("talk", 0.0, 0, "", len(turns), ""), chunks, Letters().embed(turns))
    assert turns_before(index) == [0, 0, 1, 3, 3, 4][: len(turns)], "the first turn of a day has none before it"
    index.close()


@pytest.mark.parametrize(
    ("question", "speakers", "names", "left"),
    [
        ("What did Ivan's aunt send?", ["ivan", "nora"], {"ivan"}, "What did aunt send?"),
        ("did nora ask ivan?", ["ivan", "nora", ""], {"ivan", "nora"}, "did ask ?"),
        ("Is the ivanhoe a boat?", ["ivan"], set(), "Is the ivanhoe a boat?"),
        ("Annaは何を飼っていますか", ["anna"], {"anna"}, "は何を飼っていますか"),
        ("大樹さんは何時に着きますか", ["大樹", "陽子"], {"大樹"}, "さんは何時に着きますか"),
        ("亮の趣味は何ですか", ["亮"], {"亮"}, "の趣味は何ですか"),
        ("説明は誰がしましたか", ["明"], set(), "説明は誰がしましたか"),
        ("Ivan?", ["ivan"], {"ivan"}, "Ivan?"),
        ("Where does Ivan Petrov live?", ["ivan petrov"], {"ivan petrov"}, "Where does live?"),
        ("Where does Ivan live?", ["ivan petrov"], {"ivan petrov"}, "Where does live?"),
        ("Who is the new one?", ["the other"], set(), "Who is the new one?"),
    ],
)
def test_names_of_speakers_are_found_in_a_question_and_left_out(question, speakers, names, left):
    assert named_speakers(question, speakers) == names
    assert without_names(question, names) == left


def found_in(pipeline, turns, question):
    pipeline.add_text("talk", "\n\n".join(turns))
    scores, _ = pipeline.score(question, pipeline.embed([question])[0])
    best = min(scores, key=lambda number: (-scores[number], number))
    return next(one.text for one in Index(pipeline.path).around(best) if one.id == best)


class WithNames(Topics):
    """The same, where a name means something as well."""

    name = "topics and names"
    things = ("boat", "bread", "nora", "ivan", "piano")


def test_a_turn_that_is_only_near_by_a_name_does_not_come_before_the_one_that_answers(tmp_path):
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=WithNames())
    chat = ["Nora: Is that so, Ivan?", "Ivan: Oh, Ivan, again Ivan.", "Nora: Ha, Ivan, Ivan!", "Ivan: Hm.", "Nora: Well, Ivan."]
    told = ["Nora: And the boats?", "Ivan: Boats! One boatswain left."]
    assert found_in(pipeline, [*chat, *told, "Nora: Ivan, Ivan!"], "Which boathouse did Ivan see, Ivan?") == told[1]
    pipeline.close()


def test_of_turns_that_say_the_same_the_speaker_who_is_named_comes_first(tmp_path):
    for who in ("Nora", "Ivan"):
        pipeline = RAGPipeline(tmp_path / f"{who}.db", embeddings=Topics())
        turns = ["Nora: Hm?", "Ivan: I sold the piano.", "Nora: Well.", "Ivan: Hm?", "Nora: I sold the piano.", "Ivan: Well."]
        assert found_in(pipeline, turns, f"Which piano did {who} sell?") == f"{who}: I sold the piano."
        pipeline.close()


def test_a_turn_means_what_it_says_with_the_turn_before_it(tmp_path):
    """Of a boat and a piano somebody speaks at once, or one after the other."""
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Topics())
    turns = ["Nora: Hm?", "Ivan: A boat, a boat, a clock.", "Nora: Well.", "Ivan: Boats?", "Nora: Pianos.", "Ivan: Bread."]
    assert found_in(pipeline, turns, "boatpianos") == "Nora: Pianos."
    pipeline.close()


# sections


def test_of_chunks_that_fit_equally_the_one_in_the_section_that_fits_comes_first(tmp_path):
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Topics())
    for name, other in (("a", "clock"), ("b", "piano"), ("c", "goat")):
        bread, about = (
            "The bread stands on the table. " * 7,
            f"The {other} of {name} is known to everybody who lives there. " * 4,
        )
        (tmp_path / f"{name}.md").write_text(f"# Things\n\n{bread}\n\n{about}\n\n# Elsewhere\n\nThe piano.")
        pipeline.add(tmp_path / f"{name}.md")
    question = "breadcrumbs near pianos?"
    scores, _ = pipeline.score(question, pipeline.embed([question])[0])
    ranked = [next(one for one in Index(pipeline.path).around(number) if one.id == number) for number in rank(scores)]
    bread = [Path(one.path).name for one in ranked if one.text.startswith("The bread")]
    assert bread == ["b.md", "a.md", "c.md"], "the text is the same in all of them"
    pipeline.close()


# sentences


def test_sentences_of_a_chunk_are_joined_where_they_are_short():
    assert sentences("Only one sentence stands here, and it is a long one.") == []
    assert sentences(
        "Yes. No. The boat leaves from the second pier at dawn. The bread is baked on the ship every morning."
    ) == [
        "Yes. No. The boat leaves from the second pier at dawn.",
        "The bread is baked on the ship every morning.",
    ]
    assert len(sentences("船は夜明けに第二桟橋から出ます。パンは毎朝船の中で焼いています。")) == 2


def test_vectors_of_sentences_take_a_byte_a_number():
    rng = numpy.random.default_rng(3)
    vectors = rng.normal(0, 1, (7, 512)).astype(numpy.float32)
    vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
    blob = pack_vectors(vectors)
    assert len(blob) == 7 * (512 + 4)
    (found, none) = best([blob, b""], vectors[[4, 0]], vectors[4])
    assert found == pytest.approx(1.0, abs=0.01)
    assert none == -1.0
    assert pack_vectors([]) == b""


def test_a_chunk_is_raised_by_its_best_sentence(tmp_path):
    """Among many things a chunk's own vector says little of each; one that is only about what is asked stays the first."""
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Topics())
    mixed = "The bread is baked at five in the morning. The clock on the tower is late. The goat lives behind the mill. "
    pipeline.add_text("mixed", mixed + "The piano in the school is out of tune.")
    pipeline.add_text("other", "A bread, another bread, a clock, another clock and a goat.")
    pipeline.add_text("fitting", "Bread in the oven, bread on the board, bread under a cloth, and one clock.")
    assert [hit.source for hit in pipeline.search("breadcrumbs?")] == ["fitting", "mixed", "other"]
    with closing(sqlite3.connect(pipeline.path)) as db, db:
        db.execute("UPDATE chunks SET sentences = x''")
    assert [hit.source for hit in pipeline.search("breadcrumbs?")] == ["fitting", "other", "mixed"]
    pipeline.close()


def test_what_has_not_changed_in_a_file_is_not_embedded_again(tmp_path):
    embeddings, path = Topics(), tmp_path / "rules.md"
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=embeddings)
    parts = [
        f"# Rule {number}\n\nThe boat {number} leaves at dawn from here. The bread {number} is baked on board."
        for number in range(9)
    ]
    path.write_text("\n\n".join(parts))
    pipeline.add(path)
    assert embeddings.asked == 3 * len(parts)
    embeddings.asked = 0
    path.write_text("# New\n\nThe clock is late.\n\n" + "\n\n".join(parts))
    assert pipeline.add(path).added
    assert embeddings.asked == 1
    embeddings.asked = 0
    vector = Topics().embed(["bread"])[0]
    assert len(Index(pipeline.path).by_sentence(vector, range(1, 30))) == len(parts)
    assert pipeline.search("breadcrumbs")[0].place == "line 7"
    pipeline.close()


def as_before(path):
    """Take from an index what an older kaname did not write."""
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(
            "DROP INDEX without_sentences; ALTER TABLE chunks DROP COLUMN sentences; ALTER TABLE chunks DROP COLUMN turn;"
        )


def test_an_index_from_before_is_searched_and_brought_up_to_date_when_something_is_added(tmp_path):
    text = "The boat leaves from the second pier at dawn. The bread is baked on the ship every morning."
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Topics())
    pipeline.add_text("ship", text)
    pipeline.close()
    as_before(tmp_path / "index.db")
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Topics())
    assert [hit.source for hit in pipeline.search("bread")] == ["ship"]
    assert len(Index(pipeline.path).without_sentences(10)) == 1
    (tmp_path / "new.txt").write_text("The goat is old.")
    pipeline.add(tmp_path / "new.txt")
    assert Index(pipeline.path).without_sentences(10) == []
    vector = Topics().embed(["bread"])[0]
    assert max(Index(pipeline.path).by_sentence(vector, [1]).values()) == pytest.approx(
        0.924, abs=0.01
    )  # of (1, 1) with (0, 1)
    pipeline.close()


def test_an_index_from_before_that_can_only_be_read_is_searched(tmp_path, monkeypatch):
    from kaname.tools.search import index_file

    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Topics())
    pipeline.add_text("talk", TALK.replace("parcel", "bread"))
    pipeline.close()
    as_before(tmp_path / "index.db")
    monkeypatch.setattr(index_file, "_may_write", lambda path: False)
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Topics())
    assert pipeline.search("bread")[0].source == "talk"
    pipeline.close()
