"""The worker runtime.

`lifecycle` starts and stops the parts. `claims` asks the store for jobs where `wakeups` and `hints` say there are some;
`calls` puts together what is around a handler, and `lifespans` makes what handlers share; `intake` unpacks jobs,
`batches` gathers some of them, `execution` runs handlers, here or in `processes`; `deadlines` ends late ones,
`outcomes` decides what follows, `settlements` tells the store; `leases` is what is held meanwhile, and `keeper` renews
it from a thread of its own.
"""

from headrace.worker.lifecycle import Ending, Worker
from headrace.worker.metrics import Metrics, NoMetrics
from headrace.worker.settings import WorkerSettings

__all__ = ["Ending", "Metrics", "NoMetrics", "Worker", "WorkerSettings"]
