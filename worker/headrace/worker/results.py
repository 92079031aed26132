"""What handlers have returned, on its way to the store: only for queues that keep finished jobs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headrace.envelope import encode_result, no_result
from headrace.errors import InvalidInput
from headrace.stores.base import MAX_RESULT_BYTES, MAX_RESULTS_BYTES, Success
from headrace.worker.leases import Execution
from headrace.worker.policies import Policies
from headrace.worker.repeats import Repeats

log = logging.getLogger("headrace.worker")


class Results:
    """Packs results, once for each run. One that cannot be kept costs the job nothing: its outcome says why."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._problems = Repeats()

    def keeps(self, queue: str) -> bool:
        """Whether the queue keeps finished jobs."""
        return self._policies.of(queue).keeps_finished

    def successes(self, acks: Sequence[Execution]) -> list[Success]:
        """Return what is told of finished jobs; of fewer than there are if the rest does not fit into one call."""
        told: list[Success] = []
        size = 0
        for execution in acks:
            result = self._packed(execution)
            size += len(result)
            if size > MAX_RESULTS_BYTES:
                break
            told.append(Success(execution.job.type, execution.job.attempt, result))
        return told

    def _packed(self, execution: Execution) -> bytes:
        returned = getattr(execution, "returned", None)
        if returned is None:
            return b""
        if not hasattr(execution, "result"):
            execution.result = self._encoded(execution, returned)
            execution.returned = ...  # it may be large
        return execution.result

    def _encoded(self, execution: Execution, returned: object) -> bytes:
        try:
            packed = encode_result(returned)
            problem = f"has {len(packed)} bytes, the limit is {MAX_RESULT_BYTES}"
            if len(packed) <= MAX_RESULT_BYTES:
                return packed
        except InvalidInput as error:
            problem = error.problem
        if self._problems.tells(execution.job.type):
            log.warning(
                "queue %s: the result of job %s (%s) is not kept: it %s",
                execution.job.queue,
                execution.job.id,
                execution.job.type,
                problem,
            )
        return no_result(problem)
