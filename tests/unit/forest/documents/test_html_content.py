"""The text of a page is its main content, without what stands around it."""

import pytest

from memotree.forest.documents import read_document

WORDS = "The boiler heats the house. " * 12

pytestmark = pytest.mark.requirement("USE-9")


@pytest.mark.parametrize(
    "page",
    [
        f"<nav>Home</nav><main><h1>Boiler</h1><p>{WORDS}</main><footer>Imprint</footer>",
        f"<div>Home</div><div role=main><h1>Boiler</h1><p>{WORDS}</div>",
        f"<div>Home</div><article><h1>Boiler</h1><p>{WORDS}</article><p>Imprint",
        f"<header><a href=/>Home</a></header><h1>Boiler</h1><p>{WORDS}<aside>More</aside><footer>Imprint</footer>",
        f"<div class='big sidebar'><a href=/>Home</a> <a href=/a>News</a></div><h1>Boiler</h1><p>{WORDS}",
        (
            f"<main><h1>Boiler<a href='#b'>¶</a></h1><ul class=breadcrumbs><li><a>Home</a></ul><p>{WORDS}"
            "<button>Copy</button></main>"
        ),
    ],
)
def test_navigation_and_the_like_are_left_out(page: str) -> None:
    document = read_document(f"<html><head><title>T</title><script>x</script></head><body>{page}", name="a.html")
    assert document.text == f"Boiler\n\n{WORDS.strip()}\n"
    assert document.warnings == ("What stands around the main content of the page, such as navigation, was left out.",)
    assert [section.title for section in document.outline] == ["Boiler"]


@pytest.mark.parametrize(
    "page",
    [
        f"<h1>Boiler</h1><p>{WORDS}",
        f"<article><header><h1>Boiler</h1></header><p>{WORDS}</article>",
        f"<article><h1>Boiler</h1></article><article><p>{WORDS}</article>",
        f"<div class=sidebar><h1>Boiler</h1><p>{WORDS}</div>",
    ],
)
def test_content_stays_and_nothing_is_said(page: str) -> None:
    document = read_document(f"<html><body>{page}<script>let a = 'much longer than the text'</script>", name="a.html")
    assert document.text == f"Boiler\n\n{WORDS.strip()}\n"
    assert document.warnings == ()


def test_a_page_whose_marked_content_is_nearly_empty_is_read_as_a_whole() -> None:
    for page in (f"<main></main><div>{WORDS}</div>", f"<main>x</main><div>{WORDS}</div>", f"<nav>{WORDS}</nav>"):
        assert WORDS.strip() in read_document(page, name="a.html").text


@pytest.mark.parametrize("unit", ["<main>", "<div class=sidebar>", "<header>", "<a>#</a>" * 4, "<table><tr><td>"])
def test_a_page_nested_to_be_slow_is_still_read(unit: str) -> None:
    assert "words" in read_document(unit * 5_000 + "words", name="a.html").text
