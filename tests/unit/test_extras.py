"""The extras of the package, and what a person is told when one is missing."""

import importlib.metadata
import re
import runpy
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from memotree_storage.postgres.database import Database

from memotree import extras
from memotree.models import gateway
from memotree.settings import Settings

pytestmark = pytest.mark.requirement("USE-7")

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGES = Path(__file__).parents[2] / "docs" / "explanation"
OWN = {name: extra for name, extra in PROJECT["optional-dependencies"].items() if name in extras.MODULES}


def names(requirements: list[str]) -> set[str]:
    """The names of the packages, without those of the package itself."""
    found = {re.split(r"[\[<>=]", each)[0].lower().replace("_", "-") for each in requirements}
    return found - {"memotree"}


@cache
def distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def providers(module: str) -> set[str]:
    return {each.lower().replace("_", "-") for each in distributions().get(module, [])}


@pytest.mark.parametrize("extra", sorted(OWN))
def test_every_package_of_an_extra_has_a_module_in_the_table_and_the_other_way_round(extra: str) -> None:
    unmatched = names(OWN[extra])
    for module in extras.MODULES[extra]:
        found = providers(module)
        assert found, f"{module} is not installed"
        unmatched -= found
    assert not unmatched


def test_the_base_installation_is_what_the_client_needs() -> None:
    assert names(PROJECT["dependencies"]) == {"googleapis-common-protos", "grpcio", "pathspec", "protobuf", "tenacity"}


def test_all_includes_every_extra_of_the_package() -> None:
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(everything.removeprefix("memotree[").removesuffix("]").split(",")) >= set(extras.MODULES)


@pytest.mark.parametrize(("words", "missing", "extra"), [
    (["serve"], "typer", "server"), (["--json", "mcp"], "rich.text", "mcp"), (["search", "oaks"], "typer", "cli"),
    ([], "typer", "server"), (["serve"], "psycopg.rows", "server"), (["ask"], "openai", "models"),
])  # fmt: skip
def test_a_missing_module_names_the_extra_in_one_line(
    monkeypatch: pytest.MonkeyPatch, words: list[str], missing: str, extra: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["memotree", *words])
    told = extras.advice(ModuleNotFoundError(f"No module named {missing!r}", name=missing))
    assert f'pip install "memotree[{extra}]"' in told
    assert "\n" not in told


def test_a_module_of_no_extra_is_an_unexpected_error() -> None:
    assert extras.advice(ModuleNotFoundError("No module named 'memotree.clii'", name="memotree.clii")) == ""


def test_the_page_about_dependencies_counts_what_each_extra_installs() -> None:
    made = runpy.run_path(str(PAGES / "installed_sizes.py"))
    closure, below = made["closure"], made["BELOW"]
    text = made["PAGE"].read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(?:memotree|\[(\w+)\])`.*?\| (\d+) \|", text, re.MULTILINE)
    wanted = {extra: len(closure(extra) - (closure(below[extra]) if extra else set())) for extra in made["EXTRAS"]}
    wanted["all"] = len(closure("all"))
    # libraries change what they require themselves, so a page that is some releases old may differ a little
    about = {extra: pytest.approx(count, rel=0.1, abs=2) for extra, count in wanted.items()}
    assert {extra: int(count) for extra, count in rows} == about, "run `python docs/explanation/installed_sizes.py`"


def test_a_server_with_a_model_behind_a_url_says_that_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "is_installed", lambda extra: extra != "models")
    settings = Settings.model_construct(chat_url="https://models.example/v1", embedding_url=None, rerank_url=None)
    with pytest.raises(gateway.ModelLibraryMissingError, match=r'pip install "memotree\[models\]"'):
        gateway.Models.from_settings(settings, Database(""))
