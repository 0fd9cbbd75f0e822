"""Office files and web pages as people have them: made by the libraries that people make them with."""

from __future__ import annotations

import zipfile
from datetime import date, datetime
from pathlib import Path

import pytest

from kaname.tools.search.readers.base import Block, Unreadable
from kaname.tools.search.readers.by_ending import read_blocks
from tests.parts import Later

docx = Later("docx")
openpyxl = Later("openpyxl")
pptx = Later("pptx")
styles = Later("docx.enum.style")
oxml = Later("docx.oxml")
ns = Later("docx.oxml.ns")


def rewritten(path: Path, name: str, old: str, new: str, **more: str) -> None:
    """A part of the archive, changed, and others added: what the libraries cannot write."""
    with zipfile.ZipFile(path) as archive:
        parts = {one: archive.read(one) for one in archive.namelist()}
    assert old in parts[name].decode()
    parts[name] = parts[name].decode().replace(old, new).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for one, data in {**parts, **more}.items():
            archive.writestr(one, data)


def test_a_word_document_with_title_headings_lists_and_tables(tmp_path):
    document = docx.Document()
    document.add_heading("Handbook", 0)
    document.add_heading("Leave", 1)
    document.add_paragraph("Twenty days a year.")
    document.add_paragraph("Ask your manager", style="List Bullet")
    document.add_heading("Sick leave", 2)
    table = document.add_table(2, 2)
    for cell, text in zip(
        [cell for row in table.rows for cell in row.cells], ["kind", "days", "doctor's note", "3"], strict=True
    ):
        cell.text = text
    document.add_heading("旅費", 1)
    document.add_paragraph("日当は2,600円です。")
    document.save(tmp_path / "a.docx")
    assert [(block.text, block.heading) for block in read_blocks(tmp_path / "a.docx")] == [
        ("Twenty days a year.", "Handbook > Leave"),
        ("Ask your manager", "Handbook > Leave"),
        ("kind | days\ndoctor's note | 3", "Handbook > Leave > Sick leave"),
        ("日当は2,600円です。", "Handbook > 旅費"),
    ]


def test_a_style_of_ones_own_is_a_heading_by_its_outline_level(tmp_path):
    document = docx.Document()
    style = document.styles.add_style("Kapitel", styles.WD_STYLE_TYPE.PARAGRAPH)
    level = oxml.OxmlElement("w:outlineLvl")
    level.set("{http://schemas.openxmlformats.org/wordprocessingml/2006/main}val", "0")
    style.element.get_or_add_pPr().append(level)
    document.add_paragraph("Preise", style="Kapitel")
    document.add_paragraph("Alles kostet zehn.")
    document.save(tmp_path / "a.docx")
    assert read_blocks(tmp_path / "a.docx") == [Block("Alles kostet zehn.", "Preise", "paragraph 2")]


def test_the_pages_that_word_has_last_shown(tmp_path):
    document = docx.Document()
    document.add_paragraph("one")
    two = document.add_paragraph()
    two.add_run().element.append(oxml.OxmlElement("w:lastRenderedPageBreak"))
    two.add_run("two, at the top")
    three = document.add_paragraph("begins on two ")
    three.runs[0].element.append(oxml.OxmlElement("w:lastRenderedPageBreak"))
    document.add_paragraph("three")
    four = document.add_paragraph("begins on three")
    four.add_run().element.append(oxml.OxmlElement("w:lastRenderedPageBreak"))
    four.add_run(" and ends on four")
    document.add_paragraph("four")
    document.save(tmp_path / "a.docx")
    places = ["page 1", "page 2", "page 2", "page 3", "pages 3-4", "page 4"]
    assert [block.place for block in read_blocks(tmp_path / "a.docx")] == places


def test_readings_deleted_words_and_copies_of_text_boxes_are_no_text(tmp_path):
    document = docx.Document()
    paragraph = document.add_paragraph("始 ")
    for xml in (
        "<w:r {}><w:ruby><w:rt><w:r><w:t>とうきょう</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>東京</w:t></w:r></w:rubyBase></w:ruby></w:r>",
        "<w:del {}><w:r><w:delText>古い</w:delText></w:r></w:del>",
        "<w:ins {}><w:r><w:t>新しい</w:t></w:r></w:ins>",
        '<w:r {} xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><mc:AlternateContent>'
        "<mc:Choice><w:t>箱</w:t></mc:Choice><mc:Fallback><w:t>箱</w:t></mc:Fallback></mc:AlternateContent></w:r>",
    ):
        paragraph.add_run().element.addprevious(oxml.parse_xml(xml.format(ns.nsdecls("w"))))
    document.save(tmp_path / "a.docx")
    assert [block.text for block in read_blocks(tmp_path / "a.docx")] == ["始 東京新しい箱"]


def test_a_sheet_as_a_person_sees_it(tmp_path):
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Orders"
    sheet.append(["day", "at", "item", "share", "amount", "paid", "growth"])
    sheet.append([date(2026, 4, 1), datetime.fromisoformat("2026-04-01T13:05"), "cup", 0.125, 0.1 + 0.2, True, 1500])
    sheet["D2"].number_format = "0.0%"
    sheet["E2"].number_format = '[Red]"s"#,##0.00'
    sheet["G2"].number_format = "0.00E+00"
    sheet.append([])
    sheet.append([None, None, "box"])
    sheet["A4"] = date(2026, 12, 31)
    sheet["A4"].number_format = 'ggge"年"m"月"d"日"'
    book.create_sheet("空").append(["一つだけ"])
    book.save(tmp_path / "a.xlsx")
    assert read_blocks(tmp_path / "a.xlsx") == [
        Block("day | at | item | share | amount | paid | growth", "Orders", "sheet Orders, row 1"),
        Block(
            "day: 2026-04-01 | at: 2026-04-01 13:05 | item: cup | share: 12.5% | amount: 0.3 | paid: TRUE | growth: 1500",
            "Orders",
            "sheet Orders, row 2",
        ),
        Block("day: 2026-12-31 | item: box", "Orders", "sheet Orders, row 4"),
        Block("一つだけ", "空", "sheet 空, row 1"),
    ]


@pytest.mark.parametrize("shared", [True, False])
def test_the_readings_that_a_japanese_excel_keeps_are_no_text(tmp_path, shared):
    book = openpyxl.Workbook()
    book.active.append(["Tokyo", "x"])
    book.save(tmp_path / "a.xlsx")
    reading = '<t>東京</t><rPh sb="0" eb="2"><t>トウキョウ</t></rPh>'
    strings = f'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><si>{reading}</si></sst>'
    cell = '<c r="A1" t="s"><v>0</v></c>' if shared else f'<c r="A1" t="inlineStr"><is>{reading}</is></c>'
    written = '<c r="A1" t="inlineStr"><is><t>Tokyo</t></is></c>'
    rewritten(tmp_path / "a.xlsx", "xl/worksheets/sheet1.xml", written, cell, **{"xl/sharedStrings.xml": strings})
    assert read_blocks(tmp_path / "a.xlsx")[0].text == "東京 | x"


def test_slides_in_their_order_with_what_the_speaker_says(tmp_path):
    show = pptx.Presentation()
    for number in (1, 2, 3):
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = f"Title {number}"
        slide.placeholders[1].text = f"point {number}\nもう一つ"
    show.slides[0].notes_slide.notes_text_frame.text = "Say hello first."
    order = show.element.sldIdLst
    order.insert(0, order[2])
    show.save(tmp_path / "a.pptx")
    assert read_blocks(tmp_path / "a.pptx") == [
        Block("point 3\nもう一つ", "Title 3", "slide 1"),
        Block("point 1\nもう一つ", "Title 1", "slide 2"),
        Block("Say hello first.", "Title 1", "slide 2, notes"),
        Block("point 2\nもう一つ", "Title 2", "slide 3"),
    ]


@pytest.mark.parametrize(
    ("html", "texts"),
    [
        ("<nav>menu<p>Hello<h2>Part<p>World", [("menu", ""), ("Hello", ""), ("World", "Part")]),
        ("<nav>menu</nav><title>T<body><p>Hello", [("Hello", "T")]),
        ("<table><tr><td><p>cup</p><td><p>800</p></tr><tr><td>box<td>5</table>", [("cup | 800", ""), ("box | 5", "")]),
        ("<p>a<script>if (x < 1) alert('<p>no')</script>b", [("ab", "")]),
        ("<h1>One<h2>Two</h2>text", [("text", "One > Two")]),
    ],
)
def test_pages_that_are_not_quite_html(tmp_path, html, texts):
    (tmp_path / "a.html").write_text(html)
    assert [(block.text, block.heading) for block in read_blocks(tmp_path / "a.html")] == texts


def test_a_page_says_its_own_encoding(tmp_path):
    page = '<meta http-equiv="Content-Type" content="text/html; charset={}"><p>Ceci est un café, déjà vu'
    (tmp_path / "a.html").write_bytes(page.format("iso-8859-1").encode("iso-8859-1"))
    assert read_blocks(tmp_path / "a.html")[0].text == "Ceci est un café, déjà vu"
    (tmp_path / "a.html").write_bytes('<meta charset="utf-8"><p>日本語'.encode("cp932"))
    assert read_blocks(tmp_path / "a.html")[0].text == "日本語", "what it says is wrong"


def test_a_file_with_a_password_says_so(tmp_path):
    (tmp_path / "a.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    with pytest.raises(Unreadable, match="password"):
        read_blocks(tmp_path / "a.docx")


@pytest.mark.parametrize(
    ("html", "texts"),
    [
        ("<h1>Rules</h1><p>a<nav><h2>Menu</h2><p>link</nav><aside><h1>Ad</h1></aside><p>b", [("a", "Rules"), ("b", "Rules")]),
        (
            "<table><tr><th></th><th>2025</th></tr><tr><td>cups</td><td></td><td>3</td></tr></table>",
            [(" | 2025", ""), ("cups |  | 3", "")],
        ),
        ("<table><tr><td>x<table><tr><td>inner</table></table><p>after", [("x", ""), ("inner", ""), ("after", "")]),
        (
            "<p>so:<pre>\nif x:\n    go()<br>end\n</pre>and <b>on</b>",
            [("so:", ""), ("if x:\n    go()\nend", ""), ("and on", "")],
        ),
        ("<table><tr><td> </td><td></td></tr></table><p>after", [("after", "")]),
    ],
)
def test_headings_and_columns_stay_in_place(tmp_path, html, texts):
    (tmp_path / "a.html").write_text(html)
    assert [(block.text, block.heading) for block in read_blocks(tmp_path / "a.html")] == texts


def test_a_table_in_a_table_and_moved_words_are_read_once_and_headers_never(tmp_path):
    document = docx.Document()
    document.sections[0].header.paragraphs[0].text = "Confidential"
    document.sections[0].footer.paragraphs[0].text = "Page 1"
    cell = document.add_table(1, 2).cell(0, 0)
    cell.text = "outer"
    cell.add_table(1, 1).cell(0, 0).text = "inner"
    paragraph = document.add_paragraph()
    for tag in ("moveFrom", "moveTo"):
        paragraph.add_run().element.addprevious(
            oxml.parse_xml(f'<w:{tag} {ns.nsdecls("w")} w:id="1"><w:r><w:t>moved</w:t></w:r></w:{tag}>')
        )
    document.save(tmp_path / "a.docx")
    assert [" ".join(block.text.split()) for block in read_blocks(tmp_path / "a.docx")] == ["outer inner |", "moved"]


@pytest.mark.parametrize("ending", ["docx", "xlsx", "pptx"])
def test_the_strict_form_of_office_files_is_read_too(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    if ending == "docx":
        document = docx.Document()
        document.add_heading("Leave", 1)
        document.add_paragraph("Twenty days.")
        document.save(path)
    elif ending == "xlsx":
        book = openpyxl.Workbook()
        book.active.append(["item", "price"])
        book.active.append(["cup", 800])
        book.save(path)
    else:
        show = pptx.Presentation()
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = "Plan", "Sell cups"
        show.save(path)
    usual = read_blocks(path)
    with zipfile.ZipFile(path) as archive:
        parts = {one: archive.read(one) for one in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            for kind in (b"wordprocessingml", b"drawingml", b"presentationml", b"spreadsheetml", b"officeDocument"):
                old, new = (
                    b"http://schemas.openxmlformats.org/" + kind + b"/2006/",
                    b"http://purl.oclc.org/ooxml/" + kind + b"/",
                )
                data = data.replace(old, new)
            archive.writestr(name, data)
    assert usual
    assert read_blocks(path) == usual


def test_what_pypdf_remarks_about_a_file_is_not_shown(tmp_path, caplog):
    (tmp_path / "a.pdf").write_bytes(b"hello, this is no PDF\n")
    with pytest.raises(Unreadable, match="PDF"):
        read_blocks(tmp_path / "a.pdf")
    assert not caplog.records
