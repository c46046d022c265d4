"""Which embedding model is used: by name, at a start, and what is said if the settings name another one."""

import pytest

from memotree.models.builtin import WordllamaEmbedder
from memotree.models.cache import AnswerCache
from memotree.models.embeddings import LOCAL, EmbeddingModels, UnknownEmbeddingError
from memotree.models.local_model import LocalEmbedder

pytestmark = pytest.mark.requirement("STORE-7")

CACHE = AnswerCache(None)  # type: ignore[arg-type]  # nothing is asked for


def test_a_model_is_found_by_its_name_and_length_and_another_one_is_refused() -> None:
    models = EmbeddingModels(CACHE, None)
    for sizes, name in (((0, 256), "wordllama-l2-256"), ((64,), "wordllama-l2-64")):
        assert {models.find("wordllama-l2", size).model for size in sizes} == {name}
    for name, size in (("wordllama-l2-128", 128), ("all-minilm-l6-v2", 384), ("use-multilingual-3", 512)):
        assert models.find(name, 0).model == models.find(name, size).model == name
    unknown = [("wordllama-l2", 32), ("wordllama-l2-64", 256), ("wordllama-l2-32", 0), ("all-minilm-l6-v2", 256)]
    for name, size in [*unknown, ("", 0)]:
        with pytest.raises(UnknownEmbeddingError):
            models.find(name, size)


async def test_a_start_uses_the_model_of_the_index() -> None:
    models = EmbeddingModels(CACHE, None)
    assert (await models.at_start("", 0)) is models.builtin
    assert (await models.at_start("wordllama-l2-256", 256)) is models.builtin
    assert (await models.at_start("wordllama-l2-64", 64)).dimensions == 64
    assert (await models.at_start("gone", 1536)) is models.builtin


def test_settings_that_name_another_model_are_told_with_what_to_run() -> None:
    models = EmbeddingModels(CACHE, None, "all-minilm-l6-v2")
    assert "`memotree reindex --embedding all-minilm-l6-v2`" in models.notice(WordllamaEmbedder(64))
    assert models.notice(LocalEmbedder(LOCAL["all-minilm-l6-v2"], CACHE)) == ""
    assert "all-minilm-l6-v2" in models.notice(LocalEmbedder(LOCAL["use-multilingual-3"], CACHE))
    assert EmbeddingModels(CACHE, None).notice(WordllamaEmbedder(64)) == "", "they name none"
