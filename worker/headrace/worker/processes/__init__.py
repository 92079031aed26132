"""Handlers in processes of their own, which can be killed.

`pool` keeps the processes, `process` is the worker's side of one of them and `child` the other one; they speak in
`messages`. Nothing is pickled: a call is the stored record of its job, and the name of its function. `deaths` says how
a process ended.
"""

from headrace.worker.processes.pool import ProcessPool

__all__ = ["ProcessPool"]
