"""What search finds in long dialogues: the evidence of a question among thousands of turns, by words, by meaning, by both.

    uv run --all-extras python benchmarks/dialogues.py [FILE.json]

Without a file: dialogues of four made-up friends, 2,400 turns with a plot and small talk about the same things, 150 questions. With one: a public set
in the form of LoCoMo (a list of samples with `conversation` and `qa`), which is read from its place and not kept here.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

from kaname import RAGPipeline
from kaname.tools.search.chunk import Chunk
from kaname.tools.search.index import FileRow
from kaname.tools.search.pipeline import ranked

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


def measured(turns, questions, counted):
    with tempfile.TemporaryDirectory() as folder:
        pipeline = RAGPipeline(Path(folder) / "docs.db")
        index = pipeline._index
        vectors = [
            vector for start in range(0, len(turns), 64) for vector in pipeline._embeddings.embed(turns[start : start + 64])
        ]
        index.put(FileRow("dialogue", 0.0, 0, "", len(turns), ""), [Chunk(text, "", "") for text in turns], vectors)
        first = index._db.execute("SELECT min(id) FROM chunks").fetchone()[0]
        asked = pipeline._embeddings.embed([question for question, _ in questions])
        for (question, wanted), vector in zip(questions, asked, strict=True):
            words, similar = index.by_words(question, 50), index.by_vector(vector, 50)
            orders = {
                "words": sorted(words, key=words.get, reverse=True),
                "meaning": sorted(similar, key=similar.get, reverse=True),
                "both": ranked(pipeline.scored(question, vector)[0]),
            }
            for kind, numbers in orders.items():
                for most in (5, 10, 20):
                    found = {number - first for number in numbers[:most]} & wanted
                    counted[kind, most] = counted.get((kind, most), 0.0) + len(found) / len(wanted)
        pipeline.close()
    return len(questions)


def main(path=""):
    counted, asked = {}, 0
    for turns, questions in public(path) if path else [made_up()]:
        asked += measured(turns, questions, counted)
    for kind in ("words", "meaning", "both"):
        print(f"{kind:8}", "  ".join([f"@{most} {counted[kind, most] / asked:.3f}" for most in (5, 10, 20)]))


main(*sys.argv[1:])
