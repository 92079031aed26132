"""Unpacks what a claim brought: runs of jobs that a handler here is for; the others are settled at once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from headrace.context import Context
from headrace.envelope import decode_record
from headrace.handler import Handler
from headrace.ids import decode_id
from headrace.job import Job
from headrace.stores.base import Claim, Claimed, Settled
from headrace.worker.leases import Batch, Execution
from headrace.worker.outcomes import PARKED, undecodable
from headrace.worker.policies import Policies
from headrace.worker.repeats import Repeats
from headrace.worker.settlements import Settlements

log = logging.getLogger("headrace.worker")


class Intake:
    """Takes claims in; ``handlers`` by type are set before the first."""

    def __init__(self, policies: Policies, settlements: Settlements) -> None:
        self.handlers: Mapping[str, Handler] = {}
        self._policies = policies
        self._settlements = settlements
        self._unknown_types = Repeats()

    def take(self, batch: Batch, claim: Claim) -> list[Execution]:
        """Return the runs that can start, in order; every job is in ``batch.open`` then.

        A job of a type without a handler here is parked; one whose record cannot be read is dead.
        """
        queue, version, partition = batch.ref
        settings, policies, handlers, runs = self._policies.of(queue), self._policies, self.handlers, batch.open
        ready: list[Execution] = []
        for claimed in claim.jobs:
            key, record, changes = claimed
            settled = Settled(key, batch.token)
            try:
                job = decode_record(key[1:], record, changes, queue=queue, version=version, partition=partition)
            except Exception as error:
                self._reject(batch, claimed, settled, error)
                continue
            handler = handlers.get(job.type)
            if handler is None:
                execution = runs[key] = Execution(job, batch, settled, _NO_HANDLER, 0)
                self._unknown_type(execution)
                continue
            timeout_ms = job.timeout_ms or policies.timeout_ms(settings, job, handler)
            execution = runs[key] = Execution(job, batch, settled, handler, timeout_ms)
            if handler.process:
                execution.claimed = claimed
            ready.append(execution)
        return ready

    def _reject(self, batch: Batch, claimed: Claimed, settled: Settled, error: Exception) -> None:
        key = claimed.key
        try:
            job_id = decode_id(key[1:])
        except ValueError:
            job_id = key[1:].hex()
        job = Job(job_id, batch.ref.queue, "", None, 0, 0, batch.ref.version, batch.ref.partition)
        execution = batch.open[key] = Execution(job, batch, settled, _NO_HANDLER, 0)
        self._settlements.end(execution, undecodable(error))

    def _unknown_type(self, execution: Execution) -> None:
        job = execution.job
        if self._unknown_types.tells(job.type):
            log.warning(
                "queue %s: no handler here for type %r; its jobs wait for a worker that has one", job.queue, job.type
            )
        self._settlements.end(execution, PARKED)


def _not_called(ctx: Context, payload: Any) -> None:
    raise AssertionError("a job without a handler was started")


_NO_HANDLER = Handler("", _not_called, is_async=False)
