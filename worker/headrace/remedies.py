"""What a person does about each kind of damage that an audit names."""

from __future__ import annotations

from headrace.stores.base import Leftover, LeftoverKind

REPAIR = "`headrace audit {queue} --repair` mends it"
_PROMOTE = "`headrace topology promote {queue} --version N --partitions N`"
_APART = (
    "look at what it holds; `headrace audit {queue} --repair` renames it to foreign-{key}, under the same hash tag, "
    "and mends what is missing then"
)
_TOPOLOGY = (
    "bring the key back from a backup; or delete it (DEL) and create the queue again under the version that it had and "
    f"with as many partitions, in which the jobs are: apply its Queue object, or {_PROMOTE}"
)

_REMEDIES: dict[LeftoverKind, str] = {
    "partition gone": "its jobs are lost to this version: bring its keys back from a backup, or complete the version",
    "partition superseded": f"promote a version above it: {_PROMOTE}",
    "partition not listed": (
        "nothing visits it: look at its jobs, and bring back the topology that lists it, or delete its keys"
    ),
    "queue without topology": (
        "bring its topology back from a backup, or create the queue again under the version that it had and with as "
        "many partitions; or delete its keys (DEL)"
    ),
    "unknown key": "it is not one of Headrace, or was renamed by a repair: look at it, and delete it (DEL)",
    "letter unreadable": "nobody can put it back: `headrace dead delete {queue} --id ID` removes it",
    "contents unreadable": (
        "no step gets past what it holds, and a repair does not know it: bring the key back from a backup, or look at "
        "it and remove what is not of Headrace"
    ),
    "sizes differ": "look again; if that lasts, pause the queue and look once more",
    "topology unreadable": _TOPOLOGY,
}
_OF_ENTRIES = {
    "moving": (
        "look for the job in the newer versions (`headrace job describe {queue} ID`); if it is there, delete the field "
        "(HDEL) here and in jobs, else only the field, and --repair makes it ready"
    ),
    "arrived": (
        "delete the field (HDEL) once no partition of an older version has the job in its moving key; until then the "
        "partition cannot be closed"
    ),
}


def remedy(queue: str, leftover: Leftover) -> str:
    """Return what to do about a leftover, in a sentence or two; "" if it is mended."""
    if leftover.repaired:
        return ""
    text = _REMEDIES.get(leftover.kind, REPAIR)
    if leftover.kind == "key of another kind":
        text = _TOPOLOGY if leftover.key == "topology" else _APART
        if leftover.key == "marker":
            text = "delete it (DEL); the operator writes it again, and takes the data set for another one"
    elif leftover.kind == "entry unreadable":
        text = _OF_ENTRIES.get(leftover.key, REPAIR)
    return text.format(queue=queue, key=leftover.key)
