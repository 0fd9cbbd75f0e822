"""What search and memory find in long dialogues: the turn that answers a question asked weeks later.

    uv run --all-extras python benchmarks/dialogues.py [FILE.json]

Without a file: our own long dialogues (`sets/`: four conversations of about 400 turns, English and Japanese, 120 exchanges, each asked about in other words
and in plain ones; the second conversation of each language is held out), and the made-up friends (2,400 turns with small talk about the same things, 120
questions), each beside plain BM25 and BM25 with the turn before. With a file: a public set in the form of LoCoMo (a list of samples with `conversation` and
`qa`), which is read from its place and not kept here.
"""

import json
import math
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from sets import dialogues

from kaname import RAGPipeline
from kaname.memory.store import Memories
from kaname.tools.search.chunk import TextChunk
from kaname.tools.search.ingest import embed_text
from kaname.tools.search.rank import rank
from kaname.tools.search.tokenize import query_terms, terms

TOPICS = {
    "pottery": ("made a bowl in my pottery class", "broke the vase that I had glazed", "sold two cups at the craft fair"),
    "hiking": ("climbed the ridge above Hakone", "got lost in the fog near the lake", "bought boots with a wide toe"),
    "piano": ("played a nocturne at the recital", "had the old upright tuned", "gave up on the third movement"),
    "garden": ("planted tomatoes behind the shed", "lost the beans to the snails", "built a trellis for the peas"),
    "job": ("was offered a post at the museum", "quit the agency in Leeds", "was moved to the archive"),
    "dog": ("adopted a beagle called Miso", "took the dog to the vet for its paw", "taught him to ring a bell"),
    "sister": ("flew to Porto for my sister's wedding", "called my sister about the loan", "painted my sister's kitchen green"),
    "studies": ("passed the exam in statistics", "handed in the thesis on tides", "failed the oral in Italian"),
    "baking": ("baked rye bread with caraway", "burnt the almond tart", "won the scone contest at church"),
    "running": ("ran ten kilometres along the canal", "pulled a muscle before the marathon", "joined a club that runs at dawn"),
}
ASKED = {
    "pottery": (
        "What did {who} make in the pottery class?",
        "What did {who} break after glazing?",
        "Where did {who} sell the cups?",
    ),
    "hiking": ("Which ridge did {who} climb?", "Where did {who} lose the way in the fog?", "What kind of boots did {who} buy?"),
    "piano": (
        "What did {who} play at the recital?",
        "Which instrument did {who} have tuned?",
        "Which movement did {who} give up?",
    ),
    "garden": ("Where did {who} plant tomatoes?", "What did the snails take from {who}?", "What did {who} build for the peas?"),
    "job": ("Which post was {who} offered?", "Which agency did {who} leave?", "Where was {who} moved at work?"),
    "dog": (
        "What is the name of {who}'s beagle?",
        "Why did {who} take the dog to the vet?",
        "What can {who}'s dog do with a bell?",
    ),
    "sister": (
        "Where was the wedding of {who}'s sister?",
        "What did {who} call the sister about?",
        "Which colour is {who}'s sister's kitchen?",
    ),
    "studies": ("Which exam did {who} pass?", "What was {who}'s thesis about?", "Which oral did {who} fail?"),
    "baking": ("Which bread did {who} bake?", "What did {who} burn in the oven?", "What did {who} win at church?"),
    "running": (
        "How far did {who} run along the canal?",
        "What happened to {who} before the marathon?",
        "When does {who}'s club run?",
    ),
}
TALK = (
    "Oh, {topic} again? How do you find the time?",
    "I have been thinking about {topic} too, but it is so much work.",
    "My neighbour keeps talking about {topic}. It sounds lovely.",
    "That sounds great, {other}! Tell me more next time.",
    "Ha, you and your {topic}. I should try it some day.",
    "Honestly I am just tired this week. How is the {topic}?",
    "Remember when we all did {topic} together? Good times.",
    "I saw something about {topic} on the train and thought of you, {other}.",
)
NAMES = ("Mika", "Tom", "Aiko", "Rosa")


def made_up():
    rng, turns, questions = random.Random(3), [], []
    events = [(who, topic, number) for who in NAMES for topic in TOPICS for number in range(3)]
    rng.shuffle(events)
    for who, topic, number in events:
        other = rng.choice([name for name in NAMES if name != who])
        for _ in range(rng.randrange(12, 26)):
            speaker = rng.choice((who, other))
            turns.append(
                f"{speaker}: " + rng.choice(TALK).format(topic=rng.choice(list(TOPICS)), other=other if speaker == who else who)
            )
        opening = rng.choice(("Guess what, I", "So last week I", "You will not believe it: I", "Yesterday I"))
        turns.append(f"{who}: {opening} {TOPICS[topic][number]}.")
        questions.append((ASKED[topic][number].format(who=who), {len(turns) - 1}))
    return turns, questions


def public(path):
    for sample in json.loads(Path(path).read_text("utf-8")):
        turns, places = [], {}
        held = sample["conversation"]
        for name in sorted(
            [one for one in held if one.startswith("session_") and isinstance(held[one], list)],
            key=lambda one: int(one.split("_")[1]),
        ):
            for turn in held[name]:
                places[turn["dia_id"]] = len(turns)
                turns.append(f"{turn['speaker']}: {turn['text']}")
        asked = [
            (one["question"], {places[e] for e in one.get("evidence", []) if e in places})
            for one in sample["qa"]
            if one.get("category") != 5
        ]
        yield turns, [(question, wanted) for question, wanted in asked if wanted]


def bm25(texts, questions, before=0):
    """The plain baseline: BM25 over turns, each with so many turns before it; the places in their order, for each question."""
    words = [terms(" ".join(texts[max(0, place - before) : place + 1])) for place in range(len(texts))]
    counts, usual = [Counter(one) for one in words], sum(map(len, words)) / len(words)
    stand_in = Counter(term for one in counts for term in one)
    for question in questions:
        scores = Counter()
        for term in query_terms(question):
            weight = math.log((len(texts) - stand_in[term] + 0.5) / (stand_in[term] + 0.5) + 1)
            for place, one in enumerate(counts):
                if term in one:
                    scores[place] += weight * one[term] * 2.2 / (one[term] + 1.2 * (0.25 + 0.75 * len(words[place]) / usual))
        yield first_of_each([place for place, _ in scores.most_common()], texts)


def first_of_each(places, texts):
    """Without copies of a turn, as search leaves them out."""
    return list({texts[place]: place for place in reversed(places)}.values())[::-1]


def by_search(turns, questions, folder):
    """Stored as a file of the form `Name: text` is; and what the chunks' words and meaning alone give."""
    pipeline = RAGPipeline(Path(folder) / "docs.db")
    index = pipeline._index
    chunks = [TextChunk(text, "", "") for text in turns]
    row, vectors, sentences = embed_text("dialogue", "", chunks, pipeline.embed)
    index.put(row, chunks, vectors, sentences)
    first = index._db.execute("SELECT min(id) FROM chunks").fetchone()[0]
    asked = pipeline._embeddings.embed(questions)
    for question, vector in zip(questions, asked, strict=True):
        words, similar = index.by_words(question, 50), index.by_vector(vector, 50)
        orders = {
            "words": sorted(words, key=words.get, reverse=True),
            "meaning": sorted(similar, key=similar.get, reverse=True),
            "search": rank(pipeline.score(question, vector)[0]),
        }
        yield {kind: [number - first for number in numbers] for kind, numbers in orders.items()}
    pipeline.close()


def by_memory(turns, questions, folder):
    """Every turn a memory, in the words that were said, a minute after the one before."""
    store = Memories(Path(folder) / "memory.db", "friends")
    places = {}
    for place, text in enumerate(turns):
        places.setdefault(store.add(text, "said", said=1_700_000_000.0 + place * 60).id, place)
    for question in questions:
        yield [places[one.memory.id] for one in store.search(question, 20)]
    store.close()


def measured(turns, asked, counted, memory=True):
    """Add up how much of the evidence is among the best 5, 10 and 20 turns, by each way."""
    questions = [question for question, _ in asked]
    with tempfile.TemporaryDirectory() as folder:
        ways = list(by_search(turns, questions, folder))
        ways = [
            {"BM25": plain, "BM25 + previous": both, **found}
            for found, plain, both in zip(ways, bm25(turns, questions), bm25(turns, questions, 1), strict=True)
        ]
        if memory:
            ways = [found | {"memory": kept} for found, kept in zip(ways, by_memory(turns, questions, folder), strict=True)]
    for (_, wanted), found in zip(asked, ways, strict=True):
        for kind, places in found.items():
            for most in (5, 10, 20):
                counted[kind, most] = counted.get((kind, most), 0.0) + len(set(places[:most]) & wanted) / len(wanted)
    return len(asked)


def told(name, counted, asked):
    print(f"{name} ({asked} questions)")
    for kind in dict.fromkeys([kind for kind, _ in counted]):
        print(f"  {kind:16}", "  ".join([f"@{most} {counted[kind, most] / asked:.3f}" for most in (5, 10, 20)]), flush=True)


def main(path=""):
    if path:
        counted, asked = {}, 0
        for turns, questions in public(path):
            asked += measured(turns, questions, counted)
        told(path, counted, asked)
        return
    for held in (False, True):
        counted, asked = {}, 0
        for one in [one for one in dialogues() if one.held_out is held]:
            own, number = {}, 0
            for questions in (one.questions, one.plain):
                part, count = {}, 0
                count = measured(one.turns, [(question, {place}) for question, place in questions], part)
                kind = "in other words" if questions is one.questions else "in plain words"
                told(f"{one.name}, {kind}", part, count)
                own = {key: own.get(key, 0.0) + value for key, value in part.items()}
                number += count
            counted = {key: counted.get(key, 0.0) + value for key, value in own.items()}
            asked += number
        told("HELD OUT, together" if held else "tuned on, together", counted, asked)
    counted = {}
    told("made-up friends", counted, measured(*made_up(), counted, memory=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
