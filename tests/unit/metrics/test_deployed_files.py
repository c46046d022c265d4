"""The dashboard and the alerts name only metrics and labels that the server has."""

import asyncio
import json
import re
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

    sources = Sources(
        count_rows,
        silent,
        lambda: PoolUse(0, 1, 2, 0, 0, 0.0),
        lambda: 1,
        2,
        lambda: [("chat", _Totals())],
        lambda: (1, 0),
        ("ingest",),
    )
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
    ours = {
        name for name in labels if name.startswith("memotree_") and not name.endswith(("_created", "_sum", "_count"))
    }
    assert not {name for name in ours if name not in shown}


def expression_of(alert: str) -> str:
    return next(rule["expr"] for group in RULES["groups"] for rule in group["rules"] if rule["alert"] == alert)


def test_nobody_is_called_because_a_caller_has_reached_its_own_limit() -> None:
    """RESOURCE_EXHAUSTED is also the status of an agent that calls too often or has used up its budget."""
    expression = expression_of("MemoTreeUnavailable")
    assert "RESOURCE_EXHAUSTED" not in expression
    assert "memotree_calls_turned_away_total" in expression


def test_the_first_failure_of_a_method_is_seen_also_if_it_is_its_first_call() -> None:
    assert "unless memotree_calls_total" in expression_of("MemoTreeInternalErrors")


def test_every_alert_says_what_to_do() -> None:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert {"summary", "action"} <= rule["annotations"].keys()
            assert rule["labels"]["severity"] in {"warning", "critical"}


def test_the_dashboard_can_be_imported() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert all(panel["datasource"]["uid"] == "${source}" for panel in DASHBOARD["panels"])
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["source"]
