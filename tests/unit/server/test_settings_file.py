"""The TOML file of the settings: tables, variables in its texts, and the line of every fault."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

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
