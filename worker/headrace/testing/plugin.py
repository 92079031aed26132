"""Fixtures for pytest, found by itself where headrace is installed.

A project says once, in its ``conftest.py``, which application it tests::

    @pytest.fixture
    def headrace_app():
        return emails.handlers.app

``headrace_queue`` is then a running `headrace.testing.TestQueue` for asynchronous tests (it needs pytest-asyncio), and
``headrace_blocking_queue`` a running `headrace.testing.BlockingTestQueue` for plain ones. ``headrace_queue_options``
(default: none) may be overridden too: keyword arguments of both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.testing import BlockingTestQueue, TestQueue

# Every run of pytest loads this module, so it imports the library only where a fixture needs it.


@pytest.fixture
def headrace_app() -> App:
    """Return the App under test; a project overrides it."""
    pytest.fail("no application is given: define a fixture headrace_app that returns your headrace.App", pytrace=False)


@pytest.fixture
def headrace_queue_options() -> dict[str, Any]:
    """Return the keyword arguments of `headrace.testing.TestQueue`; a project may override it."""
    return {}


@pytest.fixture
def headrace_blocking_queue(headrace_app: App, headrace_queue_options: dict[str, Any]) -> Iterator[BlockingTestQueue]:
    """Return a running queue for plain tests."""
    from headrace.testing import BlockingTestQueue

    with BlockingTestQueue(headrace_app, **headrace_queue_options) as queue:
        yield queue


async def _queue(headrace_app: App, headrace_queue_options: dict[str, Any]) -> AsyncIterator[TestQueue]:
    """Return a running queue for asynchronous tests."""
    from headrace.testing import TestQueue

    async with TestQueue(headrace_app, **headrace_queue_options) as queue:
        yield queue


def _no_queue() -> TestQueue:
    """Say what is missing."""
    pytest.fail("headrace_queue needs pytest-asyncio; install headrace[testing]", pytrace=False)


headrace_queue: Any
try:
    import pytest_asyncio
except ImportError:
    headrace_queue = pytest.fixture(_no_queue, name="headrace_queue")
else:
    headrace_queue = pytest_asyncio.fixture(_queue, name="headrace_queue")
