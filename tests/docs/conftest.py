"""A cluster and a Redis for the documentation: blocks install things for the whole cluster, so it is one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import IMAGES, LocalCluster
from tests.cluster.guard import Guard
from tests.cluster.node import Image
from tests.docs.blocks import ROOT
from tests.docs.reader import Reader
from tests.docs.story import Story, play
from tests.services.redis import RedisServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"reader", "story"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.cluster)
            # The first one may have to build the programs.
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def docs_redis(process_guard: Guard) -> Iterator[RedisServer]:
    """A Redis that starts empty."""
    with RedisServer("valkey", guard=process_guard) as server:
        yield server


@pytest.fixture(scope="session")
def reader(
    docs_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Reader]:
    """A reader with an empty cluster, whose node runs the images of the README and of the demo."""
    application = tmp_path_factory.mktemp("application")
    worker = IMAGES["headrace-worker"].entrypoint
    images = {
        **IMAGES,
        "emails": Image(worker, {"PYTHONPATH": str(application)}),
        "headrace-demo": Image(worker, {"PYTHONPATH": str(ROOT)}),
    }
    cluster = LocalCluster(images=images)
    cluster.start()
    try:
        yield Reader(cluster, docs_redis.url, Path(application))
    finally:
        failed = request.session.testsfailed > 0
        if failed:
            print(f"\nlogs of the documentation's cluster: {cluster.control_plane.logs}")
        cluster.stop(keep_logs=failed)


@pytest.fixture(scope="session")
def story(reader: Reader) -> Story:
    """The README, followed from its first block to its last."""
    return play(reader)
