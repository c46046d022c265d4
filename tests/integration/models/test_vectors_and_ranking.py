"""Vectors in batches, checked and requested once; ranking with the built-in model as fallback."""

import numpy as np
import pytest
from endpoints import EMBEDDING_MODEL, RERANK_MODEL, ModelEndpoint
from integration.models.samples import TEXT, TIRELESS, MakeModels, of
from model_answers import Fault, hashed

from memotree.models.embedding import BATCH_TEXTS, EmbeddingDimensionError
from memotree.models.meter import Meter
from memotree.models.model_errors import ModelUnavailableError

pytestmark = pytest.mark.requirement("FOREST-12")


# --- Embeddings ------------------------------------------------------------------------------------------------------


async def test_vectors_come_in_order_and_of_length_one(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    assert (models.embedder.model, models.embedder.dimensions) == (EMBEDDING_MODEL, endpoint.dimensions)
    texts = ["the second", "the first", "", "the second", " "]
    vectors = await models.embed(texts, meter)
    axis = np.eye(1, endpoint.dimensions, dtype=np.float32)[0]
    expected = [hashed(text, endpoint.dimensions) if text.strip() else axis for text in texts]
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    np.testing.assert_array_equal(await models.embedder.embed(texts), vectors)
    assert (await models.embed([], meter)).shape == (0, endpoint.dimensions)


async def test_texts_are_sent_in_batches_and_each_only_once_also_after_an_outage(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect(model_concurrency=1)
    texts = [f"Text number {number}" for number in range(2 * BATCH_TEXTS + 10)]
    before = len(endpoint.embedding_calls)
    await models.embed([*texts, *texts], meter)
    assert sorted(len(call["input"]) for call in endpoint.embedding_calls[before:]) == [10, BATCH_TEXTS, BATCH_TEXTS]
    more = [f"More of number {number}" for number in range(BATCH_TEXTS)]
    endpoint.fail_always(Fault.BROKEN)
    with pytest.raises(ModelUnavailableError):
        await models.embed([*texts, *more], meter)
    endpoint.recover()
    first = len(endpoint.texts_embedded)
    await (await connect()).embed([*texts, *more], meter)
    assert sorted(endpoint.texts_embedded[first:]) == sorted(more)
    assert of("embedding", meter).calls == 4


async def test_a_broken_batch_is_requested_again(connect: MakeModels, endpoint: ModelEndpoint, meter: Meter) -> None:
    models = await connect(TIRELESS)
    for fault in (
        *(Fault.BUSY, Fault.BROKEN, Fault.CLOSED, Fault.CUT_BODY, Fault.HALF_JSON, Fault.NO_JSON),
        *(Fault.TOO_FEW, Fault.NAN),
    ):
        texts = [f"one {fault.name}", f"two {fault.name}"]
        endpoint.fail_next(fault)
        vectors = await models.embed(texts, meter)
        expected = [hashed(text, endpoint.dimensions) for text in texts]
        np.testing.assert_allclose(vectors, expected, atol=1e-6, err_msg=fault.name)
        endpoint.fail_always(fault)
        with pytest.raises(ModelUnavailableError, match="gave no usable answer in 4 attempts"):
            await models.embed([f"three {fault.name}"], meter)
        endpoint.recover()


async def test_vectors_of_another_length_are_refused_and_not_kept(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    endpoint.fail_next(Fault.WRONG_DIMENSION)
    with pytest.raises(EmbeddingDimensionError, match="MEMOTREE_EMBEDDING_DIMENSIONS"):
        await models.embed(["one"], meter)
    assert (await models.embed(["one"], meter)).shape == (1, endpoint.dimensions)


@pytest.mark.parametrize("takes", [True, False])
async def test_a_length_of_vectors_is_requested_if_the_model_supports_it(
    connect: MakeModels,
    endpoint: ModelEndpoint,
    meter: Meter,
    takes: bool,
) -> None:
    endpoint.takes_dimensions = takes
    models = await connect(embedding_dimensions=32 if takes else endpoint.dimensions)
    assert not endpoint.embedding_calls, "what is set need not be found out"
    assert (await models.embed(["one"], meter)).shape == (1, models.embedder.dimensions)
    assert len(endpoint.embedding_calls) == (1 if takes else 2)


@pytest.mark.parametrize("length", [None, 32])
async def test_a_text_that_is_too_long_is_cut_and_the_others_are_not_affected(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter, length: int | None
) -> None:
    endpoint.longest = 2_000
    texts = ["short", "long words " * 1_000, "also short"]
    models = await connect(**({"embedding_dimensions": length} if length else {}))
    vectors = await models.embed(texts, meter)
    np.testing.assert_allclose(vectors[0], hashed("short", length or endpoint.dimensions), atol=1e-6)
    assert float(vectors[1] @ hashed(texts[1], length or endpoint.dimensions)) > 0.99
    assert (await models.embed(["another"], meter)).shape == (1, length or endpoint.dimensions)


async def test_a_start_needs_no_endpoint_once_the_length_is_known(connect: MakeModels, endpoint: ModelEndpoint) -> None:
    endpoint.fail_always(Fault.BROKEN)
    with pytest.raises(ModelUnavailableError):
        await connect()
    endpoint.recover()
    await connect()
    endpoint.fail_always(Fault.BROKEN)
    assert (await connect()).embedder.dimensions == endpoint.dimensions


# --- Ranking ---------------------------------------------------------------------------------------------------------


async def test_texts_are_ranked_by_the_endpoint_and_pairs_are_kept(
    connect: MakeModels, endpoint: ModelEndpoint, meter: Meter
) -> None:
    models = await connect()
    texts = ["pears", "apple trees", "", "apple"]
    assert await models.rerank("apple trees", texts, meter) == [0.0, 1.0, 0.0, 0.5]
    assert await models.rerank("apple trees", texts[::-1], meter) == [0.5, 0.0, 1.0, 0.0]
    assert len(endpoint.rerank_calls) == 1
    assert endpoint.rerank_calls[0]["model"] == RERANK_MODEL
    assert await models.rerank("apple trees", [], meter) == []
    full = await connect(rerank_url=f"{endpoint.url}/rerank")
    assert await full.rerank("apple", ["apple"], meter) == [1.0]


async def test_the_built_in_ranking_replaces_a_failed_one_with_a_warning(
    connect: MakeModels, endpoint: ModelEndpoint
) -> None:
    models, texts = await connect(TIRELESS), [TEXT, "The stock market fell on Tuesday."]
    for fault in (Fault.BROKEN, Fault.CLOSED, Fault.HALF_JSON, Fault.TOO_FEW, Fault.NAN, Fault.UNAUTHORIZED):
        meter = Meter()
        endpoint.fail_always(fault, on="rerank")
        near, far = await models.rerank("Who planted the apple trees?", texts, meter)
        assert near > 0.5 > far, fault
        assert len(meter.warnings) == 1, fault
