"""Leases on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgpack

from headrace.errors import StoreUnavailable
from headrace.redis.client import Argument
from headrace.stores.bounds import MAX_FUSED, MAX_SETTLE, check_acks, check_batch, check_limit, number_within
from headrace.stores.protocols.finished import Success
from headrace.stores.protocols.moving import Fence
from headrace.stores.protocols.working import Claim, Claimed, Failure, Lost, Release, Report, Settled, token_of
from headrace.stores.redis.access import RedisAccess, pack
from headrace.stores.redis.finished import pack_successes
from headrace.stores.redis.hints import Outlook
from headrace.stores.redis.parts import Part, from_the_first, from_the_last, one_part
from headrace.topology import PartitionRef, labelled

LEASES_IN_PAGE = 500


class RedisWorking(RedisAccess):
    """Implements `headrace.stores.protocols.working.WorkingSteps`."""

    async def claim(
        self,
        ref: PartitionRef,
        worker: str,
        seq: int,
        limit: int,
        lease_ms: int,
        acks: Sequence[Settled] = (),
        *,
        suspects: int = 1,
        alone: bool = False,
        successes: Sequence[Success] = (),
        fence: Fence | None = None,
    ) -> Claim:
        """Acknowledge, recover, promote what is due, and lease up to ``limit`` ready jobs."""
        check_limit(limit)
        check_acks(acks, successes, MAX_FUSED)
        packed = pack([part for ack in acks for part in ack]) if acks else b""
        told = pack_successes(acks, successes)
        leader: tuple[Argument, ...] = fence or ("", "", "")
        seen = await self._hints.before_claim(ref) if self._hints is not None else b""
        reply = await self._run(
            "claim", ref, ref.label, worker, seq, limit, lease_ms, packed, suspects, int(alone), told, *leader
        )
        token = token_of(worker, seq)
        if reply[0] == b"gone":
            if self._hints is not None:
                with suppress(StoreUnavailable):
                    await self._hints.forget(ref)
            return Claim(token, refused=list(range(len(acks))), gone=True)
        _, now, refused, jobs, following, alarm_ms, more, due, room, fenced, fencing_token, lost = reply
        if self._hints is not None:
            with suppress(StoreUnavailable):
                following, alarm_ms = await self._hints.after_claim(ref, worker, Outlook(more, due), seen)
        hint = labelled(ref.queue, following) if following and following != b"@" else None
        alarm = None if alarm_ms < 0 else alarm_ms
        return Claim(
            token,
            _claimed(jobs),
            refused,
            now=now,
            next_hint=hint,
            alarm_ms=alarm,
            make_room=bool(room),
            fenced=bool(fenced),
            fencing_token=fencing_token,
            lost=[Lost(key, token, at, dead=bool(dead)) for key, token, at, dead in lost],
        )

    async def resume(self, ref: PartitionRef, worker: str, seq: int, lease_ms: int) -> Claim:
        """Return again the batch of an earlier claim whose reply was lost, its leases renewed."""
        found = Claim(token_of(worker, seq))
        jobs: dict[bytes, Claimed] = {}  # a page may tell of one again
        cursor: Argument = 0
        while True:
            with one_part(begun=cursor != 0):
                reply = await self._run("resume", ref, worker, seq, lease_ms, cursor, LEASES_IN_PAGE)
            if reply[0] == b"gone":
                return Claim(found.token, gone=True)
            _, found.now, packed, fencing_token, cursor = reply
            jobs |= {job.key: job for job in _claimed(packed)}
            found.fencing_token = max(found.fencing_token, fencing_token)
            if cursor == b"0":
                found.jobs = list(jobs.values())
                return found

    async def ack(self, ref: PartitionRef, acks: Sequence[Settled], successes: Sequence[Success] = ()) -> list[int]:
        """Remove finished jobs. Returns the indexes that were not leased under their token."""
        check_acks(acks, successes)
        packed, told = pack([part for ack in acks for part in ack]), pack_successes(acks, successes)
        worker = acks[0].token.rpartition(b":")[0] if acks else b""
        refused, ready = await self._run("ack", ref, ref.label, packed, told, worker)
        await self._hint(ref, ready=ready)
        return list(refused)

    async def fail(self, ref: PartitionRef, failures: Sequence[Failure]) -> list[int]:
        """Record failed runs. Returns refused indexes."""
        check_batch(failures, MAX_SETTLE)

        async def send(part: Sequence[Failure]) -> Part:
            flat: list[Any] = []
            for failure in part[: number_within([len(failure.error) for failure in part])]:
                delay = -1 if failure.delay_ms is None else failure.delay_ms
                flat += (failure.key, failure.token, delay, failure.status, failure.error)
            refused, due, ready, done = await self._run("fail", ref, ref.label, pack(flat))
            await self._hint(ref, ready=ready, due=due)
            return Part(refused, done)

        return await from_the_first(failures, send)

    async def release(self, ref: PartitionRef, releases: Sequence[Release]) -> list[int]:
        """Hand jobs back without costing an attempt. Returns refused indexes."""
        check_batch(releases, MAX_SETTLE)

        async def send(part: Sequence[Release]) -> Part:
            packed = pack([field for release in part for field in release])
            refused, ready, due, left = await self._run("release", ref, ref.label, packed)
            await self._hint(ref, ready=ready, due=due)
            return Part(refused, len(part) - left)

        return await from_the_last(releases, send)

    async def renew(
        self, ref: PartitionRef, leases: Sequence[Settled], lease_ms: int, reports: Sequence[Report] = ()
    ) -> list[int]:
        """Extend leases to now + ``lease_ms``, and keep what their runs report. Returns refused indexes."""
        check_batch(leases)
        check_batch(reports, MAX_SETTLE)
        packed = pack([part for lease in leases for part in lease])
        reported = pack([part for report in reports for part in report]) if reports else b""
        refused, kept = await self._run("renew", ref, lease_ms, packed, reported)
        if kept < len(reports):
            rest = [(leases[report.element], report) for report in reports[kept:]]
            again = [report._replace(element=n) for n, (_, report) in enumerate(rest)]
            with one_part(begun=True):
                await self.renew(ref, [lease for lease, _ in rest], lease_ms, again)
        return list(refused)

    async def recover(self, ref: PartitionRef) -> int:
        """Return jobs with expired leases to ready; the number of them."""
        recovered = int(await self._run("recover", ref, ref.label))
        await self._hint(ref, ready=int(recovered > 0))
        return recovered

    async def promote_due(self, ref: PartitionRef) -> int:
        """Move due jobs to ready; the number of them."""
        promoted = int(await self._run("promote_due", ref, ref.label))
        await self._hint(ref, ready=int(promoted > 0))
        return promoted


def _claimed(packed: bytes) -> list[Claimed]:
    if not packed:
        return []
    flat = iter(msgpack.unpackb(packed, raw=True, strict_map_key=False))
    return list(map(Claimed, flat, flat, flat))
