"""What the steps of the model can come to, and the shortest walks that lead there."""

from __future__ import annotations

from collections.abc import Collection

from tests.simulation.replay import Walked
from tests.simulation.values import Agreed, Arrivals, Aside, Counts, Leased, Moved, Reply, Topology, epoch_of
from tests.simulation.world import Model, Step

OUTCOMES: dict[str, tuple[str, ...]] = {
    "slow promoter": (
        "enqueue moved closed", "enqueue moved tombstone", "install active, ahead", "install draining, ahead",
        "install closed", "install tombstone", "settle draining", "settle closed", "settle tombstone",
        "mark draining", "mark closed", "mark tombstone", "discard no", "write_topology no", "read_grave",
        "read_topology", "close_partition closed", "close_partition draining",
    ),
    "two creators": ("enqueue moved resized", "discard yes"),
    "undone, reply lost": ("enqueue moved absent", "settle absent"),
    "one id, two producers": ("enqueue existing", "enqueue moved draining", "probe yes", "probe no"),
    "lost enqueue reply": ("close_partition closed, retry", "close_partition draining, retry"),
    "client oversleeps": ("sleeps", "resume some"),
    "lost claim reply": ("claim some, acks", "claim none, acks", "resume none", "ack some refused"),
    "late claim": ("claim none", "late"),
    "lease ends": ("expires", "ack none refused"),
    "forgotten": ("forgets", "close_partition tombstone"),
    "settings forgotten": ("settle active, ahead", "write_topology yes, above", "write_topology no, above"),
    "settings forgotten, remembered": ("counts active",),
    "settings forgotten, draining": ("settle draining, ahead",),
    "dead letter": (
        "adopt_dead yes", "close_partition closed, dead", "close_partition draining, dead", "dead_letters some",
        "dead_letters none", "fail none refused", "remove_dead",
    ),
    "move, two leaders at once": (
        "set_aside some", "set_aside none", "set_aside fenced", "adopt some", "adopt fenced", "let_go",
        "let_go fenced", "forget_arrived", "forget_arrived fenced", "arrivals some", "still_aside some",
        "still_aside none",
    ),
    "two completions": ("crashes",),
    "deleted while drained": (
        "close_partition active", "mark active", "remove no", "remove yes", "delete_partition yes", "bury_queue yes",
        "read_grave some",
    ),
    "deleted and created again": ("mark active", "install tombstone"),
    "withdrawn while it moves": ("withdraw moving",),
    "withdrawn": ("withdraw leased", "withdraw ready", "withdraw"),
    "purged": ("purge some", "purge none"),
    "sleeps": ("sleep yes", "sleep no", "enqueue woke", "wake yes", "read_wakes yes"),
    "sleeps, lost reply and promoted": ("probe woke",),
}  # fmt: skip
"""By a scenario that comes to them soon."""


def outcome(step: Step) -> str:
    """Return the name of a step and what it came to; of what happens to an actor, only its name."""
    if step.fate not in ("answered", "lost", "arrives"):
        return step.fate
    came_to = _of(step.reply)
    if step.call.method in ("ack", "fail"):
        came_to += " refused"
    if step.call.method == "claim" and step.call.settled:
        came_to += ", acks"
    written = step.call.topology if step.call.method == "write_topology" else None
    if written and written.epoch > epoch_of(step.call.read) + 1:
        came_to += ", above"  # what partitions go by, or what they remember
    return f"{step.call.method} {came_to}".rstrip()


def _of(reply: Reply) -> str:
    match reply:
        case Topology():
            return "found"
        case Moved():
            return f"moved {reply.state}"
        case Agreed():
            return f"{reply.state}{', ahead' * bool(reply.ahead)}"
        case Counts():
            return f"{reply.state}{', dead' * bool(reply.dead)}{', retry' * reply.may_retry}"
        case Leased():
            return "gone" if reply.gone else _some(reply.uids)
        case Aside() | Arrivals():
            return _some(reply.jobs)
        case bool():
            return "yes" if reply else "no"
        case int() | tuple():
            return _some(reply)
    return reply or ""


def _some(found: object) -> str:
    return "some" if found else "none"


def shortest_walks(model: Model, wanted: Collection[str]) -> dict[str, list[Walked]]:
    """Return a shortest walk to each of these outcomes; fail if one is not reachable."""
    left = set(wanted)
    came_by: dict[object, Walked | None] = {(initial := model.initial()): None}
    todo = [initial]
    found: dict[str, list[Walked]] = {}
    for world in todo:
        for step, after in model.successors(world):
            if after == world:
                continue
            walked = Walked(world, step, after)
            if (name := outcome(step)) in left:
                left.discard(name)
                found[name] = [*_way(came_by, world), walked]
                if not left:
                    return found
            if after not in came_by:
                came_by[after] = walked
                todo.append(after)
    raise AssertionError(f"not reachable: {sorted(left)}")


def _way(came_by: dict[object, Walked | None], world: object) -> list[Walked]:
    """Return how the search has come to a state."""
    steps = []
    while (walked := came_by[world]) is not None:
        steps.append(walked)
        world = walked.before
    return steps[::-1]
