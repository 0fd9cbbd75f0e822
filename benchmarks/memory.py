"""Is the right memory found, and nothing told as holding that no longer does? How long does it take among 100,000?

`memory.py`: the labelled set of tests/corpora/memories (4 users, 20 sessions, 167 facts of which 55 replace another, 103
questions, half of them Japanese), with facts as a perfect writer writes them, and by rules.
`memory.py model [MODEL] [TURNS]`: written down by a model (default local), of the first TURNS turns of each user.
`memory.py size [COUNT]`: recall among so many memories. `memory.py turn [COUNT]`: what a turn reads of so many (default 10,000).
`memory.py silence`: how many of 100 questions that have nothing to do with the user draw lines, and what the labelled ones draw.
`memory.py facts [EN JA]`: 48 facts a language (`sets/facts_*.txt`), each asked about alone and among other sentences, in memories
of nine and of 48; with two files of other people's statements, one a line, filled up with these to 50, 400 and 2,000.
`memory.py longmemeval FILE`: messages of LongMemEval, as MemPalace stores them in its results (`benchmarks/results_mempal_raw_*`).
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy

from kaname import Agent, Memory, ScriptedModel
from kaname.memory.rules import statements
from kaname.memory.store import Memories, Recalled
from kaname.tools.search.chunk import TextChunk
from kaname.tools.search.index import FileRow

SET = Path(__file__).parent.parent / "tests" / "corpora" / "memories"
USERS = ("emma", "ken", "yuki", "takashi")
TOP = 3
SETS = Path(__file__).parent / "sets"
SIZES = (50, 400, 2_000)


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SET / name).read_text(encoding="utf-8").splitlines()]


def when(turn: dict[str, Any]) -> float:
    return datetime.fromisoformat(turn["date"]).replace(tzinfo=UTC).timestamp() + turn["turn"] * 60


def written(folder: Path, user: str) -> tuple[Memories, dict[int, str]]:
    """The facts as they are in the set; and which memory is which."""
    store = Memories(folder / f"{user}.db", user)
    ids: dict[str, int] = {}
    for turn in lines("memories.jsonl"):
        for fact in turn["facts"] if turn["user"] == user else ():
            replaces = ids.get(fact["replaces"] or "", 0)
            ids[fact["id"]] = store.add(fact["text"], fact["kind"], replaces=replaces, said=when(turn)).id
    return store, {number: fact for fact, number in ids.items()}


def judged(store: Memories, names: dict[int, str], user: str, top: int = TOP) -> tuple[Counter[str], Counter[str], int]:
    """How many questions of each kind there are, how many found their answer, and how often something was told as holding that
    was replaced."""
    asked, right, outdated = Counter[str](), Counter[str](), 0
    for question in [one for one in lines("questions.jsonl") if one["user"] == user]:
        found = store.search(question["question"], top)
        asked[question["kind"]] += 1
        right[question["kind"]] += answered(found, names, question)
        outdated += sum([names.get(one.memory.id) in question["outdated"] for one in found if not one.memory.ended])
    return asked, right, outdated


def answered(found: list[Recalled], names: dict[int, str], question: dict[str, Any]) -> bool:
    """What holds now must be told as holding now, and what held before as that."""
    holding = {names.get(one.memory.id) for one in found}
    past = {names.get(old.id) for one in found for old in one.before}
    return any(answer in (past | holding if question["kind"] == "past" else holding) for answer in question["answers"])


def by_runs(folder: Path, user: str, most: int, **how: Any) -> tuple[Memories, dict[int, set[str]]]:
    """What is learnt from real runs; and the facts of the turns that each memory comes from."""
    memory = Memory(folder / "memory", **how)
    agent = Agent(ScriptedModel(lambda request: "I see."), name="set", context=memory, journal=folder / "journal.db")
    of_run: dict[str, set[str]] = {}

    async def tell() -> None:
        async with agent:
            for turn in [one for one in lines("memories.jsonl") if one["user"] == user][:most]:
                result = await agent.run(turn["said"], user_id=user, session_id=turn["session"])
                of_run[result.run_id] = {fact["id"] for fact in turn["facts"]}

    asyncio.run(tell())
    store = memory.of(user)
    return store, {one.id: of_run.get(one.run, set()) for one in store.all(past=True)}


def judged_by_turn(store: Memories, facts: dict[int, set[str]], user: str, top: int = TOP) -> tuple[int, int, int]:
    """Questions whose answer was said in those turns, how many found it, and how often what was replaced was told as holding:
    the user's own words with their date (`said`) claim nothing."""
    learnt = set().union(*facts.values()) if facts else set()
    asked = right = outdated = 0
    for question in [one for one in lines("questions.jsonl") if one["user"] == user and learnt & set(one["answers"])]:
        found = store.search(question["question"], top)
        sources = set().union(*[facts[one.id] for hit in found for one in (hit.memory, *hit.before)], set())
        asked += 1
        right += bool(sources & set(question["answers"]))
        holding = [facts[hit.memory.id] for hit in found if hit.memory.kind != "said" and not hit.memory.ended]
        outdated += sum([bool(one & set(question["outdated"])) and not one & set(question["answers"]) for one in holding])
    return asked, right, outdated


def size(count: int) -> None:
    """Vectors near those of real sentences, because to embed so many would take an hour."""
    with tempfile.TemporaryDirectory() as folder:
        store, _ = written(Path(folder), "emma")
        random = numpy.random.default_rng(7)
        store._load()
        known, texts = store._matrix, [one.text for one in store.all(past=True)]
        with store._write_transaction():
            for number in range(count - len(texts)):
                vector = known[number % len(known)] + random.normal(0, 0.05, known.shape[1])
                text = f"{texts[number % len(texts)]} ({number})"
                made = store._db.execute(
                    "INSERT INTO memories (chain, text, kind, about, said, ended, run, same) VALUES (0, ?, 'fact', '', 0, 0, '', ?)",
                    (text, text),
                )
                store._db.execute("UPDATE memories SET chain = id WHERE id = ?", (made.lastrowid,))
                row = FileRow(f"memory/{made.lastrowid}", 0.0, 0, "", 1, "")
                store._insert(row, [TextChunk(text, "", "")], [vector / numpy.linalg.norm(vector)])
        subprocess.run([sys.executable, __file__, "recall", str(store.path)], check=True)


def recall(path: str) -> None:
    """In a process of its own, which has made none of them."""
    store = Memories(path)
    took = sorted(_timed(store))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(store)} memories: recall p50 {took[len(took) // 2]:.1f} ms, slowest {took[-1]:.1f} ms; {used:.0f} MB at most")


def _timed(store: Memories) -> Iterator[float]:
    """In ms, without the embedding of the question."""
    questions = [one["question"] for one in lines("questions.jsonl")]
    vectors = dict(zip(questions, store._search.embed(questions), strict=True))
    store._search.embed = lambda texts, **_: [vectors[texts[0]]]  # type: ignore[method-assign]
    store.search(questions[0])
    for question in questions:
        begun = time.perf_counter()
        store.search(question, 8)
        yield (time.perf_counter() - begun) * 1000


def turn(count: int) -> None:
    """What is looked up before a turn, without the embedding of the question: steps of SQLite's machine, and the time."""
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(folder, learn="nothing")
        store = memory.of("emma")
        random = numpy.random.default_rng(7)
        vectors = random.normal(0, 1, (count, 512))
        vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
        with store._write_transaction():
            for number, vector in enumerate(vectors, 1):
                text = f"Note {number} is about item {number * 7919 % 100_003}."
                store._db.execute(
                    "INSERT INTO memories (id, chain, text, kind, about, said, ended, run, same) VALUES (?, ?, ?, 'said', '', ?, 0, '', ?)",
                    (number, number, text, float(number), text),
                )
                store._insert(FileRow(f"memory/{number}", 0.0, 0, "", 1, ""), [TextChunk(text, "", "")], [vector])
        store._search.embed = lambda texts, **_: vectors[:1]  # type: ignore[method-assign]
        memory.lines("What was note 77 about?", "emma", "helper")  # the vectors are loaded with the first
        steps = 0

        def counted() -> int:
            nonlocal steps
            steps += 1
            return 0

        store._db.set_progress_handler(counted, 1)
        memory.lines("What was note 77 about?", "emma", "helper")
        store._db.set_progress_handler(None, 1)
        times = []
        for _ in range(20):
            begun = time.perf_counter()
            memory.lines("What was note 77 about?", "emma", "helper")
            times.append((time.perf_counter() - begun) * 1000)
        print(f"a turn with {count:,} memories: {steps:,} steps of SQLite, {sorted(times)[10]:.1f} ms (median)")
        memory.close()


def silence() -> None:
    off = [
        line for line in (Path(__file__).parent / "sets" / "off_topic.txt").read_text("utf-8").splitlines() if line[0] != "#"
    ]
    with tempfile.TemporaryDirectory() as folder:
        for how in ("written well", "by rules"):
            drew, right, total = Counter[int](), 0, 0
            for user in USERS:
                if how == "by rules":
                    store, facts = by_runs(Path(folder), user, 1_000)
                else:
                    store, names = written(Path(folder), user)
                    facts = {number: {fact} for number, fact in names.items()}
                for place, question in enumerate(off):
                    drew[place % 2] += bool(recalled(store, question))
                for one in [one for one in lines("questions.jsonl") if one["user"] == user]:
                    found = recalled(store, one["question"])
                    kept = set().union(*[facts[version.id] for hit in found for version in (hit.memory, *hit.before)], set())
                    total += 1
                    right += bool(kept & set(one["answers"]))
            halves = [f"{drew[half] / (len(off) // 2 * len(USERS)):.0%}" for half in (0, 1)]
            print(
                f"{how}: off-topic questions that draw lines: {halves[0]} (held out {halves[1]}); on-topic with the answer: {right}/{total}"
            )


NAME = {"en": "My name is Nora.", "ja": "私の名前は森田です。"}


def lines_for(folder: str, texts: list[str], questions: list[str], name: str = "") -> list[list[str]]:
    """The lines that each question brings in, of these memories."""
    memory = Memory(tempfile.mkdtemp(dir=folder), learn="nothing")
    if name:
        memory.of("u").add(name, about="name")
    for place, text in enumerate(dict.fromkeys(texts)):
        memory.of("u").add(text, "said", said=1_700_000_000.0 + 60 * place)
    found = [memory.lines(question, "u", "helper") for question in questions]
    memory.close()
    return found


def has(lines: list[str], text: str) -> bool:
    return any(line.endswith(text) for line in lines)


def off_topic(language: str, held: bool) -> list[str]:
    from sets import facts  # found when this file is run, not when a test imports it

    more = [line for line in (SETS / "off_topic.txt").read_text("utf-8").splitlines() if line[0] != "#"]
    japanese = [bool(re.search("[ぁ-ん]", line)) for line in more]
    own = [line for line, out in facts(language)[1] if out is held]
    return own + [line for n, line in enumerate(more) if japanese[n] is (language == "ja") and (n % 2 == 1) is held]


def facts_found(*files: str) -> None:
    from sets import facts

    with tempfile.TemporaryDirectory() as folder:
        for language, held in [(language, held) for language in ("en", "ja") for held in (False, True)]:
            told, off = facts(language)[0], off_topic(language, held)
            mine = [one for one in told if one.held_out is held]
            label = f"{language} {'HELD OUT' if held else 'tuned on'}"
            nines = [mine[start : start + 9] for start in range(0, len(mine), 9)]
            fill = Path(files[language == "ja"]).read_text("utf-8").splitlines() if files else []
            fill = [line for line in fill if (sha256(line.encode()).digest()[0] % 2 == 1) is held]
            sizes = [(f"nine at a time, {label}", nine, nine) for nine in nines] + [(f"all 48, {label}", mine, told)]
            sizes += [(f"{size} memories, {label}", mine, [*mine, *fill[: size - len(mine) - 1]]) for size in SIZES if fill]
            counts: dict[str, Counter[str]] = {}
            for title, asked, known in sizes:
                texts = [one if isinstance(one, str) else one.text for one in known]
                questions = [one.asked for one in asked] + [one.among for one in asked]
                lines = lines_for(folder, texts, questions + off, NAME[language])
                count = counts.setdefault(title, Counter())
                for place, one in enumerate(asked):
                    for kind, got in (("alone", lines[place]), ("among others", lines[len(asked) + place])):
                        count[kind] += has(got, one.text)
                        count["by name"] += one.by_name and has(got, one.text)
                drawn = [got for got in lines[len(questions) :] if got]
                count.update({"asked": len(asked), "off topic": len(off), "drew": len(drawn), "lines": sum(map(len, drawn))})
            for title, count in counts.items():
                print(f"{title}: {dict(count)}", flush=True)


def longmemeval(path: str) -> None:
    """An answer that stands literally in what the user said in an evidence session; the sessions' beginnings are stored."""
    for held in (False, True):
        count, off = Counter[str](), off_topic("en", held)
        with tempfile.TemporaryDirectory() as folder:
            for one in map(json.loads, Path(path).read_text("utf-8").splitlines()):
                mark = sha256(one["question_id"].encode()).digest()
                answer = str(one["answer"]).lower().strip(". ")
                items = sorted(one["retrieval_results"]["ranked_items"], key=lambda item: item["timestamp"])
                told = [(item["corpus_id"].startswith("answer"), text) for item in items for text in statements(item["text"])]
                right = [text for evidence, text in told if evidence and answer in text.lower()]
                if (mark[-1] % 2 == 1) is not held or len(answer) < 2 or not right or one["question_id"].endswith("_abs"):
                    continue
                others = [off[(int.from_bytes(mark) + n) % len(off)] for n in range(6)]
                found, *drew = lines_for(folder, [text for _, text in told], [one["question"], *others])
                count.update(asked=1, found=any(has(found, text) for text in right), lines=len(found), memories=len(told))
                count.update({"off topic": 6, "drew": sum(map(bool, drew)), "lines drawn": sum(map(len, drew))})
        print("HELD OUT" if held else "tuned on", dict(count), flush=True)


def recalled(store: Memories, question: str) -> list[Recalled]:
    """As `Memory` recalls before a turn."""
    return store.search(question, 8, clear=True)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["turn"]:
        turn(int(arguments[1]) if len(arguments) > 1 else 10_000)
        return
    if arguments[:1] == ["facts"]:
        facts_found(*arguments[1:])
        return
    if arguments[:1] == ["longmemeval"]:
        longmemeval(arguments[1])
        return
    if arguments[:1] == ["silence"]:
        silence()
        return
    if arguments[:1] == ["size"]:
        size(int(arguments[1]) if len(arguments) > 1 else 100_000)
        return
    if arguments[:1] == ["recall"]:
        recall(arguments[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments[:1] != ["model"]:
            every = [judged(*written(Path(folder), user), user) for user in USERS]
            asked, right = sum([one[0] for one in every], Counter()), sum([one[1] for one in every], Counter())
            kinds = ", ".join([f"{kind} {right[kind]}/{asked[kind]}" for kind in asked])
            told = f"{right.total()}/{asked.total()} ({right.total() / asked.total():.1%}) in the top {TOP}; {kinds}"
            print(f"written well: {told}; told as holding though replaced: {sum([one[2] for one in every])}")
        model = arguments[1] if len(arguments) > 1 else "local"
        most = int(arguments[2]) if len(arguments) > 2 else 1_000
        how = {"model": model} if arguments[:1] == ["model"] else {}
        total = numpy.zeros(3, dtype=int)
        for user in USERS:
            store, facts = by_runs(Path(folder), user, most, **how)
            total += judged_by_turn(store, facts, user)
            if how:
                print(user, *[f"\n  {one.text}" for one in store.all()])
        asked_, right_, outdated = total
        print(
            f"{'by ' + model if how else 'by rules'}: {right_}/{asked_} ({right_ / max(1, asked_):.1%}); told as holding: {outdated}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
