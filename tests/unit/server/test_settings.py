"""Settings come from flags, environment and file, and every fault is named before the start."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from memotree import environment
from memotree.settings import InvalidSettingsError, Settings, load_settings


def faults(**given: object) -> dict[str, str]:
    with pytest.raises(InvalidSettingsError) as caught:
        load_settings(**given)
    assert len(caught.value.message.splitlines()) == len(caught.value.violations) + 1
    assert "pydantic" not in caught.value.message
    return {violation.field: violation.description for violation in caught.value.violations}


def test_without_anything_set_the_server_is_local_and_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    settings = load_settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 7319)
    assert settings.postgres_url is None
    assert settings.qdrant_url is None
    assert settings.data_folder == Path.home() / ".local" / "share" / "memotree"
    assert (settings.max_content_bytes, settings.max_message_bytes) == (2**20, 2**24)
    assert settings.session_ttl == timedelta(days=7)


def test_the_data_folder_is_absolute_and_follows_xdg_when_that_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load_settings().data_folder == tmp_path / "memotree"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert load_settings().data_folder == Path.home() / ".local" / "share" / "memotree"
    monkeypatch.setenv("MEMOTREE_DATA", "data")
    assert load_settings().data_folder == tmp_path / "data"


def test_flags_win_over_environment_over_file_over_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "memotree.toml").write_text('port = 1\nlog_level = "debug"\nsession_ttl = "2h"\n')
    monkeypatch.setenv("MEMOTREE_PORT", "2")
    assert load_settings(port=3, host=None).port == 3
    assert load_settings().port == 2
    assert load_settings().log_level == "debug"
    assert load_settings().session_ttl == timedelta(hours=2)
    monkeypatch.setenv("MEMOTREE_PORT", "")
    assert load_settings().port == 1


def test_the_file_may_be_elsewhere_but_must_exist_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.toml"
    monkeypatch.setenv("MEMOTREE_CONFIG", str(path))
    assert "no file" in faults()["MEMOTREE_CONFIG"]
    path.write_text("max_content_bytes = '64KiB'\n")
    assert load_settings().max_content_bytes == 65_536
    path.write_text("port =\n")
    assert "TOML" in faults()[str(path)]


def test_durations_are_written_with_a_unit() -> None:
    texts = {"7d": 604_800, "12h": 43_200, "30 m": 1800, "45s": 45, "500ms": 0.5, "90": 90}
    assert {text: load_settings(session_ttl=text).session_ttl.total_seconds() for text in texts} == texts


def test_every_fault_is_named_at_once_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "memotree.toml").write_text('max_content_bytes = "lots"\nquadrant_url = "x"\n')
    monkeypatch.setenv("MEMOTREE_PORT", "70000")
    monkeypatch.setenv("MEMOTREE_SESSION_TTL", "soon")
    found = faults(committer_name="a <b>")
    assert found.keys() == {
        "max_content_bytes in memotree.toml, line 1",
        "quadrant_url in memotree.toml, line 2",
        "MEMOTREE_PORT",
        "MEMOTREE_SESSION_TTL",
        "committer_name",
    }
    assert "65535" in found["MEMOTREE_PORT"]
    assert "7d" in found["MEMOTREE_SESSION_TTL"]


def test_an_unknown_name_is_refused_and_a_similar_one_proposed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMOTREE_POSTGRES_ULR", "postgresql://u:secret@h/d")
    assert faults() == {"MEMOTREE_POSTGRES_ULR": "there is no such setting; did you mean MEMOTREE_POSTGRES_URL?"}
    monkeypatch.delenv("MEMOTREE_POSTGRES_ULR")
    (tmp_path / "memotree.toml").write_text('quadrant_url = "x"\n')
    assert faults() == {"quadrant_url in memotree.toml, line 1": "there is no such setting; did you mean qdrant_url?"}


def test_the_names_that_the_command_line_knows_are_those_of_the_settings() -> None:
    assert tuple(Settings.model_fields) == environment.SETTINGS, "write the new setting in memotree/environment.py"


def test_variables_of_the_client_and_of_tests_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADDRESS", "AGENT", "PAGER", "FAULT_POINT", "TEST_POSTGRES"):
        monkeypatch.setenv(f"MEMOTREE_{name}", "x")
    assert load_settings()


def test_a_wrong_database_url_is_refused_without_repeating_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = dict.fromkeys(("mysql://u:secret@h/d", "secret", "http://secret"), "postgresql://")
    for password in ("s@cret", "se/cret==", "sec?ret", "se#cret", "a/b@c?d#ecret", "s@cret/@"):
        told[f"postgresql://user:{password}@127.0.0.1:5432/database"] = "write @ as %40"
    for url, advice in told.items():
        monkeypatch.setenv("MEMOTREE_POSTGRES_URL", url)
        found = faults()
        assert advice in found["MEMOTREE_POSTGRES_URL"], url
        assert not re.search("cret|sec", str(found)), url


def test_urls_of_all_forms_are_taken() -> None:
    for url in (
        "postgresql://user:s%40cret@127.0.0.1:5432/database",
        "postgresql:///database?host=/run/postgresql&user=me",
        "postgresql://me@h/d?options=-c%20search_path%3Da&application_name=me@home",
        "postgresql://[::1]:5432/d?user=me",
    ):
        taken = load_settings(postgres_url=url).postgres_url
        assert taken is not None
        assert taken.get_secret_value() == url


def test_settings_that_contradict_each_other_are_named() -> None:
    found = faults(postgres_pool_min=9, postgres_pool_max=3, max_content_bytes=8192, max_message_bytes=8192)
    assert found.keys() == {"postgres_pool_min", "max_content_bytes"}
    assert faults(qdrant_api_key="k").keys() == {"qdrant_api_key"}


def test_settings_do_not_change_once_made(settings: Settings) -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("https://git.example/memory.git", "{id} or {name}"),
        ("ext::sh -c {id}", "{id} or {name}"),
        ("ext::{id}", "begins with"),
        ("https://ada:secret@git.example/{id}.git", "leave the name and password out"),
    ],
)
def test_a_remote_is_a_url_for_each_workspace_without_a_password(url: str, fault: str) -> None:
    with pytest.raises(InvalidSettingsError, match=fault) as caught:
        load_settings(git_remote_url=url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["file:///mnt/copies/{name}.git", "ssh://git@git.example/{id}", "https://x.example/{id}"]
)
def test_a_remote_may_be_a_folder_a_server_or_an_ssh_account(url: str) -> None:
    assert load_settings(git_remote_url=url).git_remote_url == url
