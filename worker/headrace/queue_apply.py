"""Making a queue what a file says: created, promoted, configured; the same again changes nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.errors import OwnedByObject
from headrace.lifecycle import configure, promote
from headrace.pausing import owner_name
from headrace.queue_file import QueueFile
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from headrace.topology import Topology


class Applied(NamedTuple):
    """What was changed, or would be. ``promoted``: the version became active; ``settings``: name, before, after."""

    queue: str
    created: bool
    promoted: bool
    settings: tuple[tuple[str, Any, Any], ...]

    @property
    def changed(self) -> bool:
        """Whether anything was."""
        return self.created or self.promoted or bool(self.settings)


async def plan_queue(store: Store, wanted: QueueFile) -> Applied:
    """Say what `apply_queue` would change. Raises as it does, and changes nothing."""
    current = await store.read_topology(wanted.queue)
    target = _target(current, wanted)
    if current is None:
        return Applied(wanted.queue, True, True, _differences(QueueSettings(), target))
    promoted = not current.is_promoted(wanted.version, wanted.partitions)
    if promoted:
        current.promoted(wanted.version, wanted.partitions)  # raises what speaks against it
    return Applied(wanted.queue, False, promoted, _differences(current.settings, target))


async def apply_queue(store: Store, wanted: QueueFile) -> Applied:
    """Make a queue what a file says. The settings that it leaves out are unset; a pause that it does not name stays.

    Settings are changed before a version is promoted, so that this begins with them. Raises OwnedByObject for a queue
    of a Queue object, VersionNotHigher, TopologyConflict (the version is active with another number of partitions) or
    QueueDeleting, before anything is changed. The last three also later, because of what others have done meanwhile,
    and TopologyConflict then also if they have replaced the settings: apply again.
    """
    planned = await plan_queue(store, wanted)
    current = await store.read_topology(wanted.queue)
    target = _target(current, wanted)
    if current is not None and current.settings != target:
        await configure(store, wanted.queue, target)
    await promote(store, wanted.queue, wanted.version, wanted.partitions, settings=target)
    return planned


def _target(current: Topology | None, wanted: QueueFile) -> QueueSettings:
    if current is None:
        return wanted.settings
    if owner := owner_name(current.check_alive()):
        raise OwnedByObject(wanted.queue, owner, "the operator follows its spec", "apply the object: `kubectl apply`")
    if wanted.stop_given:
        return wanted.settings
    return wanted.settings.model_copy(update={"stop": current.settings.stop})


def _differences(before: QueueSettings, after: QueueSettings) -> tuple[tuple[str, Any, Any], ...]:
    old, new = (_flat(each.model_dump(mode="json", exclude_none=True)) for each in (before, after))
    names = sorted(old.keys() | new.keys())
    return tuple((name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[before + name] = value
    return found
