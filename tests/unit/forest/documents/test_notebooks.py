"""Notebooks become Markdown: cells, code and the text of outputs."""

import json
from typing import Any

import pytest

from memotree.forest.documents import UnreadableDocumentError, notebook, read_document

pytestmark = pytest.mark.requirement("USE-9")


def written(*cells: dict[str, Any]) -> str:
    metadata = {"language_info": {"name": "python"}}
    return json.dumps({"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def code(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source.splitlines(keepends=True), "outputs": list(outputs)}


def prose(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source}


def test_a_notebook_is_divided_by_its_headings_and_has_its_outputs() -> None:
    text = written(
        prose("# Prices\n\nOf parts.\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        code(
            "# no heading\nprint('```')\n",
            {"output_type": "stream", "text": ["one\n", "\x1b[31mtwo\x1b[0m\n"]},
            {"output_type": "execute_result", "data": {"text/html": "<b>3</b>", "text/plain": ["3"]}},
            {"output_type": "display_data", "data": {"image/png": "aGVsbG8="}},
            {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["long"]},
        ),
        prose("## Sum"),
        {"cell_type": "raw", "source": "as it is"},
        code("  \n"),
    )
    document = read_document(text, name="a.ipynb")
    assert document.media_type == "application/x-ipynb+json"
    assert document.title == "Prices"
    assert document.text == (
        "# Prices\n\nOf parts.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "````python\n# no heading\nprint('```')\n````\n\n"
        "```\none\ntwo\n3\nKeyError: 'x'\n```\n\n"
        "## Sum\n\n```\nas it is\n```\n\n"
    )
    assert [(part.level, part.title) for part in document.outline] == [(1, "Prices"), (2, "Sum")]
    assert document.header_at(document.text.index("| 1 | 2 |")) == "| a | b |\n|---|---|"


def test_a_notebook_of_the_old_format_is_read() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Sum"]},
        {"cell_type": "code", "input": "1 + 1", "outputs": [{"output_type": "pyout", "text": "2"}]},
    ]
    text = json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3})
    assert read_document(text, name="a.ipynb").text == "## Sum\n\n```\n1 + 1\n```\n\n```\n2\n```\n\n"


def test_long_outputs_are_cut_and_it_says_so_and_an_open_fence_hides_no_heading_of_another_cell() -> None:
    document = read_document(written(prose("```\nopen"), prose("# Later")), name="a.ipynb")
    assert [part.title for part in document.outline] == ["Later"]
    text = written(code("x", {"output_type": "stream", "text": "a" * 30_000}))
    document = read_document(text, name="a.ipynb")
    assert len(document.text) < 21_000
    assert document.warnings == ("The outputs of 1 cells were cut to 20000 characters.",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "INVALID_NOTEBOOK"),
        ("[]", "INVALID_NOTEBOOK"),
        ('{"cells": {}}', "INVALID_NOTEBOOK"),
        ('{"cells": []}', "EMPTY_DOCUMENT"),
        ('{"cells": [1, null, {"cell_type": "code", "source": 3, "outputs": 4}]}', "EMPTY_DOCUMENT"),
        ('{"cells": [{"cell_type": "code", "outputs": [1, {"data": []}, {}]}]}', "EMPTY_DOCUMENT"),
        ('{"metadata": [], "worksheets": [1, {"cells": null}]}', "EMPTY_DOCUMENT"),
        ('{"cells": ' + "[" * 100_000, "DOCUMENT_TOO_DEEP"),
    ],
)
def test_what_is_no_notebook_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnreadableDocumentError) as caught:
        read_document(text, name="a.ipynb")
    assert caught.value.reason == reason


def test_a_notebook_that_is_too_large_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "LARGEST", 100)
    with pytest.raises(UnreadableDocumentError, match="mostly of outputs") as caught:
        read_document(written(prose("words " * 100)), name="a.ipynb")
    assert caught.value.reason == "UNPACKED_TOO_LARGE"
