"""The tests that docs/worker.md shows are tests."""

from __future__ import annotations

import pytest

from tests.docs.blocks import ROOT, blocks

pytest_plugins = ["pytester"]


@pytest.mark.parametrize("options", [(), ("-o", "asyncio_mode=auto")], ids=["as it comes", "auto"])
def test_the_tests_on_the_page_pass(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    shown = [block for block in blocks(ROOT / "docs" / "worker.md") if "headrace_queue" in block.text]
    assert len(shown) == 1
    pytester.makepyfile(shown[0].text)
    result = pytester.runpytest_subprocess(*options, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
