"""The operator on the cluster of the tests: installed once by Helm for its kinds, and run as a process per module."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import LocalCluster
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import Queues
from tests.cluster.operator.release import CHART
from tests.services.redis import RedisServer, RedisServers

HELM_NAMESPACE = "headrace-system"


@pytest.fixture(scope="session")
def installed(cluster: LocalCluster) -> str:
    """Install the chart; returns the one namespace that this operator Pod watches.

    Its CustomResourceDefinitions serve all tests.
    """
    watched = f"watched-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", watched)
    install(cluster, watched)
    return watched


def install(cluster: LocalCluster, watched: str) -> None:
    """Install the release that the definitions belong to."""
    cluster.helm(
        *("install", "headrace", str(CHART), "--namespace", HELM_NAMESPACE, "--create-namespace"),
        *("--set", f"watchNamespaces={{{watched}}}", "--wait", "--timeout", "240s"),
    )


@pytest.fixture(scope="module")
def operator(
    cluster: LocalCluster, installed: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator for all namespaces, as a process with the administrator's rights."""
    with OperatorProcess(cluster, tmp_path_factory.mktemp("operator") / "operator.log") as running:
        yield running


@pytest.fixture(scope="session")
def redis(redis_servers: RedisServers) -> RedisServer:
    """A server that no test stops or flushes."""
    return redis_servers.get("valkey")


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server of this test alone."""
    with RedisServer("valkey") as server:
        yield server


@pytest.fixture
def queues(cluster: LocalCluster, installed: str, namespace: str) -> Queues:
    """The Queues of this test's namespace."""
    return Queues(cluster, namespace)
