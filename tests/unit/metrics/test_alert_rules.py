"""Prometheus itself says when the alerts fire: at what they are for, and not at what is like it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

PROMTOOL = shutil.which("promtool")
RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "memotree.rules.yml"
CASES = Path(__file__).with_name("alerts.test.yml")

pytestmark = pytest.mark.requirement("TOOL-12")


@pytest.mark.skipif(PROMTOOL is None, reason="this machine has no promtool")
def test_the_alerts_fire_when_they_should(tmp_path: Path) -> None:
    for each in (RULES, CASES):
        shutil.copy(each, tmp_path)
    for arguments in (["check", "rules", RULES.name], ["test", "rules", CASES.name]):
        done = subprocess.run(  # noqa: S603 - the promtool of this machine
            [str(PROMTOOL), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    cases: dict[str, Any] = yaml.safe_load(CASES.read_text(encoding="utf-8"))
    there = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    fired = {each["alertname"] for case in cases["tests"] for each in case["alert_rule_test"] if each.get("exp_alerts")}
    assert fired == there
