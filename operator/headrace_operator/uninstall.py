"""Before the operator goes for good: lets go of what would wait for it for ever.

A Queue with deletionPolicy Drain or Delete has a finalizer that only an operator takes off, and with Drain the workers'
objects have no owner. The Lease is taken first, so that no operator puts the finalizer back meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headrace.election import Conflict, LockError, Record, make_identity
from headrace.election.backends.lease import LeaseLock
from headrace.election.record import holder_of, next_seq
from headrace.election.surroundings import wall_microseconds
from headrace_operator.api.names import FINALIZER, OPERATOR, workers_name
from headrace_operator.kubernetes.client import ApiError, Kube, objects, queues
from headrace_operator.leadership import TIMINGS
from headrace_operator.observed import QueueObject, ownership
from headrace_operator.settings import OperatorSettings
from headrace_operator.workers.companions import KINDS
from headrace_operator.workers.render import owner_reference

KEPT_OUT_SECONDS = 120
"""No operator leads for so long: enough for Helm to delete the last of them."""
CALL_SECONDS = 10.0
TRIES = 5

log = logging.getLogger("headrace.operator")


async def release_finalizers(
    kube: Kube, settings: OperatorSettings, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> int:
    """Take our finalizer from all watched Queues; return how many had it. Their jobs stay in Redis.

    Raises ApiError, ApiUnavailable and LockError.
    """
    if settings.leader_election != "off":
        await _keep_others_out(settings)
        # A leader that was cut off believes in its Lease for no longer than this.
        await sleep(TIMINGS[settings.leader_election].lease_duration)
    released = 0
    for namespace in settings.watch_namespaces or (None,):
        async for body in kube.items(queues(namespace)):
            released += await _release(kube, QueueObject.parse(body))
    return released


async def _keep_others_out(settings: OperatorSettings) -> None:
    lock = LeaseLock(settings.lease_name, settings.lease_namespace or None)
    wall, holder = wall_microseconds(), holder_of(make_identity(), "uninstall")
    try:
        for _ in range(TRIES):
            found = await lock.read(CALL_SECONDS)
            if found is None:
                return
            version, record = found
            seq = next_seq(wall, record.seq or 0)
            taken = Record(holder, record.term + 1, KEPT_OUT_SECONDS, seq, wall, record.epoch)
            try:
                await lock.cas(version, taken, CALL_SECONDS)
            except Conflict:
                continue  # its holder has renewed it in between
            return
        raise LockError(f"Lease {settings.lease_name} is written all the time")
    finally:
        await lock.close()


async def _release(kube: Kube, queue: QueueObject) -> bool:
    if FINALIZER not in queue.finalizers:
        return False
    for kind in ("Deployment", *KINDS):
        path = f"{objects(kind, queue.namespace)}/{workers_name(queue.name)}"
        found = await kube.find(path)
        if found is None or ownership(found, queue.name, queue.uid) != "ours":
            continue
        if not found["metadata"].get("ownerReferences"):
            owned = {"uid": found["metadata"]["uid"], "ownerReferences": [owner_reference(queue)]}
            await kube.merge(path, {"metadata": owned}, manager=OPERATOR)
    kept = [name for name in queue.finalizers if name != FINALIZER]
    try:
        await kube.merge(
            f"{queues(queue.namespace)}/{queue.name}",
            {"metadata": {"uid": queue.uid, "finalizers": kept}},
            manager=OPERATOR,
        )
    except ApiError as error:
        if error.status not in (404, 409):
            raise
        return False  # it has gone in between
    log.info("%s/%s: the finalizer is taken off; its jobs stay in Redis", queue.namespace, queue.name)
    return True
