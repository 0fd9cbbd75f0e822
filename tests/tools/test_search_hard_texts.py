"""Search, where a second tester stumbled: long questions, headings alone, drives below a folder, other alphabets."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kaname import ConfigError, RAGPipeline, SearchTool
from kaname.cli.main import main
from kaname.cli.terminal.screen import Screen
from kaname.cli.terminal.screen import width as screen_width
from kaname.core.errors import ModelError
from kaname.core.people.columns import wrap_line
from kaname.tools.search import embed as embedding
from kaname.tools.search import index_file as opening
from kaname.tools.search.chunk import chunk_blocks
from kaname.tools.search.index import Index
from kaname.tools.search.readers.base import Block, Unreadable
from kaname.tools.search.readers.by_ending import read_blocks
from kaname.tools.search.readers.encoding import decode
from kaname.tools.search.tokenize import query_terms, terms
from tests.tools.test_search import Letters


def blocks(path: Path, content: str | bytes) -> list[tuple[str, str, str]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [(block.text, block.heading, block.place) for block in read_blocks(path)]


# what is found


@pytest.mark.parametrize(
    "question",
    [
        "Hello, yesterday evening my grandmother bought your wonderful coffee maker, and suddenly, without warning, the display "
        "showed E-2044 while neighbours visited for dinner; can somebody explain?",
        "お世話になっております。営業部の田中です。昨日の午後から会議室の複合機で E-2044 が頻繁に表示されて困っております。",
    ],
)
def test_words_that_stand_nowhere_do_not_crowd_out_those_that_do(pipeline, folder, question):
    (folder / "codes.txt").write_text("\n\n".join([f"E-{2000 + number}: clean unit {number}. " * 8 for number in range(100)]))
    pipeline.add(folder)
    found = Index(pipeline.path).by_words(question, 5)
    best = max(found, key=lambda number: found[number])
    assert ["E-2044" in one.text for one in Index(pipeline.path).around(best) if one.id == best] == [True]
    assert found[best] > 0.5
    assert "E-2044" in pipeline.search(question, 1)[0].text


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Die Größe des Büros", "GROSSE BURO"),
        ("a naïve façade", "naive facade"),
        ("Отпуск ещё и май", "отпуск еще май"),
        ("연차 휴가는 15일", "휴가"),
        ("Η άδεια είναι", "ΑΔΕΙΑ"),
        ("Zażółć łódź", "zazolc lodz"),
        ("مُدَرِّس", "مدرس"),
        ("हिन्दी भाषा", "भाषा"),
        ("วันหยุดพักร้อน", "วันหยุด"),
    ],
)
def test_words_of_every_alphabet_are_found_without_their_accents(pipeline, text, question):
    pipeline.add_text("note", text)
    assert {term for term in query_terms(question) if len(term) > 1} <= set(terms(text))
    assert len(Index(pipeline.path).by_words(question, 5)) == 1, "as the index stores them"


def test_an_index_of_an_older_reader_works_and_is_read_again(tmp_path, folder, capsys, monkeypatch):
    from kaname.cli import docs

    monkeypatch.setattr(docs, "RAGPipeline", lambda index, **_: RAGPipeline(index, embeddings=Letters()))
    (folder / "a.txt").write_text("cats purr")
    assert main(["docs", "add", str(folder), "--index", str(tmp_path / "index.db")]) == 0
    db = sqlite3.connect(tmp_path / "index.db")
    db.execute("UPDATE files SET digest = substr(digest, 3), modified = modified + 0")
    db.commit()
    db.close()
    capsys.readouterr()
    assert main(["docs", "search", "cats", "--index", str(tmp_path / "index.db")]) == 0
    assert main(["docs", "add", str(folder), "--index", str(tmp_path / "index.db")]) == 0
    assert "1 read again with a newer reader" in capsys.readouterr().err
    assert main(["docs", "add", str(folder), "--index", str(tmp_path / "index.db")]) == 0
    assert "again" not in capsys.readouterr().err


# headings, pages, lines


def test_a_heading_with_nothing_under_it_is_a_text(folder):
    made = blocks(folder / "a.md", "# Changes\n\n## 2.0 dropped XMLEXPORT\n\n## 1.9\n\nfixes\n\nLast\n----\n")
    assert made == [
        ("2.0 dropped XMLEXPORT", "Changes", "line 3"),
        ("fixes", "Changes > 1.9", "line 7"),
        ("Last", "Changes", "line 9"),
    ]
    assert blocks(folder / "b.md", "# Call 0120-444-555\n") == [("Call 0120-444-555", "", "line 1")]
    assert blocks(folder / "a.html", "\n<h1>Only this</h1>") == [("Only this", "", "line 2")]
    assert blocks(folder / "b.html", "<h1>A</h1><h2>B</h2><h2>C</h2><p>text") == [
        ("B", "A", "line 1"),
        ("text", "A > C", "line 1"),
    ]


def test_a_heading_alone_in_word_is_a_text(folder):
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    heading = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>{}</w:t></w:r></w:p>'
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        body = heading.format("Exit is at gate 9") + heading.format("Second")
        archive.writestr("word/document.xml", f"<w:document {names}><w:body>{body}</w:body></w:document>")
    assert [one[:2] for one in blocks(folder / "a.docx", made.getvalue())] == [("Exit is at gate 9", ""), ("Second", "")]


def test_lines_of_html_are_those_of_the_first_letter_and_of_every_part(folder):
    long = "\n".join([f"word{number} and some more of it, so that it is long." for number in range(60)])
    (folder / "a.html").write_text(f"<p>\n\n   first</p>\n<p>\n{long}\n</p>\n<pre>\n\n  code\nmore</pre>")
    lines = (folder / "a.html").read_text().split("\n")
    made = list(chunk_blocks(read_blocks(folder / "a.html")))
    assert len(made) > 5
    for chunk in made:
        line = lines[int(chunk.place.removeprefix("line ")) - 1].strip()
        assert line.startswith(chunk.text.split()[0]), chunk
    assert [one[2] for one in blocks(folder / "b.html", b"<p>one</p>\r<p>two</p>\r<p>three</p>")] == [
        "line 1",
        "line 2",
        "line 3",
    ]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p><ruby>会<rp>(</rp><rt>かい</rt><rp>)</rp>議<rt>ぎ</rt></ruby>室", [("会議室", "")]),
        ("<p><ruby>会<rt>かい<rp>)</ruby>議室", [("会議室", "")]),
        ("<nav><nav>inner</nav>LEAK</nav><p>end", [("end", "")]),
        ("<title>Guide</title><p>text<h2>Part</h2>more", [("text", "Guide"), ("more", "Guide > Part")]),
        ("<title>Guide</title><h1>Real</h1>text", [("text", "Real")]),
        ("<title>Only a title</title>", [("Only a title", "")]),
    ],
)
def test_pages_are_read_as_they_are_meant(folder, html, expected):
    assert [one[:2] for one in blocks(folder / "a.html", html)] == expected


def test_a_page_in_xml_says_its_encoding(folder):
    page = '<?xml version="1.0" encoding="windows-1251"?><html><body><p>Отпуск</p></body></html>'
    assert blocks(folder / "a.xhtml", page.encode("cp1251"))[0][0] == "Отпуск"


def test_a_fence_in_indented_code_is_none_and_one_in_a_list_is(folder):
    assert [one[:2] for one in blocks(folder / "a.md", "    ```\n\n# Title\n\ntext")] == [("    ```", ""), ("text", "Title")]
    assert [one[:2] for one in blocks(folder / "a.md", "- item\n\n    ```\n# no\n    ```\n")][-1][0] == "    ```\n# no\n    ```"


def test_values_are_cut_between_words_and_cells(folder):
    codes = [f"CODE-{number:05}-X" for number in range(400)]
    for text in (" ".join(codes), ",".join(codes), " | ".join([f"name: {code}" for code in codes])):
        made = " ".join([chunk.text for chunk in chunk_blocks([Block(text, "", "line 1")])])
        kept = made.replace(",", " ").split()
        assert [code for code in codes if code not in kept] == []
    rows = list(chunk_blocks([Block(" | ".join([f"column: some value {number}" for number in range(99)]), "", "line 1")]))
    assert all(chunk.text.startswith("column: ") for chunk in rows), "a cell is not parted from its column"


# tables of values


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("item,2023,2024\ncup,5,6\n", "item: cup | 2023: 5 | 2024: 6"),
        ("Tokyo,2023\nOsaka,2022\n", "Osaka | 2022"),
        ("item,price,price\ncup,5,6\n", "item: cup | price: 5 | price (2): 6"),
        ("Ann,Ann,x\nBob,Bob,y\n", "Bob | Bob | y"),
        ("cup,2024-05-01\npot,2024-05-02\n", "pot | 2024-05-02"),
        ("sep=;\nitem;note\ncup;a,b,c\n", "item: cup | note: a,b,c"),
        ('item,size\ncup,5" wide\npot,"open\nbox,3\n', 'item: cup | size: 5" wide'),
    ],
)
def test_the_head_of_csv_is_told_from_its_rows(folder, content, expected):
    assert expected in [one[0] for one in blocks(folder / "a.csv", content)]


def test_an_unclosed_quote_does_not_swallow_the_rest(folder):
    rows = "\n".join([f"row{number},{number}" for number in range(50)])
    made = blocks(folder / "a.csv", f'name,size\nbad,"open\n{rows}\n')
    assert made[1] == ('name: bad | size: "open', "", "line 2")
    assert made[-1] == ("name: row49 | size: 49", "", "line 52")


# encodings


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1250", "Pracownik może wziąć urlop w każdej chwili, jeżeli przełożony wyrazi zgodę."),
        ("cp1251", "Отпуск составляет 28 дней. Обратитесь в отдел кадров."),
        ("euc_kr", "연차 휴가는 15일입니다. 인사팀에 문의하세요."),
        ("gbk", "员工每年有十五天年假。请联系人事部门。"),
        ("big5", "員工每年有十五天假期。請聯絡人事部門。"),
        ("cp1253", "Η άδεια είναι 25 ημέρες."),
    ],
)
def test_an_encoding_that_is_not_clear_is_told_and_not_stored(pipeline, folder, encoding, text):
    (folder / "a.txt").write_bytes(text.encode(encoding))
    assert "its encoding could not be detected" in next(iter(pipeline.add(folder).problems.values()))
    assert len(pipeline) == 0


def test_files_that_were_put_together_are_read_line_by_line():
    lines = ["日本語の行です。", "会議の記録", "日本語の行です。"]
    mixed = lines[0].encode() + b"\n" + lines[1].encode("cp932") + b"\n" + lines[2].encode()
    assert decode(mixed) == "\n".join(lines)
    assert decode("ok ü\n".encode() + b"Caf\xe9 opened") == "ok ü\nCafé opened"
    chance = "部署の一覧を見る\n端\n" + "会議の記録を保存します。\n" * 8
    assert decode(chance.encode("euc_jp")) == chance, "two bytes of a kanji are UTF-8 by chance"


@pytest.mark.parametrize("encoding", ["utf-32", "utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"])
def test_wide_text_without_a_mark_is_read(encoding):
    assert decode("お知らせはこちらです。".encode(encoding)) == "お知らせはこちらです。"


@pytest.mark.parametrize("text", ["ﾔﾏﾀﾞ ﾀﾛｳ,ﾄｳｷｮｳ\n" * 5, "山田太郎,東京都\n鈴木花子,大阪府\n" * 5, "～10時"])
def test_lists_without_kana_are_read_in_the_usual_encoding(text):
    assert decode(text.encode("cp932")) == text


# folders


def test_a_drive_below_the_folder_that_is_not_mounted_is_kept(pipeline, folder, tmp_path):
    (folder / "drive").mkdir()
    (folder / "a.md").write_text("alpha")
    (folder / "drive" / "b.md").write_text("beta")
    pipeline.add(folder)
    shutil.rmtree(folder / "drive")
    (folder / "drive").mkdir()
    (folder / "drive" / ".DS_Store").write_bytes(b"x")
    for paths in ([folder], [folder / "drive", folder], [folder, folder / "drive"]):
        done = pipeline.add(*paths)
        assert done.removed == []
        assert list(done.problems) == [str(folder / "drive")]
        assert "the folder is empty" in done.problems[str(folder / "drive")]
    assert len(pipeline.files()) == 2
    assert [Path(path).name for path in pipeline.add(folder, forget=True).removed] == ["b.md"]


def test_a_subfolder_that_was_deleted_is_gone(pipeline, folder):
    (folder / "sub").mkdir()
    (folder / "a.md").write_text("alpha")
    (folder / "sub" / "b.md").write_text("beta")
    pipeline.add(folder)
    shutil.rmtree(folder / "sub")
    kept = pipeline.add(folder / "sub", folder)
    assert kept.removed == []
    assert str(folder / "sub") in kept.problems, "who names it is told, and it is not forgotten at once"
    done = pipeline.add(folder)
    assert [Path(path).name for path in done.removed] == ["b.md"]
    assert done.problems == {}


def test_another_drive_at_the_same_place_forgets_nothing(pipeline, folder, monkeypatch):
    (folder / "drive").mkdir()
    (folder / "drive" / "b.md").write_text("beta")
    pipeline.add(folder)
    (folder / "drive" / "b.md").rename(folder / "drive" / "other.md")
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == str(folder / "drive"))
    done = pipeline.add(folder)
    assert done.removed == []
    assert "another drive" in done.problems[str(folder / "drive")]


def test_names_and_kinds_that_cannot_be_read_are_told(pipeline, folder):
    bad = os.fsdecode(os.fsencode(folder) + b"/\xff.md")
    try:
        Path(bad).write_text("text")
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    assert "not UTF-8" in next(iter(pipeline.add(bad).problems.values()))
    os.mkfifo(folder / "pipe.md")
    assert "neither a file nor a folder" in pipeline.add(folder / "pipe.md").problems[str(folder / "pipe.md")]


def test_an_index_that_cannot_be_made_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "_may_write", lambda path: False)
    with pytest.raises(ConfigError, match=r"new.db cannot be created: .* is read-only"):
        RAGPipeline(tmp_path / "new.db", embeddings=Letters())
    monkeypatch.undo()
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"new.db cannot be created"):
        RAGPipeline(tmp_path / "file" / "new.db", embeddings=Letters())
    os.mkfifo(tmp_path / "pipe.db")
    for path in (tmp_path / "pipe.db", tmp_path):
        with pytest.raises(ConfigError, match="is not a file"):
            RAGPipeline(path, embeddings=Letters())


# embeddings


class Refusing(Letters):
    def __init__(self, problem):
        self.problem = problem

    def embed(self, texts):
        made = super().embed(texts)
        if any("POISON" in text for text in texts):
            if isinstance(self.problem, ModelError):
                raise self.problem
            made[[place for place, text in enumerate(texts) if "POISON" in text]] = self.problem
        return made


@pytest.mark.parametrize(
    ("problem", "told"),
    [(ModelError("HTTP 400: too long", status=400), "too long"), (float("nan"), "NaN"), (0.0, "only zeros")],
)
def test_one_bad_text_does_not_lose_the_others(tmp_path, folder, problem, told):
    for number in range(40):
        (folder / f"{number:02}.txt").write_text("POISON" if number == 5 else f"note {number}")
    (folder / "long.txt").write_text("\n\n".join([f"paragraph {number} " * 30 for number in range(80)] + ["POISON"]))
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=Refusing(problem))
    done = pipeline.add(folder)
    assert len(done.added) == 39
    assert {Path(path).name for path in done.problems} == {"05.txt", "long.txt"}
    assert all(told in reason for reason in done.problems.values())
    (folder / "05.txt").write_text("good again")
    assert [Path(path).name for path in pipeline.add(folder).added] == ["05.txt"]
    pipeline.close()


def test_a_server_that_refuses_everything_stops_it(tmp_path, folder, monkeypatch):
    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps({"error": {"message": "no such model"}}).encode()
            self.send_response(400)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    for number in range(3):
        (folder / f"{number}.txt").write_text(f"note {number}")
    pipeline = RAGPipeline(tmp_path / "index.db", embeddings=embedding.ServedEmbeddings("m", base_url=address))
    with pytest.raises(ModelError, match="no such model"):
        pipeline.add(folder)
    assert pipeline.files() == []
    pipeline.close()
    server.shutdown()
    server.server_close()


# what is shown


@pytest.mark.parametrize("most", [100, 400])
async def test_what_was_found_is_shown_before_its_neighbours(pipeline, folder, most):
    parts = [f"Filler sentence {number} about nothing in particular, only to be long enough. " * 4 for number in range(6)]
    parts[3] = "The discount code ZX-81 is for members."
    (folder / "a.txt").write_text("\n\n".join(parts))
    pipeline.add(folder)
    tool = SearchTool(pipeline, max_characters=most)
    passages = (await tool.execute("ZX-81 discount code members")).output["passages"]
    assert "ZX-81" in passages[0]["text"]


def test_a_neighbour_of_two_passages_is_shown_once(pipeline, folder):
    (folder / "a.txt").write_text("\n\n".join([f"Passage n{number} about cats and dogs. " * 8 for number in range(9)]))
    pipeline.add(folder)
    hits = pipeline.search("cats and dogs", 9)
    assert all(sum(f"n{number} " in hit.text for hit in hits) <= 1 for number in range(9))


def test_citations_with_brackets_in_names_and_files_that_moved(pipeline, folder):
    (folder / "[draft] a.md").write_text("cats")
    (folder / "sub").mkdir()
    (folder / "sub" / "b.md").write_text("dogs")
    pipeline.add(folder)
    for key in ("[draft] a.md#1", "[[draft] a.md#1]", "[b.md#1", "b.md#1]", " [b.md#1] "):
        assert pipeline.cited(key).text in ("cats", "dogs")
    with pytest.raises(ConfigError, match=r"no document old/b.md.*: .*sub/b.md"):
        pipeline.cited("[old/b.md#1]")


def test_lines_are_wrapped_and_nothing_is_left_out():
    line = "The quick brown fox jumps over the lazy dog. " * 5 + "漢字" * 40 + "x" * 100
    rows = list(wrap_line(line, 40))
    assert all(screen_width(row) <= 40 for row in rows)
    assert "".join("".join(rows).split()) == "".join(line.split())
    assert rows[0] == "The quick brown fox jumps over the lazy"


def test_text_that_runs_backwards_is_not_written():
    assert Screen(io.StringIO(), io.StringIO()).safe("rtl\u202etxt.md\u2066") == "rtltxt.md"


def test_a_run_with_an_index_that_is_not_there_fails_at_once(tmp_path, capsys):
    assert main(["run", "-t", f"search:{tmp_path}/x.db", "hello"]) == 2
    assert "was not found" in capsys.readouterr().err


def test_search_without_documents_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KANAME_DOCS", str(tmp_path / "none.db"))
    (tmp_path / "s.json").write_text('["hi"]')
    assert main(["run", "-m", f"scripted/{tmp_path}/s.json", "-t", "search", "--journal", str(tmp_path / "j.db"), "hello"]) == 0
    assert "no documents yet" in capsys.readouterr().err


def test_an_unclear_encoding_is_no_text(folder):
    with pytest.raises(Unreadable, match="encoding"):
        blocks(folder / "a.md", "Отпуск составляет 28 дней".encode("cp1251"))
