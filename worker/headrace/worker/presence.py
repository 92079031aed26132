"""What a worker says of itself in the registry of its queues."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.stores.base import Beat


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs. ``pod`` and ``node``: from POD_NAME and NODE_NAME, "" where nobody sets them."""

    host: str
    pid: int
    pod: str
    node: str

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> Place:
        """Return the place of this process."""
        pod, node = environment.get("POD_NAME", ""), environment.get("NODE_NAME", "")
        return cls(socket.gethostname(), os.getpid(), pod, node)


class Presence:
    """Makes the beats of a worker.

    ``in_flight`` tells how many jobs of each queue it holds, ``candidate`` whether it stands for election in one.
    """

    def __init__(
        self,
        place: Place,
        slots: int,
        in_flight: Callable[[], Mapping[str, int]],
        candidate: Callable[[str], bool] = lambda queue: False,
    ) -> None:
        self._place = place
        self._slots = slots
        self._in_flight = in_flight
        self._candidate = candidate

    def beat(self, queue: str, stands_by_till: int = 0) -> Beat:
        """Return what is to be said now; see `Beat` for ``stands_by_till``."""
        place = self._place
        in_flight, candidate = self._in_flight().get(queue, 0), self._candidate(queue)
        return Beat(place.host, place.pid, place.pod, place.node, self._slots, in_flight, candidate, stands_by_till)
