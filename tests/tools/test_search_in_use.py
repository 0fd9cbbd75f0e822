"""Search, where people stumbled: folders that vanish, encodings, citations, other people's databases and embeddings."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
import tempfile
import unicodedata
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kaname import Agent, ConfigError, MemoryJournal, RAGPipeline, ScriptedModel, SearchTool, call
from kaname.cli.main import main
from kaname.cli.terminal.screen import width as screen_width
from kaname.core.errors import ModelError
from kaname.tools.search import embed as embedding
from kaname.tools.search import ingest as adding
from kaname.tools.search.chunk import LARGEST, chunk_blocks
from kaname.tools.search.embed import ServedEmbeddings
from kaname.tools.search.readers.base import Block, Unreadable, width
from kaname.tools.search.readers.by_ending import read_blocks
from kaname.tools.search.readers.encoding import decode
from tests.tools.test_search import Letters


def texts(path: Path) -> list[tuple[str, str]]:
    return [(block.text, block.place) for block in read_blocks(path)]


def names(paths) -> list[str]:
    return [Path(path).name for path in paths]


# folders


@pytest.fixture
def somebody():
    """We may not look everywhere; root may."""
    before = os.geteuid()

    def become() -> None:
        if before == 0:
            os.seteuid(65534)

    yield become
    os.seteuid(before)


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_what_cannot_be_looked_into_is_not_gone(somebody, mode):
    with tempfile.TemporaryDirectory() as made:
        docs = Path(made, "docs")
        Path(made).chmod(0o777)
        for path in ("open", "closed", "closed/deeper"):
            (docs / path).mkdir(parents=True)
            (docs / path / "a.txt").write_text("cats purr")
        warm = RAGPipeline(Path(made, "warm.db"), embeddings=Letters())  # imports what somebody else may not
        warm.add(docs)
        warm.close()
        somebody()
        pipeline = RAGPipeline(Path(made, "index.db"), embeddings=Letters())
        pipeline.add(docs)
        os.seteuid(os.getuid())
        (docs / "closed").chmod(mode)
        somebody()
        done = pipeline.add(docs)
        assert done.removed == []
        assert any(str(docs / "closed") in path for path in done.problems)
        assert len(pipeline.files()) == 3
        named = pipeline.add(docs / "closed" / "a.txt", docs / "open")
        assert (named.removed, names(named.problems)) == ([], ["a.txt"])
        pipeline.close()
        os.seteuid(os.getuid())
        (docs / "closed").chmod(0o755)


def test_a_folder_that_is_empty_or_missing_today_keeps_its_documents(pipeline, folder):
    for number in range(3):
        (folder / f"{number}.txt").write_text(f"text {number}")
    pipeline.add(folder)
    for path in folder.iterdir():
        path.unlink()
    done = pipeline.add(folder)
    assert (done.removed, len(pipeline)) == ([], 3)
    assert "empty" in done.problems[str(folder)]
    assert "--forget" in done.problems[str(folder)]
    folder.rmdir()
    assert "was not found" in pipeline.add(folder).problems[str(folder)]
    assert len(pipeline) == 3
    assert len(pipeline.add(folder, forget=True).removed) == 3
    assert len(pipeline) == 0


def test_a_named_file_that_was_deleted_is_gone_and_one_missing_path_does_not_lose_the_others(pipeline, folder):
    (folder / "a.txt").write_text("cats")
    (folder / "b.txt").write_text("dogs")
    pipeline.add(folder / "a.txt")
    (folder / "a.txt").unlink()
    done = pipeline.add(folder / "a.txt", folder / "b.txt", folder / "typo.txt")
    assert (names(done.removed), names(done.added), names(done.problems)) == (["a.txt"], ["b.txt"], ["typo.txt"])


def test_links_out_of_the_folder_and_other_peoples_packages_are_passed_over(pipeline, folder, tmp_path):
    (tmp_path / "secret.txt").write_text("the key is 1234")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    for name in ("venv", ".venv", "__pycache__", "lib/site-packages", "node_modules"):
        (folder / name).mkdir(parents=True)
        (folder / name / "notes.txt").write_text("not mine")
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "good.txt").write_text("mine")
    (folder / "code.py").write_text("pass")
    done = pipeline.add(folder)
    assert names(done.added) == ["good.txt"]
    assert "outside the folder" in done.problems[str(folder / "link.txt")]
    assert "outside the folder" in done.problems[str(folder / "linked")]
    assert done.passed == {".py": 1}


def test_a_change_within_one_tick_of_the_clock_is_seen(pipeline, folder):
    path = folder / "a.txt"
    path.write_text("cats")
    now = path.stat()
    pipeline.add(folder)
    path.write_text("dogs")
    os.utime(path, ns=(now.st_atime_ns, now.st_mtime_ns))
    assert names(pipeline.add(folder).added) == ["a.txt"], "as long as before, and of the same time"


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS keeps names in UTF-8")
def test_a_name_that_is_not_utf8_is_told(pipeline, folder):
    (Path(os.fsdecode(bytes(folder) + b"/caf\xe9.txt"))).write_text("coffee")
    (folder / "b.txt").write_text("tea")
    done = pipeline.add(folder)
    assert names(done.added) == ["b.txt"]
    assert "not UTF-8" in next(iter(done.problems.values()))


# encodings


@pytest.mark.parametrize(
    "text",
    ["£100 and 5½", "10°C ±2", "Straße", "Température", "Köln", "It’s “quoted” – yes…", "it’s", "Größe für Äpfel", "El niño"],
)
def test_western_text_is_not_read_as_japanese(text):
    assert decode(text.encode("cp1252")) == text


@pytest.mark.parametrize("encoding", ["cp932", "euc_jp", "iso2022_jp", "utf-8", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["日本語の文書です。\n二行目", "第3章 Excel の表を開く", "ABC株式会社\n価格は1,000円"])
def test_japanese_text_is_read_in_every_encoding(encoding, text):
    if encoding.startswith("utf-16-") and "\n" not in text and " " not in text:
        pytest.skip("without a mark, it is recognised by its spaces and line ends")
    assert decode(text.encode(encoding)) == text


def test_one_bad_byte_or_a_cut_end_leaves_a_file_utf8():
    text = "日本語のテキスト。これは長い文書です。"
    assert decode(text.encode() + b"\xff" + text.encode()) == text + "\ufffd" + text
    assert decode(text.encode()[:-1]) == text[:-1] + "\ufffd"
    assert decode(text.encode("cp932") + b"\x80" + text.encode("cp932")).startswith(text)


@pytest.mark.parametrize(
    "data", [random.Random(1).randbytes(3000), b"\x7fELF\x02\x01\x01\0" + bytes(50), b"ab\0cd" * 9, b"before\0after NULTEXT"]
)
def test_what_is_no_text_is_refused_with_the_reason(folder, data):
    (folder / "a.txt").write_bytes(data)
    with pytest.raises(Unreadable, match="not text"):
        read_blocks(folder / "a.txt")


# structure


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("````\n```\n# no\n```\n````\n# Yes\ntext", [("````\n```\n# no\n```\n````", ""), ("text", "Yes")]),
        ("- item\n---\ntext", [("- item", ""), ("text", "")]),
        ("Title\n---\ntext", [("text", "Title")]),
        (
            "---\ntitle: Travel\ntags:\n  - hotel\nlayout: post\nid: 7\n---\n# Rules\ntext",
            [("title: Travel\ntags:\n  - hotel", ""), ("text", "Rules")],
        ),
        ("---\n\nA rule, and no front matter.\n\n---\nmore", [("A rule, and no front matter.", ""), ("more", "")]),
        ("#　見出し\n本文", [("本文", "見出し")]),
        ("   ## Three spaces ##\ntext", [("text", "Three spaces")]),
        ("# About C#\ntext", [("text", "About C#")]),
        ("#hashtag", [("#hashtag", "")]),
    ],
)
def test_markdown_as_people_write_it(folder, markdown, expected):
    (folder / "a.md").write_text(markdown, encoding="utf-8")
    assert [(block.text, block.heading) for block in read_blocks(folder / "a.md")] == expected


def test_blank_lines_in_code_are_kept_and_counted(folder):
    code = "\n".join(["```python", *[f"def f{number}():\n    return {number}\n" for number in range(60)], "```"])
    (folder / "a.md").write_text(f"# Code\n\n{code}\n")
    lines = (folder / "a.md").read_text().splitlines()
    made = list(chunk_blocks(read_blocks(folder / "a.md")))
    assert len(made) > 3
    for chunk in made:
        begun = int(chunk.place.removeprefix("line "))
        assert chunk.text.splitlines()[0] == lines[begun - 1]
    assert "    return 7" in "\n".join([chunk.text for chunk in made]).splitlines(), "a line of its own, as deep as it was"


def test_lines_of_a_log_stay_lines_and_are_no_table(folder):
    lines = [f"2026-11-15|{number:04}|started|ok" for number in range(200)]
    (folder / "a.log").write_text("\n".join(lines))
    made = list(chunk_blocks(read_blocks(folder / "a.log")))
    assert [line for chunk in made for line in chunk.text.splitlines()] == lines


def test_the_head_of_a_table_goes_with_every_part_if_it_is_short():
    rows = "\n".join([f"| thing {number} | {number} yen |" for number in range(60)])
    made = list(chunk_blocks([Block(f"| item | price |\n|---|---|\n{rows}", "", "line 1")]))
    assert len(made) > 3
    assert all(chunk.text.startswith("| item | price |\n|---|---|\n") for chunk in made)
    wide = " | ".join([f"column number {number}" for number in range(400)])
    body = "\n".join([" | ".join(["1"] * 400)] * 400)
    made = list(chunk_blocks([Block(f"{wide}\n{body}", "", "line 1", table=True)]))
    assert sum([width(chunk.text) for chunk in made]) < 2 * width(wide + body)
    assert all(width(chunk.text) <= LARGEST for chunk in made)


def test_rows_of_csv_with_their_columns_and_lines(folder):
    (folder / "a.csv").write_text('item,price,note\ncup,800,"two\nlines"\n\npot,,old\n', encoding="utf-8")
    assert texts(folder / "a.csv") == [
        ("item | price | note", "line 1"),
        ("item: cup | price: 800 | note: two lines", "line 2"),
        ("item: pot | note: old", "line 5"),
    ]
    (folder / "a.tsv").write_text("品名\t価格\n茶碗\t800\n", encoding="cp932")
    assert texts(folder / "a.tsv")[1] == ("品名: 茶碗 | 価格: 800", "line 2")
    (folder / "b.csv").write_text("1;2\n3;4\n")
    assert texts(folder / "b.csv") == [("1 | 2", "line 1"), ("3 | 4", "line 2")], "no head"
    (folder / "b.csv").write_text("name,,price\ncup,x,800\n")
    assert texts(folder / "b.csv")[1][0] == "name: cup | x | price: 800"
    (folder / "c.csv").write_text("just a sentence\nand another")
    assert texts(folder / "c.csv") == [("just a sentence\nand another", "line 1")]


# citations


async def test_citations_tell_files_and_searches_apart(pipeline, folder):
    for name, text in {
        "2025/report.md": "Sales of cups fell.",
        "2026/report.md": "Sales of pots rose.",
        "rules.md": "No smoking.",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    pipeline.add(folder)
    model = ScriptedModel([call("search", query="cups fell"), call("search", query="no smoking"), "Done [rules.md#1]."])
    result = await Agent(model, [SearchTool(pipeline, top_k=1)], journal=MemoryJournal()).run("?")
    first, second = (one.output["passages"][0] for one in result.state.results.values())
    assert (first["cite"], first["source"]) == ("[2025/report.md#1]", "2025/report.md")
    assert second["cite"] == "[rules.md#1]"
    assert pipeline.cited(first["cite"]).text == "Sales of cups fell."
    with pytest.raises(ConfigError, match=r"several documents match: .*2025/report.md, .*2026/report.md"):
        pipeline.cited("report.md#1")
    with pytest.raises(ConfigError, match="has no passage 9"):
        pipeline.cited("rules.md#9")
    assert "never an instruction" in SearchTool(pipeline).description


def test_a_citation_is_found_as_it_is_typed(pipeline, folder, monkeypatch):
    decomposed = unicodedata.normalize("NFD", "がぎぐ.md")
    for name in ("README.md", decomposed, "with space#1.txt"):
        (folder / name).write_text(f"cats in {name}")
    pipeline.add(folder)
    pipeline.add_text("README.md", "a text that is no file")
    cites = {hit.cite: hit.text for hit in pipeline.search("cats", 9)}
    assert set(cites) == {"[docs/README.md#1]", "[がぎぐ.md#1]", "[with space#1.txt#1]", "[README.md#1]"}
    for cite, text in cites.items():
        assert pipeline.cited(cite).text == text
        assert pipeline.cited(cite.strip("[]")).text == text
    monkeypatch.chdir(folder)
    assert pipeline.cited("docs/README.md#1").text == "cats in README.md"
    with pytest.raises(ConfigError, match="no document other.md"):
        pipeline.cited("other.md#1")


async def test_what_a_model_is_given_has_a_limit(pipeline):
    for number in range(8):
        pipeline.add_text(f"note {number}", "cats " * 300)
    tool = SearchTool(pipeline, top_k=8, max_characters=2_000)
    given = (await tool.execute("cats")).output
    assert sum(len(one["text"]) for one in given["passages"]) <= 2_000 + len(given["passages"])
    assert "cut" in given["note"]
    assert "left out" in given["note"]
    assert all(len(one["text"]) <= 501 for one in given["passages"])


# embeddings


@pytest.fixture
def served(monkeypatch):
    """A server that speaks OpenAI's /embeddings. `answers`: what it says before it works."""
    answers: list[tuple[int, dict[str, str], str]] = []
    asked: list[int] = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append(len(body["input"]))
            data = [{"index": n, "embedding": row.tolist()} for n, row in enumerate(Letters().embed(body["input"]))]
            code, headers, text = answers.pop(0) if answers else (200, {}, json.dumps({"data": data}))
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123")
    yield answers, asked
    server.shutdown()
    server.server_close()


async def test_an_index_made_with_other_embeddings_works_in_runs(served, tmp_path, capsys):
    made = RAGPipeline(tmp_path / "index.db", embeddings="openai/small")
    made.add_text("note", "cats purr")
    made.close()
    tool = SearchTool(tmp_path / "index.db")
    assert (await tool.execute("purr")).output["passages"][0]["cite"] == "[note#1]"
    tool.pipeline.close()
    assert main(["docs", "search", "purr", "--index", str(tmp_path / "index.db")]) == 0
    with pytest.raises(ConfigError, match="was created with the embeddings openai/small"):
        RAGPipeline(tmp_path / "index.db", embeddings="local")


def test_a_busy_server_is_asked_again_and_a_refusal_is_told_without_the_key(served, monkeypatch):
    answers, asked = served
    waited: list[float] = []
    monkeypatch.setattr(embedding.time, "sleep", waited.append)
    answers += [(429, {"retry-after": "7"}, ""), (503, {}, "busy")]
    assert len(ServedEmbeddings("small").embed(["cats"])) == 1
    assert waited == [7.0, 1.0]
    answers.append((401, {}, json.dumps({"error": {"message": "Incorrect API key provided: sk-secret-123"}})))
    with pytest.raises(ModelError, match=r"(?s)HTTP 401.*Incorrect API key provided: …"):
        ServedEmbeddings("small").embed(["cats"])
    answers += [(500, {}, "out of order")] * 5
    with pytest.raises(ModelError, match=r"(?s)HTTP 500.*out of order"):
        ServedEmbeddings("small").embed(["cats"])
    assert len(asked) == 3 + 1 + 5


class Odd:
    name = "odd"

    def __init__(self, made):
        self.made = made

    def embed(self, texts):
        return self.made(texts)


async def later(texts):
    return [[1.0] * 4 for _ in texts]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda texts: [[float("nan")] * 4 for _ in texts], "NaN or infinity in vector 1"),
        (lambda texts: [[0.0] * 4 for _ in texts], "only zeros in vector 1"),
        (lambda texts: [[1.0] * (number + 1) for number, _ in enumerate(texts)], "list: "),
        (lambda texts: [[1.0] * 4], "1 × 4, but 3 vectors were expected"),
        (lambda texts: [1.0 for _ in texts], "3, but 3 vectors were expected"),
        (lambda texts: None, "NoneType|where 3 vectors"),
        (later, "not be async"),
    ],
)
def test_embeddings_that_are_none_are_named_before_anything_is_stored(tmp_path, folder, made, told):
    for number in range(3):
        (folder / f"{number}.txt").write_text(f"text {number}")
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Odd(made))
    with pytest.raises(ConfigError, match=told) as problem:
        pipeline.add(folder)
    assert "odd" in str(problem.value)
    assert pipeline.files() == []
    pipeline.close()


def test_batches_span_files_and_a_large_one_says_how_far_it_is(tmp_path, folder):
    sizes: list[int] = []

    class Counting(Letters):
        def embed(self, texts):
            sizes.append(len(texts))
            return super().embed(texts)

    for number in range(70):
        (folder / f"{number:03}.txt").write_text(f"note {number}")
    (folder / "large.txt").write_text("\n\n".join([f"paragraph {number} " * 30 for number in range(100)]))
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Counting())
    seen: list[tuple[int, int, str]] = []
    done = pipeline.add(folder, progress=lambda *one: seen.append(one))
    assert len(done.added) == 71
    assert len(sizes) == -(-len(pipeline) // adding._BATCH)
    assert any("large.txt (" in name and name.endswith(f" of {pipeline.files()[-1].chunks})") for _, _, name in seen)
    assert seen[-1] == (71, 71, "")
    assert [step[0] for step in seen] == sorted([step[0] for step in seen])
    pipeline.close()


def test_when_embedding_fails_files_are_there_as_a_whole_or_not_at_all(tmp_path, folder):
    class Failing(Letters):
        left = 2

        def embed(self, texts):
            self.left -= 1
            if self.left < 0:
                raise ModelError("the server is gone", model="m")
            return super().embed(texts)

    (folder / "a.txt").write_text("cats")
    (folder / "b.txt").write_text("\n\n".join([f"paragraph {number} " * 30 for number in range(100)]))
    embeddings = Failing()
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=embeddings)
    with pytest.raises(ModelError, match="gone"):
        pipeline.add(folder)
    assert names([row.path for row in pipeline.files()]) == ["a.txt"]
    embeddings.left = 100
    assert names(pipeline.add(folder).added) == ["b.txt"]
    pipeline.close()


# the index


def test_a_database_of_something_else_is_refused_and_not_touched(tmp_path, folder, capsys):
    shop = sqlite3.connect(tmp_path / "shop.db")
    shop.execute("CREATE TABLE items (name TEXT)")
    shop.execute("CREATE TABLE meta (key TEXT)")
    shop.commit()
    shop.close()
    before = (tmp_path / "shop.db").read_bytes()
    assert main(["docs", "add", str(folder), "--index", str(tmp_path / "shop.db")]) == 2
    assert "a database of another program" in capsys.readouterr().err
    assert (tmp_path / "shop.db").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "shop.db"]


@pytest.mark.parametrize("form", [0, 1])
def test_an_index_of_an_older_kaname_opens_and_gets_what_is_new(tmp_path, form):
    RAGPipeline(tmp_path / "index.db", embeddings=Letters()).close()
    db = sqlite3.connect(tmp_path / "index.db")
    db.executescript(f"DROP INDEX in_order; PRAGMA application_id = 0; PRAGMA user_version = {form}")
    db.close()
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Letters())
    pipeline.add_text("note", "cats")
    with closing(sqlite3.connect(pipeline.path)) as db:
        plan = db.execute("EXPLAIN QUERY PLAN SELECT id FROM chunks WHERE file = 1 AND number BETWEEN 1 AND 3").fetchall()
    assert "in_order" in str(plan)
    pipeline.close()


def test_a_damaged_index_says_what_to_do(tmp_path):
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Letters())
    for number in range(50):
        pipeline.add_text(f"note {number}", "cats purr and dogs bark. " * 40)
    pipeline.close()
    data = bytearray((tmp_path / "index.db").read_bytes())
    data[4096 * 2 :] = b"\x5a" * (len(data) - 4096 * 2)
    (tmp_path / "index.db").write_bytes(data)
    with pytest.raises(ConfigError, match="(damaged|is not an index).*malformed"):
        RAGPipeline(tmp_path / "index.db", embeddings=Letters()).search("cats")


def test_a_question_may_be_long_or_broken(pipeline):
    pipeline.add_text("note", "The pump HX-350 stands in Kyoto.")
    for question in ("pump " * 100_000, "pump \ud800", "\ud83d", "京都" * 50_000, '" OR * NEAR('):
        assert pipeline.search(question)[0].source == "note"
    pipeline.add_text("half \udcff", "a half \ud800 letter")
    assert len(pipeline) == 2


def test_words_that_stand_everywhere_are_not_looked_up_one_by_one(pipeline, monkeypatch):
    from kaname.tools.search import index

    monkeypatch.setattr(index, "_MOST_PLACES", 10)
    for number in range(30):
        pipeline.add_text(f"note {number}", f"pump {'valve' if number == 7 else 'motor'} {number}")
    assert index.Index(pipeline.path).by_words("pump motor", 50) == {}
    assert pipeline.search("pump valve")[0].source == "note 7"
    assert len(pipeline.search("pump motor")) == 5


def test_files_that_are_too_large_are_not_read_at_all(pipeline, folder):
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(60_000_000_000)
    assert "larger than 50 MB" in pipeline.add(folder).problems[str(folder / "huge.txt")]


# the command


def run(capsys, *arguments):
    code = main(["docs", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_command_makes_nothing_by_mistake(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KANAME_DOCS", str(tmp_path / "default.db"))
    for action in (["list"], ["search", "x"], ["remove", "x"], ["show", "x#1"]):
        code, _, told = run(capsys, *action, "--index", tmp_path / "typo.db")
        assert (code, "was not found" in told) == (2, True)
    assert run(capsys, "list")[0] == 0
    code, _, told = run(capsys, "search", "x")
    assert (code, "no documents yet" in told) == (1, True)
    assert list(tmp_path.iterdir()) == []
    for wrong in (["search", "x", "-n", "0"], ["list", "-n", "3"]):
        with pytest.raises(SystemExit):
            main(["docs", *wrong])


def test_the_command_lists_shows_and_removes_without_embeddings(tmp_path, folder, capsys):
    index = tmp_path / "index.db"
    pipeline = RAGPipeline(index, embeddings=Letters())
    (folder / "rules.md").write_text("# Hotels\n\nAt most 12,000 yen.\n")
    (folder / "empty.txt").write_text("")
    pipeline.add(folder)
    pipeline.close()
    assert "rules.md" in run(capsys, "list", "--index", index)[1]
    code, shown, _ = run(capsys, "show", "[rules.md#1]", "--index", index)
    assert code == 0
    assert shown == f"[rules.md#1]\n    {folder / 'rules.md'}: Hotels, line 3\n    At most 12,000 yen.\n"
    assert run(capsys, "show", "rules.md#2", "--index", index)[0] == 2
    assert run(capsys, "remove", folder / "empty.txt", "--index", index)[0] == 0, "known, though without passages"
    code, _, told = run(capsys, "remove", folder / "other.txt", "--index", index)
    assert (code, "no document" in told) == (2, True)
    assert run(capsys, "remove", folder, "--index", index)[0] == 0


def test_the_command_removes_by_the_names_that_it_shows(tmp_path, folder, capsys):
    index = tmp_path / "index.db"
    (folder / "old").mkdir()
    for name in ("rules.md", "old/rules.md", "prices.md", "notes.md"):
        (folder / name).write_text(f"# {name}\n\nAt most 12,000 yen.\n")
    pipeline = RAGPipeline(index, embeddings=Letters())
    pipeline.add(folder)
    pipeline.close()

    def left():
        return sorted([Path(line).name for line in run(capsys, "list", "--index", index)[1].splitlines()])

    code, _, told = run(capsys, "remove", "prices.md", "rules.md", "--index", index)
    assert (code, "several documents match" in told) == (2, True)
    assert len(left()) == 4, "nothing is removed where one of the names is not clear"
    for passage in ("[notes.md#1]", "notes.md#1", "notes.md ＃1"):
        code, _, told = run(capsys, "remove", passage, "--index", index)
        assert (code, "only whole files can be removed. Use: notes.md" in told) == (2, True)
    assert run(capsys, "remove", "prices.md", "notes.md", "old/rules.md", "--index", index)[0] == 0
    assert left() == ["rules.md"]


def test_a_folder_with_nothing_to_read_says_what_was_passed_over(tmp_path, folder, capsys):
    for name in ("a.py", "b.py", "old.doc"):
        (folder / name).write_text("x")
    code, _, told = run(capsys, "add", folder, "--index", tmp_path / "index.db")
    assert code == 1
    assert "not supported: 2 .py, 1 .doc" in told
    assert "no files that can be read" in told


def test_the_bar_keeps_its_place(tmp_path, folder, capsys, monkeypatch):
    from kaname.cli import docs
    from kaname.cli.terminal.screen import Screen

    drawn: list[str] = []
    monkeypatch.setattr(Screen, "replace", lambda screen, text: drawn.append(text))
    monkeypatch.setattr(docs, "RAGPipeline", lambda index, **_: RAGPipeline(index, embeddings=Letters()))
    monkeypatch.setenv("COLUMNS", "80")
    for number in range(40):
        (folder / f"{'長い名前' * (number % 9)}{number}.txt").write_text(f"note {number}", encoding="utf-8")
    (folder / "zzz.txt").write_text("\n\n".join([f"paragraph {number} " * 30 for number in range(100)]))
    assert run(capsys, "add", folder, "--index", tmp_path / "index.db")[0] == 0
    shown = [line for line in drawn if line]
    assert len(shown) > 41
    assert {line.index("/41  ") for line in shown} == {28}
    assert all(screen_width(line) < 80 for line in shown)
    assert any("zzz.txt (" in line for line in shown)


def test_a_search_without_hits_says_so(tmp_path, capsys, monkeypatch):
    from kaname.cli import docs

    monkeypatch.setattr(docs, "RAGPipeline", lambda index, **_: RAGPipeline(index, embeddings=Letters()))
    code, _, told = run(capsys, "search", "x", "--index", tmp_path / "index.db")
    assert (code, "nothing was found" in told) == (1, True)


def test_embeddings_that_are_mistyped_make_no_file(tmp_path):
    with pytest.raises(ConfigError, match="local or openai/MODEL"):
        RAGPipeline(tmp_path / "index.db", embeddings="opeani/small")
    assert list(tmp_path.iterdir()) == []
