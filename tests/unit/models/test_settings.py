"""The settings of models are checked together, and faults are named before the start."""

from pathlib import Path

import pytest

from memotree.settings import InvalidSettingsError, load_settings

URL = "http://127.0.0.1:1/v1"

pytestmark = pytest.mark.requirement("FOREST-12")


def faults(folder: Path, **given: object) -> dict[str, str]:
    with pytest.raises(InvalidSettingsError) as caught:
        load_settings(data_folder=folder, **given)
    return {violation.field: violation.description for violation in caught.value.violations}


@pytest.mark.parametrize("kind", ["chat", "embedding", "rerank"])
def test_an_endpoint_needs_a_model_and_a_model_needs_an_endpoint(tmp_path: Path, kind: str) -> None:
    missing = faults(tmp_path, **{f"{kind}_url": URL})
    assert f"{kind}_url" in next(iter(missing.values()))
    alone = faults(tmp_path, **{f"{kind}_model": "m", f"{kind}_api_key": "k"})
    assert alone.keys() == {f"{kind}_model", f"{kind}_api_key"}
    assert all(fault.startswith(f"needs {kind}_url") for fault in alone.values())
    assert getattr(load_settings(data_folder=tmp_path, **{f"{kind}_url": URL, f"{kind}_model": "m"}), f"{kind}_url")


def test_the_local_embedding_model_needs_no_endpoint_and_takes_no_options_of_one(tmp_path: Path) -> None:
    local = {"embedding_model": "all-minilm-l6-v2"}
    assert load_settings(data_folder=tmp_path, **local).embedding_url is None
    for given in ({}, local):
        assert faults(tmp_path, **given, embedding_dimensions=8) == {"embedding_dimensions": "needs embedding_url"}
    assert "all-minilm-l6-v2" in faults(tmp_path, embedding_model="all-minilm")["embedding_model"]


def test_a_url_of_a_model_is_checked_and_carries_no_secret(tmp_path: Path) -> None:
    for url in ("models.example/v1", "ftp://models.example", "https://me:secret@models.example/v1"):
        assert "chat_url" in faults(tmp_path, chat_url=url, chat_model="m")
    assert load_settings(data_folder=tmp_path, chat_url=f"{URL}/", chat_model="m").chat_url == URL


def test_keys_are_never_shown(tmp_path: Path) -> None:
    settings = load_settings(data_folder=tmp_path, chat_url=URL, chat_model="m", chat_api_key="a-secret")
    assert "a-secret" not in repr(settings)
    assert "a-secret" not in str(faults(tmp_path, chat_api_key="a-secret"))
