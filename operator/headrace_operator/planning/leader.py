"""Who leads the workers: what is told of a change, and whether a queue that only its leader runs has one."""

from __future__ import annotations

from datetime import datetime

from headrace_operator.api.queue_status import Leader, QueueStatus
from headrace_operator.observed import Backend, Observed
from headrace_operator.reasons import Event, Finding, Reason, normal

CONDITION = "LeaderElected"
LEADERLESS_SECONDS = 60.0
"""A take-over takes 45 s at most, with the slowest durations that have a name."""
QUIET_SECONDS = 60.0
"""Changes of the leader of one Queue are told at most this often."""
LOOK_MS = 10_000
"""Nothing tells of a change of the leader; where it matters most, it is looked for more often."""


def leader_of(observed: Observed) -> Leader | None:
    """Return who leads now as the status tells it; what could not be read is as it was told last."""
    backend = observed.backend
    if not isinstance(backend, Backend):
        return observed.queue.status.leader
    if backend.leader is None or not observed.is_ours:
        return None
    return Leader(holder=backend.leader.worker, backend=backend.leader.backend, epoch=backend.leader.epoch)


def changed(old: Leader | None, new: Leader | None) -> bool:
    """Whether another worker leads, or the same one by another lock. That nobody leads for a while is no change."""
    return new is not None and (old is None or (old.holder, old.backend) != (new.holder, new.backend))


def leader_event(told: Leader | None, new: Leader | None, seconds: float) -> Event | None:
    """Return what is told of a change since ``told``, which is ``seconds`` ago; None if there is nothing to tell yet.

    One that is held back is told later, if it still holds: leaders that come and go fill no list of Events.
    """
    if new is None or not changed(told, new) or seconds < QUIET_SECONDS:
        return None
    return normal(Reason.LEADER_CHANGED, f"worker {new.holder} leads through {new.backend} (epoch {new.epoch})")


def leadership(observed: Observed) -> tuple[bool, Finding] | None:
    """Return whether a queue that only its leader runs has one, and what to say of it; None: any worker runs it."""
    spec = observed.queue.spec
    if spec is None or spec.mode != "LeaderOnly" or not isinstance(observed.backend, Backend) or not observed.is_ours:
        return None
    if observed.backend.leader is not None:
        return True, Finding(Reason.LEADING, "a worker leads and runs the jobs")
    scaled = observed.scaled
    if scaled is not None and scaled.replicas == 0:
        return False, Finding(Reason.SCALED_TO_ZERO, "no worker is wanted")
    if _missing_for(observed.queue.status, observed.now) < LEADERLESS_SECONDS:
        return False, Finding(Reason.ELECTING, "no worker leads yet")
    return False, Finding(
        Reason.NO_LEADER,
        "no worker leads, so no job is run; see WorkersAvailable, the logs of the workers and `headrace leader show`",
    )


def _missing_for(status: QueueStatus, now: datetime) -> float:
    """Return for how many seconds nobody has led, as the status tells."""
    told = status.condition(CONDITION)
    if told is None or told.status != "False":
        return 0.0
    return (now - told.last_transition_time).total_seconds()
