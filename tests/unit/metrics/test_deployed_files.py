"""The dashboard and the alerts name only metrics and labels that the server has.

Prometheus itself says when the alerts fire: at what they are for, and not at what is like it.
"""

import asyncio
import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.empty_pb2 import Empty
from memotree_storage.postgres.database import PoolUse
from memotree_storage.postgres.figures import Figures

from memotree.metrics.server_metrics import ServerMetrics
from memotree.metrics.store_figures import Sources
from memotree.request.observed_calls import CallObservers, ObservedCall

pytestmark = pytest.mark.requirement("TOOL-12")

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "memotree.json").read_text(encoding="utf-8"))
RULES: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "memotree.rules.yml").read_text(encoding="utf-8"))
CASES = Path(__file__).with_name("alerts.test.yml")
PROMTOOL = shutil.which("promtool")
GET = "memotree.v1.NodeService/GetNode"

FROM_PROMETHEUS = {"instance", "job"}
"""Labels that Prometheus adds to every metric."""

_SELECTOR = re.compile(r"\b((?:memotree|process)_\w+|up)\b(?:\{([^}]*)\})?")
_BY = re.compile(r"\bby \(([^)]*)\)")


class _Totals:
    answered, failed, read_tokens, written_tokens = 1, 0, 1, 1


@pytest.fixture
async def labels() -> Mapping[str, set[str]]:
    """The labels of every metric of a server that was used a little."""

    async def count_rows() -> Figures:
        return Figures(1, {("ingest", "failed"): 1}, 1)

    async def silent() -> dict[str, str]:
        return {}

    pool, totals = PoolUse(0, 1, 2, 0, 0, 0.0), [("chat", _Totals())]
    sources = Sources(count_rows, silent, lambda: pool, lambda: 1, 2, lambda: totals, lambda: (1, 0), ("ingest",))
    metrics = ServerMetrics([GET], sources)
    observers = CallObservers([metrics.calls])
    for call in (ObservedCall(GET, interface="grpc"), ObservedCall(GET, "get_node", interface="mcp")):
        observers.began(call, Empty())
        observers.settle(call)
        observers.ended(call)
    found: dict[str, set[str]] = defaultdict(set)
    for metric in await asyncio.to_thread(list, metrics.registry.collect()):
        for sample in metric.samples:
            found[sample.name] |= set(sample.labels)
    return found


def expressions() -> Iterator[tuple[str, str, str]]:
    """Where an expression stands, the expression, and the text that is shown with it."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())


@pytest.mark.parametrize(("place", "expression", "shown"), list(expressions()))
def test_every_metric_and_label_exists(labels: Mapping[str, set[str]], place: str, expression: str, shown: str) -> None:
    del place
    assert expression.count("(") == expression.count(")")
    known = set(FROM_PROMETHEUS)
    selectors = _SELECTOR.findall(expression)
    assert selectors
    for name, matchers in selectors:
        if name != "up":
            assert name in labels, f"there is no metric {name}"
        of_this = labels.get(name, set()) | FROM_PROMETHEUS
        known |= of_this
        named = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert named <= of_this, f"{name} has no label {named - of_this}"
    grouped = {label.strip() for some in _BY.findall(expression) for label in some.split(",")}
    assert grouped <= known
    told = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", shown)) - {"value"}
    assert told <= (grouped or known)


def test_every_metric_of_ours_is_on_the_dashboard(labels: Mapping[str, set[str]]) -> None:
    shown = " ".join(expression for _, expression, _ in expressions())
    made = ("_created", "_sum", "_count")
    assert not {name for name in labels if name.startswith("memotree_") and not name.endswith(made)} - set(
        re.findall(r"\w+", shown)
    )


def test_the_dashboard_can_be_imported() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert all(panel["datasource"]["uid"] == "${source}" for panel in DASHBOARD["panels"])
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["source"]


@pytest.mark.skipif(PROMTOOL is None, reason="this machine has no promtool")
def test_the_alerts_fire_when_they_should(tmp_path: Path) -> None:
    rules = DEPLOY / "prometheus" / "memotree.rules.yml"
    for each in (rules, CASES):
        shutil.copy(each, tmp_path)
    for arguments in (["check", "rules", rules.name], ["test", "rules", CASES.name]):
        done = subprocess.run(  # noqa: S603 - the promtool of this machine
            [str(PROMTOOL), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_in_which_it_fires_and_says_what_to_do() -> None:
    """RESOURCE_EXHAUSTED is also the status of an agent that calls too often or has used up its budget."""
    rules = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
    cases: dict[str, Any] = yaml.safe_load(CASES.read_text(encoding="utf-8"))
    fired = {each["alertname"] for case in cases["tests"] for each in case["alert_rule_test"] if each.get("exp_alerts")}
    assert fired == rules.keys()
    for rule in rules.values():
        assert {"summary", "action"} <= rule["annotations"].keys()
        assert rule["labels"]["severity"] in {"warning", "critical"}
    assert "RESOURCE_EXHAUSTED" not in rules["MemoTreeUnavailable"]["expr"]
    assert "memotree_calls_turned_away_total" in rules["MemoTreeUnavailable"]["expr"]
    assert "unless memotree_calls_total" in rules["MemoTreeInternalErrors"]["expr"], "the first call may fail"
