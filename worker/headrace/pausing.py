"""Pausing a queue by hand, and letting it go on.

A pause is a setting of the queue, `QueueSettings.stop`: jobs are taken and none is started; what runs ends. Where a
Queue object owns the queue, the setting follows the object's spec, whoever writes it into the topology: there is one
place where a pause is said. So these calls refuse such a queue; ``headrace queue pause`` then changes the object.
"""

from __future__ import annotations

from headrace.errors import InvalidInput, OwnedByObject
from headrace.lifecycle import change_settings
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from headrace.topology import Topology

STATES = {"none": "running", "hold": "paused", "hold_and_drain": "draining"}
"""What a queue with that setting ``stop`` does, for people; draining: it takes no jobs, and runs the rest."""


def state_of(topology: Topology) -> str:
    """Return what a queue does, for people: running, paused, draining (as in `STATES`) or deleting."""
    return "deleting" if topology.deleting else STATES[topology.settings.stop]


async def pause_queue(store: Store, queue: str, *, owned: bool = False) -> Topology:
    """Let workers start no more jobs; in force in every partition when it returns. The same again changes nothing.

    ``owned``: although a Queue object owns it, for one that is gone. Raises OwnedByObject, InvalidInput if the queue
    takes no new jobs and runs the rest, UnknownQueue or QueueDeleting; or TopologyConflict if somebody has undone it,
    or a failover has forgotten it, before every partition had it.
    """

    def held(topology: Topology) -> QueueSettings:
        _check_owner(topology, owned=owned)
        if topology.settings.stop == "hold_and_drain":
            raise InvalidInput(
                f"stop of queue {queue!r}", "is hold_and_drain: it takes no jobs and runs the rest", "resume it first"
            )
        return topology.settings.model_copy(update={"stop": "hold"})

    return await change_settings(store, queue, held)


async def resume_queue(store: Store, queue: str, *, owned: bool = False) -> Topology:
    """Let a queue take and run jobs again. ``owned`` and errors as in `pause_queue`."""

    def released(topology: Topology) -> QueueSettings:
        _check_owner(topology, owned=owned)
        return topology.settings.model_copy(update={"stop": "none"})

    return await change_settings(store, queue, released)


def owner_name(topology: Topology) -> str:
    """Return ``namespace/name`` of the Queue object that owns a queue, "" if none does."""
    owner = topology.owner
    return f"{owner.get('namespace', '?')}/{owner.get('name', '?')}" if owner else ""


def _check_owner(topology: Topology, *, owned: bool) -> None:
    if (owner := owner_name(topology)) and not owned:
        namespace, _, name = owner.partition("/")
        raise OwnedByObject(
            topology.queue,
            owner,
            "the operator follows its spec",
            f"change that: `kubectl -n {namespace} patch queue {name} --type=merge --patch "
            '\'{"spec": {"paused": true}}\'`, or false to resume',
        )
