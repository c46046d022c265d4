"""The settings of single tools: what they change, and what is wrong in them, each fault with its line."""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from unit.server.test_settings import faults, loaded, written

from memotree.composition.tools import (
    _warn_of_unknown_names,
    disabled_tools,
    follow_settings,
    names_of_tools,
    offered_functions,
    open_tools,
)
from memotree.gateways.json_schema import declaration
from memotree.gateways.tool_definitions import BY_NAME
from memotree.gateways.tool_settings import OWN, PLACES, admission_of, tool_setting_faults
from memotree.identity.errors import ToolNotPermittedError
from memotree.maintenance.running_settings import RunningSettings
from memotree.planner import Planner
from memotree.request.principal import LOCAL
from memotree.settings import InvalidSettingsError, load_settings, read_settings
from memotree.settings_check import faults_of
from memotree.settings_shown import shown_settings
from memotree.tools.builtin.files import Files
from memotree.tools.builtin.services import NAMES, NEEDED_SETTING
from memotree.tools.executor import Executor
from memotree.tools.plugins import Plugins
from memotree.tools.rate_limit import ToolRateError

pytestmark = [pytest.mark.requirement("TOOL-5"), pytest.mark.requirement("TOOL-11")]


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def later_faults(text: str) -> dict[str, str]:
    """The faults that `memotree config check` finds in settings whose values are valid by themselves."""
    written(text)
    found = faults_of(read_settings())
    return {each.field.replace(" in memotree.toml", ""): each.description for each in found if "tools" in each.field}


def test_the_example_of_the_design_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEATHER_API_KEY", "a-secret")
    settings = loaded(
        '[tools]\nenabled = true\nlevel = "normal"\nallowed = ["search*", "show_weather"]\n'
        "[tools.builtin]\ncalculator = { enabled = false }\ndate_time = { enabled = true }\n"
        '[tools.custom.show_weather]\nenabled = true\napi_key = "${WEATHER_API_KEY}"\n'
        'base_url = "https://api.openweathermap.org"\n'
    )
    assert (settings.tools_level, settings.tools_allowed) == ("normal", ("search*", "show_weather"))
    own = settings.tools_custom["show_weather"].own
    assert own == {"api_key": "a-secret", "base_url": "https://api.openweathermap.org"}
    assert disabled_tools(settings) == {"calculator"}
    shown = {each.name: each.text for each in shown_settings(read_settings())}
    assert "a-secret" not in str(shown)
    assert json.loads(shown["tools_builtin"]) == {"calculator": {"enabled": False}, "date_time": {"enabled": True}}
    assert json.loads(shown["tools_custom"])["show_weather"]["api_key"] == "***"


def test_all_faults_are_told_at_once_with_their_lines() -> None:
    found = faults(
        '[tools]\nlevel = "strct"\nallowed = ["search*", "Recall"]\ncalls_per_minute = -1\nburst = 0\n'
        '[tools.builtin]\ncalculator = { enabled = "perhaps", timeout = "3x" }\n'
        '[tools.builtin.read_file]\nfoldrs = ["/srv"]\n'
        '[tools.custom.show_weather]\nsince = 2024-01-01\napi_key = "${NO_SUCH_VARIABLE}"\n'
        "[tools.custom.show_rain]\nsince = 2024-01-01\n"
    )
    assert {place: told.split(" (")[0] for place, told in found.items()} == {
        "tools.level, line 2": "should be 'strict', 'normal' or 'permissive'",
        "tools.allowed, line 3": "give the name of a tool, or the beginning of names and *, in small letters",
        "tools.calls_per_minute, line 4": "should be greater than or equal to 0",
        "tools.burst, line 5": "should be greater than or equal to 1",
        "tools.builtin.calculator.enabled, line 7": "should be a valid boolean, unable to interpret input",
        "tools.builtin.calculator.timeout, line 7": "give a number with a unit: 500ms, 45s, 30m, 12h or 7d",
        "tools.builtin.read_file.foldrs, line 9": "there is no such setting",
        "tools.custom.show_weather.api_key, line 12": "names the variable NO_SUCH_VARIABLE, which is not set; set it, "
        "or write $${ for a plain ${",
    }


def test_a_value_that_no_tool_can_be_given_is_told_with_its_tool() -> None:
    assert faults("[tools.custom.show_rain]\nsince = 2024-01-01\n") == {
        "tools.custom.show_rain, line 1": "give texts, numbers, true or false, lists and tables; a date as a text"
    }


def test_what_a_tool_does_not_take_is_told_with_its_line() -> None:
    assert later_faults(
        '[tools.builtin]\ncalculator = { folders = ["/srv"] }\ndate_tim = { enabled = true }\n'
        "recall = { timeout = 3 }\n[tools.builtin.search_web]\nenabled = true\n"
        '[tools.custom.recall]\nkey = 1\n[tools]\nallowed = ["serch*", "get_*"]\n'
    ) == {
        "tools.builtin.calculator, line 2": "calculator takes no folders",
        "tools.builtin.date_tim, line 3": "date_tim is no tool of MemoTree; did you mean date_time?",
        "tools.builtin.recall, line 4": "recall takes only enabled, and not timeout: it calls an operation of the "
        "store",
        "tools.builtin.search_web, line 5": "search_web needs url, here or for all tools in tools_search_url",
        "tools.custom.recall, line 7": "recall is a tool of MemoTree; its settings are in tools.builtin.recall",
        "tools.allowed, line 10": "serch* names no tool; did you mean search_web?",
    }


def test_tables_may_stand_in_variables_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMOTREE_TOOLS_BUILTIN", '{"forget": {"enabled": false}, "read_file": {"folders": ["/srv"]}}')
    monkeypatch.setenv("MEMOTREE_TOOLS_ALLOWED", "recall, get_*")
    settings = load_settings()
    assert settings.tools_allowed == ("recall", "get_*")
    assert settings.tools_builtin["read_file"].folders == (Path("/srv"),)
    assert list(tool_setting_faults(settings)) == []
    monkeypatch.setenv("MEMOTREE_TOOLS_BUILTIN", '{"forget": {"enabled": 7')
    with pytest.raises(InvalidSettingsError, match="MEMOTREE_TOOLS_BUILTIN"):
        load_settings()


def test_the_limits_of_one_tool_replace_those_of_all() -> None:
    settings = loaded(
        '[tools]\nfolders = ["/srv/all"]\ntimeout = "7s"\n'
        '[tools.builtin.read_file]\nfolders = ["/srv/manuals"]\ntimeout = "2s"\n'
        '[tools.builtin.check_host]\nhosts = ["example.com"]\n'
    )
    tools = {tool.name: tool for tool in offered_functions(settings, Planner(cast("Any", None), cast("Any", None)))}
    assert tools["read_file"].options.timeout == timedelta(seconds=2)
    assert tools["list_folder"].options.timeout is None
    files = [getattr(tools[name].function, "__self__", None) for name in ("read_file", "list_folder")]
    assert [each.folders for each in files if isinstance(each, Files)] == [("/srv/manuals",), ("/srv/all",)]
    assert "check_host" in tools
    assert "http_request" not in tools, "the hosts of one tool are not those of another"


def test_every_tool_that_needs_a_setting_has_its_key() -> None:
    assert {name: shared for name, (_, shared) in PLACES.items()} == {
        name: needed for name, needed in NEEDED_SETTING.items() if needed != "tools_enabled"
    }
    assert set(OWN) == {*BY_NAME, *NAMES} == set(names_of_tools() or ())


async def test_the_policy_and_the_rate_follow_the_settings() -> None:
    written("")
    running = RunningSettings(load_settings(), read_settings)
    admission = follow_settings(running, load_settings())
    recall, forget = declaration(BY_NAME["recall"]), declaration(BY_NAME["forget"])
    assert admission.permits(recall)
    assert admission.permits(forget)
    for _ in range(100):
        admission.rate.count(LOCAL)
    written('[tools]\nallowed = ["re*"]\nlevel = "strict"\ncalls_per_minute = 1\nburst = 1\n')
    assert all(change.in_effect for change in await running.reload())
    assert admission.permits(recall)
    assert not admission.permits(forget)
    admission.rate.count(LOCAL)
    with pytest.raises(ToolRateError):
        admission.rate.count(LOCAL)
    written("")
    await running.reload()
    assert admission.permits(forget)
    admission.rate.count(LOCAL)


def test_a_tool_that_is_turned_off_is_off_whatever_it_calls() -> None:
    admission = admission_of(
        loaded('[tools]\ndisabled = ["erase", "calculator"]\n[tools.builtin]\nforget = { enabled = false }\n')
    )
    off = {name for name in BY_NAME if not admission.permits(declaration(BY_NAME[name]))}
    assert off == {"erase", "forget"}
    with pytest.raises(ToolNotPermittedError, match=r"tools_disabled, or tools\.builtin\.erase"):
        admission.check(declaration(BY_NAME["erase"]))


@pytest.mark.requirement("TOOL-5")
def test_a_name_that_no_tool_has_keeps_the_server_from_starting() -> None:
    assert later_faults('[tools]\ndisabled = ["ersae", "calculator"]\n[tools.custom.show_weather]\nkey = 1\n') == {
        "tools.disabled, line 2": "ersae names no tool; did you mean erase?",
        "tools.custom.show_weather, line 3": "show_weather is no tool of a package; none that has tools is installed",
    }
    assert not later_faults('[tools]\ndisabled = ["erase", "calculator", "read_file"]\n')
    assert not later_faults('[mcp]\ntools = "calculator, recall"\n')


async def test_such_a_name_is_refused_by_the_start_itself() -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(InvalidSettingsError, match="did you mean erase"):
            await open_tools(loaded('[tools]\ndisabled = ["ersae"]\n'), stack)


async def test_beside_packages_such_a_name_is_told_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("composition.tools", "gateways.tool_settings"):
        monkeypatch.setattr(f"memotree.{module}.plugin_names", lambda: ["garden"])
    settings = loaded(
        '[tools]\ndisabled = ["ersae", "plan_watering", "erase"]\nallowed = ["plan_*", "nothing*"]\n'
        "[tools.custom]\nplan_watering = { key = 1 }\nplan_waterin = { key = 1 }\n"
    )
    assert not list(tool_setting_faults(settings)), "a package may have tools of these names"

    async def tools(_plugins: Plugins) -> Mapping[str, Any]:
        return {"plan_watering": None}

    monkeypatch.setattr(Plugins, "tools", tools)
    with capture_logs() as logs:
        await _warn_of_unknown_names(settings, Plugins(Executor(), ()))
    assert [f"{each['setting']} {each['tool']} {each['fault']}" for each in logs] == [
        "tools_disabled  ersae names no tool; did you mean erase?",
        "tools_allowed  nothing* names no tool; `memotree tools list` has their names",
        "tools_custom plan_waterin is no tool of a package; did you mean plan_watering?",
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[tools]\nlevel = "strict"\nallowed = ["recal"]\n', "tools.allowed in memotree.toml, line 3"),
        ('[tools]\nlevel = "strict"\ndisabled = ["recal"]\n', "tools.disabled in memotree.toml, line 3"),
        ('[tools]\nlevel = "strict"\n[tools.builtin.recal]\nenabled = false\n', "tools.builtin.recal in memotree.toml"),
        ('[tools]\nlevel = "strict"\n[tools.custom.recall]\nkey = 1\n', "tools.custom.recall in memotree.toml"),
    ],
)
async def test_a_reload_refuses_as_a_whole_what_a_start_refuses(text: str, place: str) -> None:
    written("")
    running = RunningSettings(load_settings(), read_settings)
    admission = follow_settings(running, load_settings())
    written(text)
    with pytest.raises(InvalidSettingsError) as refused:
        await running.reload()
    assert [each.field.startswith(place) for each in refused.value.violations] == [True]
    assert admission.permits(declaration(BY_NAME["forget"])), "the level is the old one"
    written('[tools]\nlevel = "strict"\n')
    await running.reload()
    assert not admission.permits(declaration(BY_NAME["forget"]))
