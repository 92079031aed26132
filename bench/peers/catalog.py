"""Which peers there are, what each is installed from, and how it is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["python", "node", "go"]


@dataclass(frozen=True)
class Peer:
    """One peer. ``share``: its part of a benchmark's jobs, so that one round takes it seconds, not minutes."""

    name: str
    kind: Kind
    share: float = 1.0


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("bullmq", "node"),
        Peer("asynq", "go"),
        Peer("dramatiq", "python", 0.1),
        Peer("saq", "python", 0.1),
        Peer("streaq", "python", 0.1),
        Peer("arq", "python", 0.05),
        Peer("rq", "python", 0.05),
        Peer("celery", "python", 0.05),
        Peer("taskiq", "python", 0.1),
    )
}
