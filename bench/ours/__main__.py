"""Command of our side: ``python -m bench.ours ACTION PARAMETERS``."""

from __future__ import annotations

from bench.ours.produce import enqueue, fill
from bench.ours.work import work
from bench.peers.python.meter import serve

if __name__ == "__main__":
    serve({"fill": fill, "enqueue": enqueue, "work": work})
