"""Servers for the tests of the election."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

import pytest

from tests.cluster import binaries
from tests.cluster.guard import Guard
from tests.election.stage import Stage
from tests.services.mongo import URL_VARIABLE, FerretServer

# The control plane of the cluster tests, one per run.
from tests.cluster.conftest import cluster, namespace  # noqa: F401  isort: skip


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build a missing server before the first test, whose time-out is not made for that."""
    wanted = any({"mongo_url", "ferret"} & set(getattr(item, "fixturenames", ())) for item in session.items)
    if wanted and not session.config.option.collectonly and not os.environ.get(URL_VARIABLE):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            binaries.ensure(["ferretdb"])


@pytest.fixture(scope="session")
def mongo_url(process_guard: Guard) -> Iterator[str]:
    """A server that speaks the MongoDB protocol."""
    if url := os.environ.get(URL_VARIABLE):
        yield url
        return
    server = FerretServer(process_guard)
    server.start()
    yield server.url
    server.close()


@pytest.fixture
def ferret(process_guard: Guard) -> Iterator[FerretServer]:
    """A FerretDB of the test's own, to be stopped and paused."""
    server = FerretServer(process_guard)
    server.start()
    yield server
    server.close()


@pytest.fixture
def stage(caplog: pytest.LogCaptureFixture) -> Iterator[Stage]:
    """Electors in virtual time, ended with the test."""
    caplog.set_level(logging.CRITICAL, "headrace.election")
    made = Stage()
    yield made
    errors = [error for each in made.candidates for error in each.loop.errors]
    made.close()
    assert not errors
