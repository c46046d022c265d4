"""Tables are found with their headers, in Markdown, HTML and CSV."""

from collections.abc import Callable

import pytest
from steps import LINEAR, growth

from memotree.forest.chunking.splitting import split
from memotree.forest.documents import Document, read_document


def tables(document: Document) -> list[tuple[str, str]]:
    """The header of each table, and the rest of it."""
    return [
        (document.text[table.start : table.header_end], document.text[table.header_end : table.end])
        for table in document.tables
    ]


pytestmark = pytest.mark.requirement("USE-9")


def test_tables_of_markdown_are_found_but_not_those_in_code() -> None:
    head, rows = "| a | b |\r\n|---|:-:|\r\n", "| 1 | 2 |\r\n| 3 | 4 |\r\n"
    text = f"# T\r\n\r\n{head}{rows}\r\nwords\r\n\r\nc | d\r\n--|--\r\n1 | 2\r\n\r\n```\r\n{head}{rows}```\r\n"
    assert tables(read_document(text, name="a.md")) == [(head, rows), ("c | d\r\n--|--\r\n", "1 | 2\r\n")]
    assert read_document("a\n---\n\nb\n", name="a.md").tables == ()
    assert read_document(f"{head}{rows}", name="a.txt").tables == ()


def test_a_table_of_html_has_a_row_on_each_line() -> None:
    page = (
        "<p>before<table><caption>Prices</caption><thead><tr><th>Part<th>Price</thead>"
        "<tr><td><p>bolt</p><p>steel</p><td>3<br>4<tr><td><td><ul><li>x<li>y</ul></table>after"
    )
    document = read_document(page, name="a.html")
    assert document.text == "before\n\nPrices\nPart\tPrice\nbolt steel\t3 4\n\t- x - y\n\nafter\n"
    assert tables(document) == [("Part\tPrice\n", "bolt steel\t3 4\n\t- x - y")]


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        ("<tr><th>a<th>b<tr><td>1<td>2", "a\tb\n"),
        ("<tr><td>a<td>b<tr><td>1<td>2<tr><td>3<td>4", "a\tb\n"),
        ("<tr><td>a<td>b<tr><td>1<td>2", ""),
        ("<tr><td>7<td>b<tr><td>1<td>2<tr><td>3<td>4", ""),
        ("<tr><th>a<td>b<tr><th>1<td>2", ""),
    ],
)
def test_the_header_of_an_html_table_is_marked_or_looks_like_one(rows: str, header: str) -> None:
    ((found, _),) = tables(read_document(f"<table>{rows}</table>", name="a.html"))
    assert found == header


def test_a_table_that_only_places_things_is_no_table_of_data() -> None:
    layout = "<table><tr><td><h1>Title</h1><p>words<td>more<tr><td>a<td>b</table>"
    document = read_document(layout, name="a.html")
    assert document.tables == ()
    assert [section.title for section in document.outline] == ["Title"]
    nested = "<table><tr><td>x<td><table><tr><th>a<th>b<tr><td>1<td>2</table></table>"
    assert tables(read_document(nested, name="a.html")) == [("a\tb\n", "1\t2")]


@pytest.mark.parametrize(
    ("name", "text", "header"),
    [
        ("a.csv", "name,price\nbolt,3\n", "name,price\n"),
        ("a.csv", 'name;"the\nprice"\nbolt;3\n', 'name;"the\nprice"\n'),
        ("a.tsv", "name\tprice\r\nbolt\t3\r\n", "name\tprice\r\n"),
        ("a.csv", "bolt,3\nnut,4\n", ""),
    ],
)
def test_the_header_of_csv_is_found(name: str, text: str, header: str) -> None:
    document = read_document(text, name=name)
    assert document.text == text
    assert tables(document) == [(header, text[len(header) :])]


@pytest.mark.parametrize("text", ["words\n", "one, two\nthree\nfour\n", '"' * 200_000 + ",", """ a,"b\n""" * 5])
def test_csv_without_regular_rows_is_text(text: str) -> None:
    assert read_document(text, name="a.csv").text == text


def test_a_giant_table_is_read() -> None:
    rows = "<tr><td>a<td>1" * 10_000
    document = read_document(f"<table><tr><th>n<th>v{rows}</table>", name="a.html")
    assert document.text.count("\n") == 10_001
    assert tables(document)[0][0] == "n\tv\n"


@pytest.mark.parametrize(
    "line", [" " * 200_000 + "x", "-" * 200_000 + "x", "---" + " " * 200_000 + "x", "-|" * 100_000 + "x"]
)
def test_a_line_that_looks_like_a_table_for_long_is_passed_over(line: str) -> None:
    assert read_document(f"words\n{line}x\n", name="a.md").tables == ()


@pytest.mark.parametrize(
    "source",
    [
        lambda count: "# T\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n" * count,
        lambda count: "| a | b |\n|---|---|\n| 1 | 2 |\n\nwords words words words\n\n" * count,
        lambda count: "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * count,
    ],
)
def test_cutting_tables_takes_steps_in_proportion_to_the_text(source: Callable[[int], str]) -> None:
    assert growth(lambda count: split(read_document(source(count), name="a.md"), 60), 60) < LINEAR


@pytest.mark.requirement("STORE-8")
def test_a_table_of_blank_lines_is_cut_in_steps_in_proportion_to_the_text() -> None:
    """The steps are inside the comparison of characters; with the square of the lines, this would not end."""
    text = "a\tb\n1\t2\n" + "\n" * 600_000 + "3\t4\n"
    pieces = split(read_document(text, name="a.tsv"), 200)
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
