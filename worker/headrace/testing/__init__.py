"""Testing kit: run an application's handlers without Redis, on a clock that the test moves.

The worker is the real one and the store is the one in memory, so retries, dead letters and limits are those of
production; only the queue's time is not. `TestQueue` is for asynchronous tests, `BlockingTestQueue` for plain ones;
with pytest, ``headrace.testing.plugin`` (found by itself) gives both as fixtures.
"""

from headrace.testing.blocking import BlockingTestQueue
from headrace.testing.queue import Delayed, TestQueue
from headrace.testing.recording import Clock, Run

__all__ = ["BlockingTestQueue", "Clock", "Delayed", "Run", "TestQueue"]
