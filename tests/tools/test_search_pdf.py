"""PDF files: numbers that a line break falls into, and the page that a passage and its citation name."""

import pytest
from pypdf import PdfWriter
from pypdf.generic import ArrayObject, DecodedStreamObject, DictionaryObject, NameObject, NumberObject, TextStringObject

from kaname import RAGPipeline
from kaname.tools.search.readers.by_ending import read_blocks


def pdf(path, *pages):
    """A PDF file with pages of lines. The codes of its letters are those of Unicode."""
    writer = PdfWriter()
    add = writer._add_object  # pypdf has no public way
    letters = sorted({char for page in pages for line in page for char in line})
    codes = "\n".join([f"<{ord(char):04X}> <{ord(char):04X}>" for char in letters])
    cmap = f"1 begincodespacerange\n<0000> <FFFF>\nendcodespacerange\n{len(letters)} beginbfchar\n{codes}\nendbfchar\n"
    inner = _dictionary(
        Type="/Font",
        Subtype="/CIDFontType2",
        BaseFont="/Any",
        DW=1000,
        CIDSystemInfo=DictionaryObject(
            {
                NameObject("/Registry"): TextStringObject("Adobe"),
                NameObject("/Ordering"): TextStringObject("Identity"),
                NameObject("/Supplement"): NumberObject(0),
            }
        ),
    )
    font = _dictionary(Type="/Font", Subtype="/Type0", BaseFont="/Any", Encoding="/Identity-H")
    font[NameObject("/DescendantFonts")] = ArrayObject([add(inner)])
    font[NameObject("/ToUnicode")] = add(_stream(cmap))
    fonts = _dictionary(Font=_dictionary(F=add(font)))
    for lines in pages:
        page = writer.add_blank_page(600, 800)
        shown = " T*\n".join([f"<{''.join([f'{ord(char):04X}' for char in line])}> Tj" for line in lines])
        page[NameObject("/Resources")] = fonts
        page[NameObject("/Contents")] = add(_stream(f"BT /F 10 Tf 14 TL 50 750 Td\n{shown}\nET"))
    writer.write(path)
    return path


def _dictionary(**entries):
    kinds = {str: NameObject, int: NumberObject}
    return DictionaryObject({NameObject(f"/{key}"): kinds.get(type(one), lambda it: it)(one) for key, one in entries.items()})


def _stream(text):
    stream = DecodedStreamObject()
    stream.set_data(text.encode())
    return stream


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["有給休暇は、入社した年に2", "0日とします。"], "有給休暇は、入社した年に20日とします。"),
        (["手数料は一件につき1,2", "00円です。"], "手数料は一件につき1,200円です。"),
        (["割引の率は、最大で 1", "5 % です。"], "割引の率は、最大で 15 % です。"),
        (["三年目の社員には休", "暇があります。"], "三年目の社員には休暇があります。"),
        (["表2", "10月の売上は次のとおりです。"], "表2\n10月の売上は次のとおりです。"),
        (["申請は次の順に行います。", "2. 上司が承認します。"], "申請は次の順に行います。\n2. 上司が承認します。"),
        (["The house was built in 2019", "20 people live in it."], "The house was built in 2019\n20 people live in it."),
    ],
)
def test_a_number_that_is_broken_over_lines_of_a_pdf_is_joined_and_two_numbers_are_not(tmp_path, lines, expected):
    assert [block.text for block in read_blocks(pdf(tmp_path / "a.pdf", lines))] == [expected]


def test_a_passage_of_a_pdf_has_the_text_of_its_own_page_and_its_citation_names_that_page(tmp_path):
    path = pdf(
        tmp_path / "rules.pdf",
        ["Employees get twenty days of paid leave in their first year."],
        ["The canteen closes at half past two on Fridays."],
        ["Bicycles are kept in the cellar behind the lift."],
    )
    pipeline = RAGPipeline(tmp_path / "docs.db")
    pipeline.add(path)
    for question, page, word in (
        ("How much paid leave is there?", 1, "leave"),
        ("When does the canteen close?", 2, "canteen"),
        ("Where are bicycles kept?", 3, "Bicycles"),
    ):
        best = pipeline.search(question)[0]
        assert (best.place, word in best.text) == (f"page {page}", True)
        assert best.text == pipeline.cited(best.cite).text == best.found
        assert best.citation.endswith(f"(page {page})")
    pipeline.close()
