"""The Lease on a real API server, with the rights of a worker."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest

from headrace.election.backends.lease import LeaseLock, own_namespace
from headrace.election.errors import Conflict, Forbidden, Unavailable
from headrace.election.record import Record
from tests.cluster.cluster import LocalCluster
from tests.cluster.kubeconfig import with_token
from tests.cluster.rest import ApiError

C = 5.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
NAME = "emails-leader"


def record(holder: str = "a_1", term: int = 1, seq: int = 1_700_000_000_123_456) -> Record:
    return Record(holder, term, 15, seq, acquired=seq, epoch=7)


@dataclass
class Worker:
    """A service account that may get and update one Lease, as the operator makes it."""

    cluster: LocalCluster
    namespace: str
    kubeconfig: Path

    def configuration(self) -> kubernetes.client.Configuration:
        made: kubernetes.client.Configuration = self.cluster.client(self.kubeconfig).configuration
        return made

    def lock(self, name: str = NAME) -> LeaseLock:
        return LeaseLock(name, self.namespace, configure=self.configuration)

    def ask(self, method: str, path: str) -> int:
        """Status of any request with the worker's token."""
        client = self.cluster.client(self.kubeconfig)
        headers = {"Content-Type": "application/merge-patch+json"}
        headers |= {each["key"]: each["value"] for each in client.configuration.auth_settings().values()}
        pool = client.rest_client.pool_manager
        status = pool.request(method, client.configuration.host + path, headers=headers, body=b"{}").status
        pool.clear()
        return int(status)

    def lease(self) -> dict[str, Any]:
        found = self.cluster.rest.find(f"{LEASES.format(self.namespace)}/{NAME}")
        assert found is not None
        return found

    def pre_create(self, **metadata: Any) -> None:
        body = {"metadata": {"name": NAME, **metadata}, "spec": {}}
        self.cluster.rest.request("POST", LEASES.format(self.namespace), body)


@pytest.fixture
def worker(cluster: LocalCluster, namespace: str, tmp_path: Path) -> Worker:
    rest, account = cluster.rest, "emails-worker"
    rest.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": account}})
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [NAME],
        "verbs": ["get", "update"],
    }
    rest.request("POST", f"{rbac}/roles", {"metadata": {"name": account}, "rules": [rule]})
    binding = {
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    rest.request("POST", f"{rbac}/rolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = rest.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", request)
    token, token_file = answer["status"]["token"], tmp_path / "token"
    token_file.write_text(token)
    kubeconfig = tmp_path / "kubeconfig"
    authority = cluster.control_plane.authority.certificate
    kubeconfig.write_text(with_token(cluster.server, authority, token, str(token_file), namespace=namespace))
    made = Worker(cluster, namespace, kubeconfig)

    def allowed() -> bool:
        # Not there yet, but no more forbidden: the authorizer learns of a new Role a moment later.
        return made.ask("GET", f"{LEASES.format(namespace)}/{NAME}") == 404

    cluster.wait_for(allowed, what="rights of the worker")
    return made


async def test_E12_a_workers_rights_suffice_and_reach_nothing_else(worker: Worker) -> None:
    worker.pre_create()
    lock = worker.lock()
    found = await lock.read(C)
    assert found is not None
    version, empty = found
    assert (empty.holder, empty.term) == ("", 0)
    version = await lock.cas(version, record(), C)
    assert await lock.read(C) == (version, record())
    await lock.close()
    other = worker.lock("another")
    with pytest.raises(Forbidden):
        await other.read(C)
    with pytest.raises(Forbidden):
        await other.create(record(), C)
    await other.close()
    refused: list[tuple[str, str]] = [
        ("GET", LEASES.format(worker.namespace)),
        ("DELETE", f"{LEASES.format(worker.namespace)}/{NAME}"),
        ("PATCH", f"{LEASES.format(worker.namespace)}/{NAME}"),
        ("GET", f"/api/v1/namespaces/{worker.namespace}/pods"),
        ("GET", f"/api/v1/namespaces/{worker.namespace}/secrets"),
        ("GET", "/apis/apps/v1/deployments"),
        ("GET", f"{LEASES.format('kube-system')}/{NAME}"),
    ]
    for method, path in refused:
        assert worker.ask(method, path) == 403, (method, path)


async def test_LE8_missing_rights_are_named_with_verb_resource_and_account(worker: Worker) -> None:
    lock = worker.lock()
    with pytest.raises(Forbidden) as caught:
        await lock.create(record(), C)
    text = str(caught.value)
    assert f"create Lease {worker.namespace}/{NAME}" in text
    assert "leases" in text
    assert f"system:serviceaccount:{worker.namespace}:emails-worker" in text
    assert "grant the service account get and update" in text
    await lock.close()


async def test_owner_labels_and_unknown_parts_of_a_lease_stay(worker: Worker) -> None:
    queue = worker.cluster.rest.request(
        "POST", f"/api/v1/namespaces/{worker.namespace}/configmaps", {"metadata": {"name": "owner"}}
    )
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": queue["metadata"]["uid"]}
    worker.pre_create(labels={"app": "emails"}, annotations={"team": "mail"}, ownerReferences=[owner])
    lock = worker.lock()
    found = await lock.read(C)
    assert found is not None
    await lock.cas(found[0], record(), C)
    metadata = worker.lease()["metadata"]
    assert metadata["labels"] == {"app": "emails"}
    assert metadata["annotations"] == {"team": "mail", "headrace.dev/epoch": "7"}
    assert metadata["ownerReferences"] == [owner]
    await lock.close()


async def test_LE19_the_wire_carries_six_digits_in_UTC(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        worker.pre_create()
        lock = worker.lock()
        found = await lock.read(C)
        assert found is not None
        version = await lock.cas(found[0], record(seq=1_700_000_000_000_001), C)
        spec = worker.lease()["spec"]
        assert spec["renewTime"] == spec["acquireTime"] == "2023-11-14T22:13:20.000001Z"
        assert await lock.read(C) == (version, record(seq=1_700_000_000_000_001))
        await lock.close()
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_LE12_a_freed_lease_is_accepted_and_shown(worker: Worker) -> None:
    worker.pre_create()
    lock = worker.lock()
    found = await lock.read(C)
    assert found is not None
    version = await lock.cas(found[0], record(), C)
    columns = worker.cluster.kubectl("get", "lease", NAME, "--namespace", worker.namespace)
    assert "a_1" in columns
    await lock.cas(version, Record("", 1, 1, 1_700_000_001_000_001), C)
    spec = worker.lease()["spec"]
    # An empty holder is not stored at all.
    assert (spec.get("holderIdentity", ""), spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("", 1, 1)
    await lock.close()


async def test_L14_a_deleted_lease_is_a_conflict_for_its_holder_and_absent_for_all(worker: Worker) -> None:
    worker.pre_create()
    lock = worker.lock()
    found = await lock.read(C)
    assert found is not None
    version = await lock.cas(found[0], record(), C)
    worker.cluster.rest.request("DELETE", f"{LEASES.format(worker.namespace)}/{NAME}")
    with pytest.raises(Conflict):
        await lock.cas(version, record(seq=1_700_000_000_223_456), C)
    assert await lock.read(C) is None
    await lock.close()


async def test_an_edit_by_others_changes_the_version_and_not_the_record(worker: Worker) -> None:
    worker.pre_create()
    lock = worker.lock()
    found = await lock.read(C)
    assert found is not None
    version = await lock.cas(found[0], record(), C)
    worker.cluster.kubectl("annotate", "lease", NAME, "--namespace", worker.namespace, "seen=yes")
    with pytest.raises(Conflict):
        await lock.cas(version, record(seq=1_700_000_000_223_456), C)
    again = await lock.read(C)
    assert again is not None
    assert again[0] != version
    assert again[1] == record()
    await lock.close()


async def test_a_namespace_that_is_not_there_is_forbidden(cluster: LocalCluster) -> None:
    lock = LeaseLock(NAME, "nowhere", configure=lambda: cluster.client().configuration)
    with pytest.raises(Forbidden, match="no namespace 'nowhere'"):
        await lock.create(record(), C)
    await lock.close()


async def test_LE17_an_api_server_that_is_frozen_or_gone_is_unavailable_in_time(process_guard: object) -> None:
    with LocalCluster(nodes=()) as own:
        lock = LeaseLock(NAME, "default", configure=lambda: own.client().configuration)
        version = await lock.create(record(), C)
        own.control_plane.signal_component("kube-apiserver", signal.SIGSTOP)
        with pytest.raises(Unavailable) as caught:
            await lock.cas(version, record(seq=1_700_000_000_223_456), 0.5)
        assert caught.value.ambiguous
        own.control_plane.signal_component("kube-apiserver", signal.SIGCONT)
        found = await _read_again(lock)
        own.control_plane.stop_component("kube-apiserver", grace=0)
        with pytest.raises(Unavailable):
            await lock.cas(found[0], record(seq=1_700_000_000_323_456), C)
        with pytest.raises(Unavailable) as caught:
            await lock.cas(found[0], record(seq=1_700_000_000_323_456), C)
        assert not caught.value.ambiguous  # refused: nothing was sent
        own.control_plane.start_component("kube-apiserver")
        found = await _read_again(lock)
        assert found[1].seq in (1_700_000_000_123_456, 1_700_000_000_223_456)
        await lock.close()


async def _read_again(lock: LeaseLock) -> tuple[Any, Record]:
    deadline = time.monotonic() + 60
    while True:
        try:
            found = await lock.read(C)
        except (Unavailable, Forbidden):
            found = None
        if found is not None:
            return found
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def test_the_namespace_comes_from_the_kubeconfig(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(worker.kubeconfig))
    assert own_namespace() == worker.namespace


def test_the_admin_may_delete_what_a_worker_may_not(worker: Worker) -> None:
    """The refusals above are refusals of rights, not of paths."""
    worker.pre_create()
    worker.cluster.rest.request("DELETE", f"{LEASES.format(worker.namespace)}/{NAME}")
    with pytest.raises(ApiError):
        worker.cluster.rest.request("GET", f"{LEASES.format(worker.namespace)}/{NAME}")
