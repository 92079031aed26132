"""What a leader learns without asking: its worker reads the topology, claims, and keeps a timer anyway."""

from __future__ import annotations

import asyncio

from headrace.topology import Topology


class Signs:
    """Signs of life of one queue. One event loop.

    ``topology``: as read last, None before that or while there is none. ``activity``: grows whenever this worker
    noticed that jobs of the queue came, ran or ended. ``outages``: grows whenever the store answers again after it did
    not.
    """

    def __init__(self) -> None:
        self.topology: Topology | None = None
        self.activity = 0
        self.outages = 0
        self._listeners: set[asyncio.Event] = set()
        self.watched = False
        """Whether the next activity is going to be told."""

    def read(self, topology: Topology | None) -> None:
        """Take note of the topology."""
        if topology != self.topology:
            self.topology = topology
            self._tell()

    def noticed(self) -> None:
        """Take note of activity. It is told once for each `watch`: it may come thousands of times a second."""
        self.activity += 1
        if self.watched:
            self.watched = False
            self._tell()

    def watch(self) -> None:
        """Let the next activity be told like any other change."""
        self.watched = True

    def came_back(self) -> None:
        """Take note of the end of an outage."""
        self.outages += 1
        self._tell()

    def listen(self) -> asyncio.Event:
        """Return an event that is set when anything changes; give it to `forget` in the end."""
        event = asyncio.Event()
        self._listeners.add(event)
        return event

    def forget(self, event: asyncio.Event) -> None:
        """Tell it nothing more."""
        self._listeners.discard(event)

    def _tell(self) -> None:
        for event in self._listeners:
            event.set()
