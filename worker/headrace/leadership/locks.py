"""The locks and the fence that a worker campaigns with for one queue, opened in the elector's own event loop."""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from headrace.election.backends.memory import MemoryLock
from headrace.election.backends.redis import RedisLock
from headrace.election.fence import Fence
from headrace.election.memory_fence import FenceState, Listeners, MemoryFence
from headrace.election.record import RankedLock
from headrace.election.redis_fence import RedisFence
from headrace.election.timings import Timings
from headrace.errors import InvalidInput
from headrace.leadership.following import FollowingClient
from headrace.leadership.settings import Backend, LeaderSettings
from headrace.stores.base import Store
from headrace.stores.memory.beside import BesideQueue as BesideMemory
from headrace.stores.redis.beside import BesideQueue as BesideRedis

log = logging.getLogger("headrace.leadership")

Beside = BesideRedis | BesideMemory
Place = Callable[[], Beside]
"""Says where the fence of a queue lies now; always in the same kind of store, under the same tag."""
RANKS: Mapping[str, int] = {"lease": 3, "mongo": 2, "redis": 1, "memory": 1}
_LABEL = "app.kubernetes.io/"


def beside(store: Store, queue: str) -> Place | None:
    """Return what says where the queue's fence lies; None: this store has no such place, so nobody leads its queues."""
    find = getattr(store, "beside", None)
    if find is None or not isinstance(find(queue), Beside):
        return None
    return lambda: cast(Beside, find(queue))


def chain(settings: LeaderSettings, place: Beside) -> tuple[Backend, ...]:
    """Return the backends to campaign with, highest first; empty: none. One that is not installed is left out."""
    backends = settings.leader_backends or (_own(place),)
    return () if backends == ("none",) else tuple(each for each in backends if each not in _missing(backends))


def check(settings: LeaderSettings, place: Beside) -> None:
    """Raise InvalidInput if the settings name a lock of another store, or none that can be used in this process.

    A lock whose package is not installed is told as an error, once for each call, while there is another one.
    """
    backends, own = settings.leader_backends or (_own(place),), _own(place)
    other: Backend = "memory" if own == "redis" else "redis"
    if other in backends:
        raise InvalidInput("leader_backends", f"names {other}, but the store is {own}", f"name {own} instead")
    missing = _missing(backends)
    for backend in missing:
        package, extra = _NEEDS[backend]
        problem, remedy = f"names {backend}, which needs {package}", f"install headrace[{extra}]"
        if len(missing) == len(backends):
            raise InvalidInput("leader_backends", problem, remedy)
        log.error("leader_backends %s; %s: it is left out until then", problem, remedy)
    if "mongo" in chain(settings, place):
        from headrace.election.backends.mongo import check_url

        check_url(settings.mongo_url())


def _missing(backends: tuple[Backend, ...]) -> list[Backend]:
    """Return the backends whose package is not installed.

    It is looked for and not imported: that takes long enough to hold up the worker's loop, and is left to the thread of
    the election.
    """
    return [each for each in backends if each in _NEEDS and importlib.util.find_spec(_NEEDS[each][0]) is None]


def _own(place: Beside) -> Backend:
    return "redis" if isinstance(place, BesideRedis) else "memory"


_NEEDS: Mapping[Backend, tuple[str, str]] = {"lease": ("kubernetes", "kubernetes"), "mongo": ("pymongo", "mongo")}
"""Package and extra of the backends that need one."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Locks, highest first, and the fence; they belong to the event loop that they are used in first."""

    locks: tuple[RankedLock, ...]
    fence: Fence


def open_locks(settings: LeaderSettings, place: Place, queue: str, timings: Timings) -> Opened:
    """Open what `chain` names for one queue, after `check`. No connection is made yet.

    ``place`` is asked again and again: where the queue is may change.
    """
    here = place()
    makers: dict[Backend, Callable[[], Any]] = {
        "lease": lambda: _lease(settings, here, queue),
        "mongo": lambda: _mongo(settings, here, timings),
        "redis": lambda: RedisLock(_client(place, timings.call_timeout), here.tag, cast(BesideRedis, here).topology),
        "memory": lambda: _shared(here)[0],
    }
    locks = tuple(
        # The API server is asked for long before it is trusted again; the others come back when they answer.
        RankedLock(backend, RANKS[backend], makers[backend](), hold_down=backend == "lease")
        for backend in chain(settings, here)
    )
    return Opened(locks, open_fence(place, timings.call_timeout))


def open_fence(place: Place, call_timeout: float) -> Fence:
    """Open the fence of a queue."""
    here = place()
    if isinstance(here, BesideRedis):
        return RedisFence(_client(place, call_timeout), here.tag, here.topology)
    return shown_fence(here)


def shown_fence(here: Beside) -> Fence:
    """Return the fence of a queue to be read, over the connections of its store; not to be closed."""
    if isinstance(here, BesideRedis):
        return RedisFence(here.client, here.tag)
    _, state, listeners = _shared(here)
    return MemoryFence(state, listeners)


def _client(place: Place, call_timeout: float) -> FollowingClient:
    return FollowingClient(cast(Callable[[], BesideRedis], place), call_timeout)


def _shared(place: Beside) -> tuple[MemoryLock, FenceState, Listeners]:
    """Return what all workers in this process share; a fence of its own clock, whatever clock its store has."""
    return cast(BesideMemory, place).shared(
        lambda: (MemoryLock(place.tag), FenceState(lambda: time.monotonic_ns() // 1_000_000), Listeners())
    )


def _lease(settings: LeaderSettings, place: Beside, queue: str) -> Any:
    from headrace.election.backends.lease import LeaseLock

    labels = {
        f"{_LABEL}name": "headrace-worker",
        f"{_LABEL}component": "leader-election",
        f"{_LABEL}part-of": "headrace",
    }
    server = place.server if isinstance(place, BesideRedis) else ""
    name = settings.lease_name(queue, place.tag, server)
    return LeaseLock(
        name, settings.leader_lease_namespace, labels=labels, annotations={"headrace.dev/queue-name": queue}
    )


def _mongo(settings: LeaderSettings, place: Beside, timings: Timings) -> Any:
    from headrace.election.backends.mongo import MongoLock

    return MongoLock(settings.mongo_url(), place.tag, call_timeout=timings.call_timeout)
