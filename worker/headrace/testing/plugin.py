"""Fixtures for pytest, found by itself where headrace is installed.

A project says once, in its ``conftest.py``, which application it is::

    @pytest.fixture
    def headrace_app():
        return emails.handlers.app

``headrace_queue`` is then a running `headrace.testing.TestQueue` for asynchronous tests (it needs pytest-asyncio), and
``headrace_blocking_queue`` a running `headrace.testing.BlockingTestQueue` for plain ones.
"""

from __future__ import annotations

from typing import NoReturn

import pytest


@pytest.fixture
def headrace_app() -> NoReturn:
    """Return the App under test; a project overrides it."""
    pytest.fail("no application is given: define a fixture headrace_app that returns your headrace.App", pytrace=False)
