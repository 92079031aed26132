"""Command of our side: ``python -m bench.ours ACTION PARAMETERS``."""

from __future__ import annotations

from bench.ours.produce import enqueue, fill, schedule
from bench.ours.steps import cycle, lifecycle
from bench.ours.work import attend, work
from bench.peers.python.meter import serve

if __name__ == "__main__":
    serve(
        {
            "fill": fill,
            "schedule": schedule,
            "enqueue": enqueue,
            "work": work,
            "attend": attend,
            "cycle": cycle,
            "lifecycle": lifecycle,
        }
    )
