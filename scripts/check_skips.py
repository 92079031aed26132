"""Refuse a test run that skipped more than the project allows, or that ran nothing.

`python -m scripts.check_skips JUNIT_XML ALLOWED` reads pytest's report and a list of `pattern: reason` lines, where the
pattern matches `module::test` in shell style. Exit code 1 names each skip that no line allows. An expected failure
counts as a skip: neither says that the thing works.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree


def parse_allowed(text: str) -> dict[str, str]:
    """Pattern -> reason; comments and blank lines aside. Raises `ValueError` for a line without a reason."""
    allowed = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        pattern, found, reason = line.partition(": ")
        if not found or not reason.strip():
            raise ValueError(f"allowed skip {line!r} gives no reason; write 'pattern: reason'")
        allowed[pattern.strip()] = reason.strip()
    return allowed


def read_report(xml: str) -> tuple[int, dict[str, str]]:
    """Number of tests that ran, and `module::test` -> message of those that were skipped."""
    ran, skipped = 0, {}
    for case in ElementTree.fromstring(xml).iter("testcase"):  # noqa: S314 - written by our own pytest run
        mark = case.find("skipped")
        if mark is None:
            ran += 1
        else:
            skipped[f"{case.get('classname')}::{case.get('name')}"] = mark.get("message", "")
    return ran, skipped


def refused(skipped: Mapping[str, str], allowed: Iterable[str]) -> dict[str, str]:
    """The skips that no pattern allows."""
    patterns = list(allowed)
    return {test: why for test, why in skipped.items() if not any(fnmatchcase(test, p) for p in patterns)}


def main(report: str, allowed_file: str) -> int:
    """Print the verdict; 0 if tests ran and each skip is allowed."""
    ran, skipped = read_report(Path(report).read_text())
    bad = refused(skipped, parse_allowed(Path(allowed_file).read_text()))
    for test, why in bad.items():
        print(f"skips: {test} was skipped ({why}); make it run, or list it with a reason in {allowed_file}")
    if ran == 0:
        print("skips: no test ran")
    print(f"skips: {ran} tests ran, {len(skipped)} skipped, {len(bad)} of these not allowed")
    return 1 if bad or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
