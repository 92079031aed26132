"""May this Queue touch the queue in Redis? Decided from the mark of the data set and the owner in the topology."""

from __future__ import annotations

from headrace.topology import Topology
from headrace_operator.api.names import ACCEPT_BACKEND, EMPTY_BACKEND, TAKE_OVER
from headrace_operator.observed import Case
from headrace_operator.reasons import Finding, Reason


def rebuilt(case: Case) -> bool:
    """Whether the topology was written by this Queue after the last pass that could report one."""
    topology, epoch = case.backend.topology, case.queue.status.topology_epoch or 0
    return topology is not None and dict(topology.owner) == dict(case.seen.owner) and topology.epoch > epoch


def backend_lost(case: Case) -> bool:
    """Whether the Redis that held the queue holds other data now (flushed, or replaced at the same address).

    A missing mark beside a topology that is not older than the last one seen is no loss: the mark is written again.
    """
    known, backend = case.queue.status.backend, case.backend
    if known is None or known.marker == backend.marker or rebuilt(case):
        return False
    if backend.marker is not None:
        return True
    epoch = case.queue.status.topology_epoch or 0
    return backend.topology is None or backend.topology.epoch < epoch


def backend_refused(case: Case) -> Finding | None:
    """Say why the Redis behind the connection must not be used: it is another one than before. None if it may."""
    known, backend = case.queue.status.backend, case.backend
    if known is None or known.endpoint == backend.endpoint or known.marker == backend.marker:
        return None
    if rebuilt(case):
        return None
    found = backend.marker or EMPTY_BACKEND
    if case.queue.annotations.get(ACCEPT_BACKEND) == found:
        return None
    return Finding(
        Reason.BACKEND_CHANGED,
        f"the connection leads to {backend.endpoint}, which holds other data (mark {found}) than {known.endpoint} "
        f"(mark {known.marker}) where the queue lives; correct the connection, or annotate the Queue with "
        f"{ACCEPT_BACKEND}={found} to begin there without the jobs of the old one",
    )


def backend_accepted(case: Case) -> bool:
    """Whether somebody has said that the queue begins anew on the Redis that is there now."""
    known, backend = case.queue.status.backend, case.backend
    return known is not None and known.endpoint != backend.endpoint and known.marker != backend.marker


def ownership_refused(case: Case, topology: Topology) -> Finding | None:
    """Say whose the queue in Redis is, if it is not this Queue's and cannot become so. None if it may be claimed."""
    theirs, ours, backend = topology.owner, case.seen.owner, case.backend
    if not theirs or dict(theirs) == dict(ours):
        return None
    where = f"{theirs.get('namespace')}/{theirs.get('name')}"
    if theirs.get("cluster") == ours["cluster"]:
        recreated = (theirs.get("namespace"), theirs.get("name")) == (ours["namespace"], ours["name"])
        if recreated or backend.owner_alive is False:
            return None
        return Finding(
            Reason.OWNED_BY_ANOTHER,
            f"queue {topology.queue!r} on {backend.endpoint} belongs to the Queue {where}; use another "
            f"spec.queueName or another connection, or delete {where}",
        )
    if case.queue.annotations.get(TAKE_OVER) == theirs.get("uid"):
        return None
    return Finding(
        Reason.OWNED_BY_ANOTHER,
        f"queue {topology.queue!r} on {backend.endpoint} belongs to the Queue {where} of another cluster; if that one "
        f"is gone for good, annotate this Queue with {TAKE_OVER}={theirs.get('uid')}",
    )
