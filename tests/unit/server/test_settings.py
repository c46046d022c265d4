"""Settings come from flags, environment and a TOML file, and every fault is named, with its line, before the start."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memotree import environment
from memotree.server.reference import FOLDER
from memotree.settings import InvalidSettingsError, Settings, load_settings, read_settings
from memotree.settings_file import MOST_BYTES, SettingsFile, UnreadableFileError, read_settings_file
from memotree.settings_shown import shown_settings

pytestmark = pytest.mark.requirement("TOOL-11")


def written(text: str) -> None:
    Path("memotree.toml").write_text(text, encoding="utf-8")


def faults(text: str) -> dict[str, str]:
    """The faults of a file by place."""
    written(text)
    with pytest.raises(InvalidSettingsError) as caught:
        load_settings()
    return {each.field.replace(" in memotree.toml", ""): each.description for each in caught.value.violations}


def loaded(text: str) -> Settings:
    written(text)
    return load_settings()


def read(text: str, *, tables: tuple[str, ...] = (), environment: Mapping[str, str] | None = None) -> SettingsFile:
    """What a file gives to settings of other names than ours."""
    path = Path("other.toml")
    path.write_text(text, encoding="utf-8")
    return read_settings_file(path, ("tools_enabled", "tools_call_timeout", *tables), tables, environment or {})


@pytest.mark.parametrize(
    "text",
    [
        'postgres_url = "postgresql://h/d"\npostgres_pool_max = 3\n',
        '[postgres]\nurl = "postgresql://h/d"\npool_max = 3\n',
        '[postgres]\nurl = "postgresql://h/d"\n[postgres.pool]\nmax = 3\n',
        'postgres = {url = "postgresql://h/d", pool = {max = 3}}\n',
        'postgres.url = "postgresql://h/d"\npostgres.pool.max = 3\n',
        'postgres_url = "postgresql://h/d"\n[postgres]\npool_max = 3\n',
    ],
)
def test_a_setting_may_stand_in_tables_that_begin_its_name(text: str) -> None:
    assert loaded(text) == load_settings(postgres_url="postgresql://h/d", postgres_pool_max=3)


def test_a_setting_that_is_given_in_two_forms_is_refused() -> None:
    found = faults('log_level = "debug"\n\n[log]\nformat = "json"\nlevel = "info"\n')
    assert found == {"log.level, line 5": "is the same setting as log_level; give it once"}


def test_the_names_of_the_tool_design_are_tables_of_the_file() -> None:
    text = (
        '[tools]\nenabled = true\ncall_timeout = "30s"\n[tools.custom]\nweather = {api_key = "${KEY}", days = [1, 2]}\n'
    )
    found = read(text, tables=("tools_custom",), environment={"KEY": "k"})
    assert {name: each.value for name, each in found.values.items()} == {
        "tools_enabled": True,
        "tools_call_timeout": "30s",
        "tools_custom": {"weather": {"api_key": "k", "days": [1, 2]}},
    }
    assert found.values["tools_custom"].place == "tools.custom in other.toml, line 4"


def test_unknown_names_in_tables_are_refused_with_their_line() -> None:
    found = faults('[postgres]\nulr = "x"\n["a b"]\nc = 1\n[nothing]\n[recall]\n[log.level]\n')
    assert found.keys() == {"postgres.ulr, line 2", '"a b".c, line 4', "nothing, line 5", "log.level, line 7"}
    assert "did you mean postgres_url?" in found["postgres.ulr, line 2"]


def test_variables_are_filled_into_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "s3cr${X}t")
    monkeypatch.setenv("A_PORT", "7500")
    settings = loaded(
        'port = "${A_PORT}"\ncommitter_name = "$${A_PORT} $A_PORT ${A_PORT}"\n'
        '[qdrant]\nurl = "http://h:1"\napi_key = "a${DB_PASSWORD}z"\n'
    )
    assert settings.port == 7500
    assert settings.committer_name == "${A_PORT} $A_PORT 7500"
    assert settings.qdrant_api_key is not None
    assert settings.qdrant_api_key.get_secret_value() == "as3cr${X}tz"


def test_a_variable_that_is_not_set_is_told_with_its_place_and_with_all_other_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("MEMOTREE_PORT", "many")
    found = faults(
        'postgres_url = "postgresql://u:${NO_SUCH}@h/d"\ncommitter_name = "${EMPTY}"\nchat_model = "${"\n'
        'committer_email = "${a-b}"\n'
    )
    names = ("postgres_url", "committer_name", "chat_model", "committer_email")
    assert found.keys() == {*(f"{name}, line {line}" for line, name in enumerate(names, 1)), "MEMOTREE_PORT"}
    assert "the variable NO_SUCH, which is not set" in found["postgres_url, line 1"]
    assert "the variable EMPTY, which is not set" in found["committer_name, line 2"]
    assert "without the name of a variable" in found["chat_model, line 3"]


def test_a_wrong_value_is_told_as_the_file_has_it_and_not_as_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    found = faults('session_ttl = "${TOKEN}"\nlog_level = ["${TOKEN}"]\n')
    assert '(it is "${TOKEN}")' in found["session_ttl, line 1"]
    assert "secret" not in str(found)


def test_settings_that_seem_to_contradict_each_other_for_a_missing_variable_are_not_told() -> None:
    assert faults('chat_url = "http://m"\nchat_model = "${NO_MODEL}"\n').keys() == {"chat_model, line 2"}


def test_lines_are_counted_through_texts_and_lists_of_several_lines() -> None:
    found = faults(
        '# a comment [with] = signs\ncommitter_name = """\n[log]\nlevel = 1\n"""\r\nport = [\n  1, # "\n  2,\n]\n\n'
        "[log] # level\n\n  level = '''\nx\n'''\n[[http]]\nport = 1\n"
    )
    assert found.keys() == {"committer_name, line 2", "port, line 6", "log.level, line 13", "http, line 16"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = 1\n" * 2, "Cannot overwrite"),
        ("[postgres]\nurl = \n", "line 2"),
        ("x = " + "[" * 10_000, "nested too deeply|TOML"),
        (".".join("a" * 50) + " = 1\n", "there is no such setting"),
        (".".join("a" * 5000) + " = 1\n", "there is no such setting|nested too deeply"),
        ("#" * (MOST_BYTES + 1), "is larger than 256 KiB"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(text: str, told: str) -> None:
    assert re.search(told, str(faults(text)))


def test_a_file_of_another_encoding_and_a_folder_are_told_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes('committer_name = "é"\n'.encode("latin-1"))
    for name in ("latin.toml", ""):
        with pytest.raises(UnreadableFileError, match="cannot be read as TOML"):
            read_settings_file(tmp_path / name, (), (), {})


def test_a_value_of_many_lines_ends_the_counting_and_nothing_else() -> None:
    found = faults(f'committer_name = """{"x" * 9}{chr(10) * 300}"""\nlog_level = "loud"\n')
    assert found.keys() == {"committer_name", "log_level"}


def test_the_example_of_the_reference_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (FOLDER / "settings.md").read_text(encoding="utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    for name in re.findall(r"\$\{(\w+)\}", example):
        monkeypatch.setenv(name, "x")
    assert loaded(example).postgres_pool_max == 32


def shown(**given: Any) -> dict[str, Any]:
    return {each.name: each for each in shown_settings(read_settings(**given))}


def test_every_setting_is_shown_with_who_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written('[log]\nlevel = "debug"\nformat = "json"\n')
    monkeypatch.setenv("MEMOTREE_LOG_FORMAT", "console")
    found = shown(port=1)
    assert found.keys() == Settings.model_fields.keys()
    assert (found["log_level"].source, found["log_level"].place) == ("file", "log.level in memotree.toml, line 2")
    assert (found["log_format"].source, found["log_format"].place) == ("environment", "MEMOTREE_LOG_FORMAT")
    assert (found["port"].source, found["host"].source, found["host"].place) == ("argument", "default", "")
    assert (found["max_message_bytes"].value, found["max_message_bytes"].text) == (2**24, "16MiB")
    assert (found["session_ttl"].value, found["http_port"].text, found["http_enabled"].text) == ("7d", "none", "true")


def test_no_secret_is_shown() -> None:
    kinds = ("chat", "embedding", "rerank")
    secrets = {f"{kind}_api_key" for kind in (*kinds, "qdrant")}
    given = dict.fromkeys(secrets, "s3cret") | {"postgres_url": "postgresql://u:s3cret@h/d"}
    given |= {f"{kind}_url": "http://m/v1?key=s3cret" for kind in kinds} | {f"{kind}_model": "m" for kind in kinds}
    given["qdrant_url"] = "http://me:s3cret@h:6334"
    found = shown(**given)
    assert "s3cret" not in str(found)
    plain = {"chat_url": "http://m", "chat_model": "m", "chat_api_key": "s3cret"}
    assert "s3cret" not in repr(load_settings(postgres_url=given["postgres_url"], **plain))
    assert {each.name for each in found.values() if each.value == "***"} == {*secrets, "postgres_url"}
    assert found["qdrant_url"].value == "http://***@h:6334"


# --- Settings from anywhere -------------------------------------------------------------------------------------------


def given_faults(**given: object) -> dict[str, str]:
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
    assert "no file" in given_faults()["MEMOTREE_CONFIG"]
    path.write_text("max_content_bytes = '64KiB'\n")
    assert load_settings().max_content_bytes == 65_536
    path.write_text("port =\n")
    assert "TOML" in given_faults()[str(path)]


def test_durations_are_written_with_a_unit() -> None:
    texts = {"7d": 604_800, "12h": 43_200, "30 m": 1800, "45s": 45, "500ms": 0.5, "90": 90}
    assert {text: load_settings(session_ttl=text).session_ttl.total_seconds() for text in texts} == texts


def test_every_fault_is_named_at_once_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "memotree.toml").write_text('max_content_bytes = "lots"\nquadrant_url = "x"\n')
    monkeypatch.setenv("MEMOTREE_PORT", "70000")
    monkeypatch.setenv("MEMOTREE_SESSION_TTL", "soon")
    found = given_faults(committer_name="a <b>")
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
    assert given_faults() == {"MEMOTREE_POSTGRES_ULR": "there is no such setting; did you mean MEMOTREE_POSTGRES_URL?"}
    monkeypatch.delenv("MEMOTREE_POSTGRES_ULR")
    (tmp_path / "memotree.toml").write_text('quadrant_url = "x"\n')
    assert given_faults() == {
        "quadrant_url in memotree.toml, line 1": "there is no such setting; did you mean qdrant_url?"
    }


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
        found = given_faults()
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
    found = given_faults(postgres_pool_min=9, postgres_pool_max=3, max_content_bytes=8192, max_message_bytes=8192)
    assert found.keys() == {"postgres_pool_min", "max_content_bytes"}
    assert given_faults(qdrant_api_key="k").keys() == {"qdrant_api_key"}


def test_settings_do_not_change_once_made(settings: Settings) -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1


@pytest.mark.parametrize(("url", "fault"), [
    ("https://git.example/memory.git", "{id} or {name}"), ("ext::sh -c {id}", "{id} or {name}"),
    ("ext::{id}", "begins with"), ("https://ada:secret@git.example/{id}.git", "leave the name and password out"),
])  # fmt: skip
def test_a_remote_is_a_url_for_each_workspace_without_a_password(url: str, fault: str) -> None:
    with pytest.raises(InvalidSettingsError, match=fault) as caught:
        load_settings(git_remote_url=url)
    assert "secret" not in str(caught.value)


def test_a_remote_may_be_a_folder_a_server_or_an_ssh_account() -> None:
    for url in ("file:///mnt/copies/{name}.git", "ssh://git@git.example/{id}", "https://x.example/{id}"):
        assert load_settings(git_remote_url=url).git_remote_url == url
