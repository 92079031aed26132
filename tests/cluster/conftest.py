"""One cluster per test run, one namespace per test."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator

import pytest

from tests.cluster import binaries
from tests.cluster.cluster import CommandError, LocalCluster

_USED = pytest.StashKey[tuple[LocalCluster, str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the cluster carries its marker."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build missing programs before the first test, whose time-out is not made for that."""
    config = session.config
    wanted: set[str] = set()
    for item in session.items:
        if item.get_closest_marker("cluster"):
            wanted.update(binaries.CLUSTER)
        if "keda" in getattr(item, "fixturenames", ()):
            wanted.update(binaries.LATER)
    if wanted and not config.option.collectonly:
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            binaries.ensure(wanted)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A running cluster with one process node; its logs stay if a test of the run failed."""
    running = LocalCluster()
    running.start()
    try:
        yield running
    finally:
        failed = request.session.testsfailed > 0
        if failed:
            print(f"\nlogs of the cluster: {running.control_plane.logs}")
        running.stop(keep_logs=failed)


@pytest.fixture
def namespace(cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace; its deletion is asked for, not waited for."""
    with cluster.namespace() as name:
        request.node.stash[_USED] = (cluster, name)
        yield name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what was in the namespace when a test failed."""
    report = yield
    if report.when == "call" and report.failed and _USED in item.stash:
        cluster, namespace = item.stash[_USED]
        with contextlib.suppress(CommandError, OSError):
            kinds = "pods,deployments,events"
            overview = cluster.kubectl("get", kinds, "--namespace", namespace, "--output=wide")
            report.sections.append((f"namespace {namespace}", overview))
        for pod in _pod_names(cluster, namespace):
            log = cluster.logs(namespace, pod)
            report.sections.append((f"log of {pod}", "\n".join(log.splitlines()[-40:])))
    return report


def _pod_names(cluster: LocalCluster, namespace: str) -> list[str]:
    try:
        return [pod["metadata"]["name"] for pod in cluster.pods(namespace)]
    except Exception:  # the report of a failure must not depend on a cluster that may be the cause
        return []
