"""Search on the web through a search engine of the settings."""

import json

import pytest
from sites import Site, said, site

from memotree.tools.builtin.services import ToolOptions, builtin_tools
from memotree.tools.builtin.web_search import SearchUnavailableError, SearxngEngine, WebSearch

pytestmark = pytest.mark.requirement("TOOL-6")


def engine(there: Site) -> WebSearch:
    return WebSearch(SearxngEngine(f"http://127.0.0.1:{there.port}/search?lang=en"))


async def test_the_pages_that_were_found_are_told() -> None:
    found = {
        "results": [{"title": f"T{number}", "url": f"https://{number}", "content": "c" * 5000} for number in range(9)]
    }
    async with site(lambda *_: said("200 OK", json.dumps(found).encode())) as there:
        pages = (await engine(there).search_web("two words & more", 3))["pages"]
    assert [page["title"] for page in pages] == ["T0", "T1", "T2"]
    assert len(pages[0]["text"]) == 1000
    assert there.seen[0][0] == "GET /search?lang=en&q=two+words+%26+more&format=json HTTP/1.1"


async def test_an_engine_that_does_not_answer_or_answers_nonsense_is_told() -> None:
    nonsense = (
        b"",
        b"{}",
        b"[]",
        b'{"results": 5}',
        b'{"results": [5]}',
        b'{"results": [{}]}',
        b"[" * 100_000,
        b"\xff",
    )
    for answer, told in (
        *((said("200 OK", body), "no result of a search") for body in nonsense),
        (said("403 Forbidden"), "the status 403"),
        (said("200 OK", b"x" * (5 << 20)), "too much"),
        (b"", "does not answer"),
    ):
        async with site(lambda *_, answer=answer: answer) as there:
            with pytest.raises(SearchUnavailableError, match=told):
                await engine(there).search_web("x")
    with pytest.raises(SearchUnavailableError, match="does not answer"):
        await engine(there).search_web("x")


def test_there_is_no_search_without_an_engine() -> None:
    assert "search_web" not in [tool.name for tool in builtin_tools()]
    options = ToolOptions(search_url="http://127.0.0.1:8080/search")
    assert "search_web" in [tool.name for tool in builtin_tools(options)]
