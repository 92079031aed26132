"""What a plan says: the steps to do now, in order, and what stands in the way of the rest."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_operator.planning.worker_health import Health
from headrace_operator.reasons import Finding
from headrace_operator.steps import Step


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order, and findings: why the connection, the topology or the workers are not as wanted.

    ``data_loss``: the data behind the connection is gone since the last pass; ``epoch_after`` is the epoch of the
    topology that replaces it. ``draining``: what the oldest draining version waits for. ``parked``: jobs that no worker
    knows. ``health``: how the workers are (None: the operator runs none). ``unscaled``: why their replicas are not set
    as they should be. ``limited``: which bound of the spec holds them back or up.
    ``led``: whether a queue that only its leader runs has one, and why (None: every worker runs it).
    ``advice``: what nothing fails of now, and somebody should know.

    ``doubt``: why the connection that is used is an earlier one. ``unsafe``: what of Redis endangers jobs.

    ``look_ms``: when to look again although nothing changed (None: at the ordinary interval).
    """

    steps: tuple[Step, ...] = ()
    connection: Finding | None = None
    doubt: Finding | None = None
    unsafe: Finding | None = None
    topology: Finding | None = None
    workers: Finding | None = None
    draining: Finding | None = None
    parked: Finding | None = None
    health: Health | None = None
    unscaled: Finding | None = None
    limited: Finding | None = None
    led: tuple[bool, Finding] | None = None
    advice: Finding | None = None
    data_loss: bool = False
    epoch_after: int | None = None
    stalled: Finding | None = None
    look_ms: int | None = None
