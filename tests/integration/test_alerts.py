"""The alert rules of the chart, run by Prometheus's own tool on series that are made up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cluster.binaries import cache_folder
from tests.docs.blocks import ROOT

RULES = ROOT / "charts/headrace/files/alerts.yaml"
PAGES = ROOT / "docs/runbooks/alerts"


@pytest.fixture(scope="session")
def promtool() -> str:
    found = shutil.which("promtool", path=f"{cache_folder() / 'promtool'}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip("promtool is not there: `make setup` takes it from Debian's package prometheus")
    return found


def rules() -> dict[str, str]:
    """Expressions by the names of the alerts."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def test_every_alert_is_told_when_it_should_be_and_only_then(promtool: str, tmp_path: Path) -> None:
    checked = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tests = (ROOT / "tests/integration/alerts.yaml").read_text().replace("[RULES]", f"[{RULES}]")
    (tmp_path / "tests.yaml").write_text(tests)
    told = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "tests.yaml")], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stdout + told.stderr
    cases = yaml.safe_load(tests)["tests"]
    tried = {each["alertname"] for case in cases for each in case["alert_rule_test"] if each["exp_alerts"]}
    assert tried == set(rules())


def test_every_alert_has_a_page_and_no_other_has() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} - {"README"} == set(rules())
    index = (PAGES / "README.md").read_text()
    severities = {
        rule["alert"]: rule["labels"]["severity"]
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
    }
    assert dict(re.findall(r"^\| \[(\w+)\]\(\w+\.md\) \| (\w+) \|", index, re.MULTILINE)) == severities


@pytest.mark.parametrize("alert", rules())
def test_a_page_says_what_it_means_and_what_to_do(alert: str) -> None:
    text = (PAGES / f"{alert}.md").read_text()
    assert re.findall(r"^#+ (.*)$", text, re.MULTILINE) == [alert, "Meaning", "Impact", "Look", "Do"]
    assert f"runbook: docs/runbooks/alerts/{alert}.md" in RULES.read_text()
