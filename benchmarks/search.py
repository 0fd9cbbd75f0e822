"""What search costs, and what it finds. `uv run --all-extras python benchmarks/search.py [10000] [100000]`, `search.py questions`,
or `search.py foreign FOLDER` for sets that are not kept here (benchmarks/README.md says how to get them).

10,000 chunks are made, read and embedded for real; 100,000 are filled up with vectors near those, because embedding them would
take most of an hour and changes nothing for the query. CPU seconds of one process; queries without the embedding of the question,
by their kind, with the chunks in files of 100 and in files of 5,000.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy
from dialogues import bm25
from sets import documents

from kaname import RAGPipeline
from kaname.tools.search.chunk import TextChunk
from kaname.tools.search.index import FileRow
from kaname.tools.search.rank import rank

CORPUS = Path(__file__).parent.parent / "tests" / "corpora" / "search"
THINGS = [
    "pump",
    "valve",
    "sensor",
    "cable",
    "filter",
    "motor",
    "display",
    "battery",
    "housing",
    "antenna",
    "圧力計",
    "温度計",
    "流量計",
    "電池",
    "表示器",
    "配線",
    "筐体",
]
PLACES = ["Kyoto", "Leeds", "Osaka", "Berlin", "Matsumoto", "Nagoya", "京都", "大阪", "松本", "名古屋", "倉庫", "工場"]
ACTS = [
    "is checked",
    "was replaced",
    "must be cleaned",
    "costs",
    "is delivered",
    "failed",
    "を点検する",
    "を交換した",
    "を清掃する",
    "の価格は",
    "を出荷する",
]


def sentence(rng: random.Random) -> str:
    number = rng.randrange(10, 99_999)
    return (
        f"{rng.choice(THINGS)} {number} {rng.choice(ACTS)} {rng.choice(PLACES)} ({rng.randrange(1, 29)} 日, {number % 977} h)."
    )


def made(folder: Path, count: int) -> None:
    """Files of a hundred chunks each."""
    rng = random.Random(7)
    for file in range(count // 100):
        parts = [
            f"# {rng.choice(THINGS)} {file}-{part}\n\n" + " ".join([sentence(rng) for _ in range(4)]) for part in range(100)
        ]
        (folder / f"{file:05}.md").write_text("\n\n".join(parts), encoding="utf-8")


def queries(pipeline: RAGPipeline, rng: random.Random, count: int = 60) -> dict[str, list[tuple[str, object]]]:
    """By kind: each question with its vector."""
    latin, wide = [one for one in THINGS if one.isascii()], [one for one in THINGS if not one.isascii()]
    kinds = {
        "sentence": [sentence(rng).replace(".", "?") for _ in range(count)],
        "English": [f"How often must the {rng.choice(latin)} be cleaned in {rng.choice(PLACES[:6])}?" for _ in range(count)],
        "Japanese": [f"{rng.choice(PLACES[6:])}の{rng.choice(wide)}はいつ点検しますか" for _ in range(count)],
        "common word": [rng.choice(THINGS) for _ in range(count)],
        "identifier": [str(rng.randrange(10, 99_999)) for _ in range(count)],
        "unknown words": ["zebra quokka"] * count,
        "2,000 characters": [" ".join([sentence(rng) for _ in range(40)])[:2_000] for _ in range(count)],
    }
    return {kind: list(zip(asked, pipeline._embeddings.embed(asked), strict=True)) for kind, asked in kinds.items()}


def timed(pipeline: RAGPipeline, asked: dict[str, list[tuple[str, object]]]) -> None:
    """The first question of all, which loads the vectors, is not counted; the first of each kind is."""
    pipeline.search_vector("", asked["identifier"][0][1], 5)
    for kind, questions in asked.items():
        times = []
        for question, vector in questions:
            begun = time.perf_counter()
            pipeline.search_vector(question, vector, 5)
            times.append((time.perf_counter() - begun) * 1000)
        times.sort()
        print(f"    {kind:17} p50 {times[len(times) // 2]:5.1f} ms, p95 {times[int(len(times) * 0.95)]:5.1f} ms")


def regrouped(pipeline: RAGPipeline, size: int) -> None:
    """The same chunks, in files of this many."""
    db = pipeline._index._db
    db.execute("DELETE FROM files")
    db.execute("UPDATE chunks SET file = (id - 1) / ? + 1, number = (id - 1) % ? + 1", (size, size))
    db.execute("INSERT INTO files SELECT file, 'file-' || file, 0, 0, '', count(*), '' FROM chunks GROUP BY file")


def exact(pipeline: RAGPipeline, asked: list[tuple[str, object]]) -> float:
    """recall@5 of the vector side against a plain exact search over the float32 vectors of the same texts."""
    index = pipeline._index
    rows = index._db.execute("SELECT id, heading, text FROM chunks").fetchall()
    texts = [f"{heading}\n{text}" if heading else text for _, heading, text in rows]
    vectors = numpy.concatenate([pipeline._embeddings.embed(texts[start : start + 64]) for start in range(0, len(texts), 64)])
    ids = [number for number, _, _ in rows]
    same = 0
    for _, vector in asked:
        best = {ids[place] for place in numpy.argsort(-(vectors @ vector))[:5]}
        ours = index.by_vector(vector, 5)
        same += len(best & set(ours))
    return same / (5 * len(asked))


def labelled() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pipeline = RAGPipeline(Path(folder) / "docs.db")
        pipeline.add(CORPUS / "docs")
        asked = [json.loads(line) for line in (CORPUS / "questions.jsonl").read_text("utf-8").splitlines()]
        counted: Counter[tuple[str, str]] = Counter()
        totals: Counter[tuple[str, str]] = Counter()
        for one in asked:
            if one["kind"] == "none":
                continue
            hits = pipeline.search(one["question"], 5)
            wanted = "".join(one["contains"].split())
            right = [
                wanted in "".join((hit.heading + hit.text).split()) and Path(hit.source).name in one["source"] for hit in hits
            ]
            totals[one["kind"], one["lang"]] += 1
            counted[one["kind"], one["lang"]] += any(right)
        for key, total in sorted(totals.items()):
            print(f"  {key[0]:12} {key[1]}  {counted[key]:3} of {total}")
        print(f"  recall@5, the right passage: {sum(counted.values())} of {sum(totals.values())}; {len(pipeline)} chunks")
        pipeline.close()


def in_other_words() -> None:
    """Our own documents (`sets/documents.txt`), among those of the labelled set: does the sentence that answers stand in what was found?"""
    with tempfile.TemporaryDirectory() as folder:
        pipeline = RAGPipeline(Path(folder) / "docs.db")
        (Path(folder) / "own").mkdir()
        for number, document in enumerate(documents()):
            (Path(folder) / "own" / f"{number:02}.md").write_text(f"# {document.title}\n\n{document.text}", encoding="utf-8")
        pipeline.add(CORPUS / "docs", Path(folder) / "own")
        for held in (0, 1):
            counted: Counter[int] = Counter()
            asked = [one for document in documents()[held::2] for one in document.questions]
            for question, answer in asked:
                found = ["".join(hit.found.split()) for hit in pipeline.search(question, 10)]
                for most in (1, 3, 5, 10):
                    counted[most] += any("".join(answer.split()) in text for text in found[:most])
            print(
                f"  {'held out' if held else 'tuned on'}:",
                ", ".join([f"@{most} {counted[most]} of {len(asked)}" for most in (1, 3, 5, 10)]),
            )
        pipeline.close()


def foreign(folder: Path) -> None:
    """Foreign sets: of each `NAME/docs` and `NAME/questions.json` (a list of `q` and `rel`, the names of the files that answer it).

    Half of the questions, by the hash of their text, is for tuning; the other half is held out."""
    for name in sorted(folder.iterdir()):
        asked = json.loads((name / "questions.json").read_text("utf-8"))
        files = sorted((name / "docs").iterdir())
        with tempfile.TemporaryDirectory() as place:
            pipeline = RAGPipeline(Path(place) / "docs.db")
            pipeline.add(name / "docs")
            index, questions = pipeline._index, [one["q"] for one in asked]
            rows = index._db.execute("SELECT c.id, f.path, c.text FROM chunks c JOIN files f ON f.id = c.file").fetchall()
            document = {number: Path(path).stem for number, path, _ in rows}
            orders = {
                "BM25, chunks": [[rows[at][0] for at in order] for order in bm25([text for _, _, text in rows], questions)],
                "vectors": [rank(index.by_vector(vector, 200)) for vector in pipeline.embed(questions)],
                "search": [rank(pipeline.score(one, pipeline.embed([one])[0])[0]) for one in questions],
            }
            found = {
                way: [list(dict.fromkeys([document[number] for number in one])) for one in several]
                for way, several in orders.items()
            }
            whole = bm25([file.read_text("utf-8") for file in files], questions)
            found["BM25, documents"] = [[files[at].stem for at in order] for order in whole]
            pipeline.close()
        for held in (0, 1):
            chosen = [at for at, one in enumerate(asked) if hashlib.sha256(one["q"].encode()).digest()[0] & 1 == held]
            print(f"{name.name}, {'held out' if held else 'tuned on'}, {len(chosen)} questions (nDCG@10, first, top five)")
            for way, several in found.items():
                figures = [judged(several[at][:10], set(asked[at]["rel"])) for at in chosen]
                print(
                    f"    {way:16}", *[f"{sum(column) / len(chosen):.3f}" for column in zip(*figures, strict=True)], flush=True
                )


def judged(order: list[str], wanted: set[str]) -> tuple[float, int, int]:
    right = [one in wanted for one in order]
    ideal = sum([1 / math.log2(place + 2) for place in range(min(10, len(wanted)))])
    return (
        sum([hit / math.log2(place + 2) for place, hit in enumerate(right)]) / ideal,
        int(any(right[:1])),
        int(any(right[:5])),
    )


def small_files(folder: Path, count: int = 150) -> None:
    """One chunk each."""
    rng = random.Random(5)
    (folder / "small").mkdir()
    for number in range(count):
        (folder / "small" / f"{number}.txt").write_text(" ".join([sentence(rng) for _ in range(4)]), encoding="utf-8")
    pipeline = RAGPipeline(folder / "small.db")
    pipeline.search("the weights are read with the first")
    begun = time.process_time()
    pipeline.add(folder / "small")
    took = time.process_time() - begun
    print(f"{count} files of one chunk: {len(pipeline) / took:.0f} chunks a CPU second")
    pipeline.close()


def measured(count: int, folder: Path) -> None:
    rng, pipeline = random.Random(11), RAGPipeline(folder / "docs.db")
    (folder / "made").mkdir()
    made(folder / "made", min(count, 10_000))
    begun = time.process_time()
    pipeline.add(folder / "made")
    took = time.process_time() - begun
    print(f"{len(pipeline):,} chunks read and embedded in {took:.0f} CPU s: {len(pipeline) / took:.0f} a second")
    begun = time.process_time()
    pipeline.add(folder / "made")
    print(f"the same again, nothing changed: {time.process_time() - begun:.2f} CPU s")
    asked = queries(pipeline, rng)
    if count <= 10_000:
        print(f"recall@5 against exact search: {exact(pipeline, asked['sentence'] + asked['English']):.3f}")
    fill(pipeline, count, rng, asked["sentence"][0])
    for size in (100, 5_000):
        regrouped(pipeline, size)
        print(f"  a query at {len(pipeline):,} chunks in files of {size:,}:")
        timed(pipeline, asked)
    size = pipeline.path.stat().st_size / 1e6
    print(f"RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB at most, index {size:.0f} MB")
    pipeline.close()


def fill(pipeline: RAGPipeline, count: int, rng: random.Random, one: tuple[str, object]) -> None:
    if len(pipeline) >= count:
        return
    pipeline.search_vector(*one, 5)  # the vectors are loaded with the first
    near = pipeline._index._matrix
    while len(pipeline) < count:
        some = [sentence(rng) + " " + sentence(rng) for _ in range(5_000)]
        noise = numpy.random.default_rng(len(pipeline)).normal(0, 0.02, (5_000, 512)).astype(numpy.float32)
        vectors = near[numpy.arange(5_000) % len(near)] + noise
        row = FileRow(f"filled-{len(pipeline)}", 0.0, 0, "", 5_000, "")
        pipeline._index.put(row, [TextChunk(text, "", "") for text in some], vectors)


if __name__ == "__main__":
    if sys.argv[1:2] == ["foreign"]:
        foreign(Path(sys.argv[2]))
        sys.exit()
    print("labelled questions (tests/corpora/search):")
    labelled()
    print("documents asked about in other words (benchmarks/sets):")
    in_other_words()
    if sys.argv[1:] == ["questions"]:
        sys.exit()
    with tempfile.TemporaryDirectory() as name:
        small_files(Path(name))
    for wanted in [int(argument) for argument in sys.argv[1:]] or [10_000, 100_000]:
        with tempfile.TemporaryDirectory() as name:
            measured(wanted, Path(name))
