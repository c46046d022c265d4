"""Which embedding model is used: by name, at a start, and what is said if the settings name another one."""

import pytest

from memotree.models.builtin import WordllamaEmbedder
from memotree.models.cache import AnswerCache
from memotree.models.embeddings import EmbeddingModels, UnknownEmbeddingError
from memotree.models.minilm import MinilmEmbedder

pytestmark = pytest.mark.requirement("STORE-7")

CACHE = AnswerCache(None)  # type: ignore[arg-type]  # nothing is asked for


@pytest.mark.parametrize(
    ("model", "dimensions", "name"),
    [
        ("wordllama-l2", 0, "wordllama-l2-256"),
        ("wordllama-l2", 64, "wordllama-l2-64"),
        ("wordllama-l2-128", 0, "wordllama-l2-128"),
        ("wordllama-l2-128", 128, "wordllama-l2-128"),
        ("all-minilm-l6-v2", 0, "all-minilm-l6-v2"),
        ("all-minilm-l6-v2", 384, "all-minilm-l6-v2"),
    ],
)
def test_a_model_is_found_by_its_name(model: str, dimensions: int, name: str) -> None:
    models = EmbeddingModels(CACHE, None, is_local=False)
    assert models.find(model, dimensions).model == name


@pytest.mark.parametrize(
    ("model", "dimensions"),
    [("wordllama-l2", 32), ("wordllama-l2-64", 256), ("wordllama-l2-32", 0), ("all-minilm-l6-v2", 256), ("", 0)],
)
def test_an_unknown_model_or_length_is_refused(model: str, dimensions: int) -> None:
    with pytest.raises(UnknownEmbeddingError):
        EmbeddingModels(CACHE, None, is_local=False).find(model, dimensions)


async def test_a_start_uses_the_model_of_the_index() -> None:
    models = EmbeddingModels(CACHE, None, is_local=False)
    assert (await models.at_start("", 0)) is models.builtin
    assert (await models.at_start("wordllama-l2-256", 256)) is models.builtin
    assert (await models.at_start("wordllama-l2-64", 64)).dimensions == 64
    assert (await models.at_start("gone", 1536)) is models.builtin


def test_settings_that_name_another_model_are_told_with_what_to_run() -> None:
    models = EmbeddingModels(CACHE, None, is_local=True)
    assert "`memotree reindex --embedding all-minilm-l6-v2`" in models.notice(WordllamaEmbedder(64))
    assert models.notice(MinilmEmbedder(CACHE)) == ""
    assert EmbeddingModels(CACHE, None, is_local=False).notice(WordllamaEmbedder(64)) == "", "they name none"
