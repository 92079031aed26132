"""The check that a test run skipped nothing in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_skips import main, parse_allowed, read_report, refused

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_runs"/>
<testcase classname="tests.unit.test_a" name="test_fails"><failure message="no"/></testcase>
<testcase classname="tests.images.test_images" name="test_builds[worker]"><skipped message="needs root"/></testcase>
</testsuite></testsuites>"""
ONLY_SKIPPED = """<testsuite><testcase classname="a" name="b"><skipped message="x"/></testcase></testsuite>"""


def test_a_report_is_read_as_runs_and_skips() -> None:
    assert read_report(REPORT) == (2, {"tests.images.test_images::test_builds[worker]": "needs root"})


def test_a_pattern_allows_what_it_matches_and_nothing_else() -> None:
    skipped = {"tests.images.test_images::test_builds[worker]": "needs root", "tests.unit.test_a::test_x": "later"}
    assert refused(skipped, ["tests.images.*"]) == {"tests.unit.test_a::test_x": "later"}


def test_an_allowed_skip_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="gives no reason"):
        parse_allowed("tests.images.*:  \n")


def test_the_list_of_the_project_gives_reasons() -> None:
    allowed = parse_allowed((Path(__file__).parents[1] / "allowed_skips.txt").read_text())
    assert all(reason for reason in allowed.values())


@pytest.mark.parametrize(
    ("report", "allowed", "code"),
    [(REPORT, "tests.images.*: needs root", 0), (REPORT, "", 1), (ONLY_SKIPPED, "*: any", 1)],
)
def test_the_exit_code_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], report: str, allowed: str, code: int
) -> None:
    (tmp_path / "report.xml").write_text(report)
    (tmp_path / "allowed.txt").write_text(allowed)
    assert main(str(tmp_path / "report.xml"), str(tmp_path / "allowed.txt")) == code
    assert "skips:" in capsys.readouterr().out
