"""A Redis whose settings endanger jobs is told, and refused where the spec is strict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from headrace.errors import AccessDenied
from headrace.server_facts import ServerFacts
from headrace.stores.base import Store
from headrace_operator.kubernetes.client import Kube
from headrace_operator.observed import Observed
from headrace_operator.planning import plan
from headrace_operator.reasons import Reason
from headrace_operator.redis.connection import SAFE_SECONDS, UNSAFE_SECONDS, Connected, Connections
from headrace_operator.status import build_status
from tests.unit.operator.api_in_memory import ApiInMemory
from tests.unit.operator.scene import backend, known, observed, queue, queue_version, topology
from tests.unit.test_server_facts import FINE

EVICTS = "one: keys of queues may be evicted; set maxmemory-policy noeviction"
LOSES = "one: it saves nothing; set appendonly yes"


def seen(unsafe: tuple[str, ...] | None, *, strict: bool = False, version: int = 1) -> Observed:
    where = {"url": "redis://one:6379/0", "strict": strict}
    there = topology({1: (4, "active")})
    given = queue(version=version, connection=where, status=known())
    return observed(given, backend(there, unsafe=unsafe), queue_version(1))


def condition(case: Observed, kind: str = "UnsafeRedis") -> tuple[str, str, str]:
    status = build_status(case, plan(case))
    found = status.condition(kind)
    assert found is not None
    return found.status, found.reason, found.message


def test_QD7_what_endangers_jobs_is_a_condition_and_nothing_is_refused() -> None:
    case = seen((EVICTS, LOSES), version=2)
    assert condition(case) == ("True", "UnsafeRedis", f"{EVICTS}. {LOSES}")
    assert condition(case, "ConnectionReady")[0] == "True"
    assert plan(case).steps
    assert condition(seen(()))[:2] == ("False", "Safe")
    assert condition(seen(None))[:2] == ("Unknown", "ConnectionNotReady")


def test_QD7_a_strict_queue_is_not_touched_until_it_is_put_right() -> None:
    case = seen((EVICTS,), strict=True, version=2)
    decided = plan(case)
    assert not decided.steps
    assert decided.stalled is not None
    assert decided.stalled.reason is Reason.UNSAFE_REDIS
    assert condition(case)[0] == "True"
    refused = f"{EVICTS}. spec.connection.strict refuses it"
    assert condition(case, "ConnectionReady") == ("False", "UnsafeRedis", refused)
    assert condition(case, "Stalled") == ("True", "UnsafeRedis", refused)
    assert plan(seen((), strict=True, version=2)).steps
    assert plan(seen(None, strict=True, version=2)).steps  # a server that does not tell is not refused


class Asked:
    """A store that tells its facts, or does not, and counts how often it was asked."""

    def __init__(self) -> None:
        self.facts_now: ServerFacts | Exception = FINE
        self.asked = 0

    async def check(self) -> None: ...

    async def close(self) -> None: ...

    async def facts(self) -> list[ServerFacts]:
        self.asked += 1
        if isinstance(self.facts_now, Exception):
            raise self.facts_now
        return [self.facts_now]


async def test_QD7_servers_are_asked_now_and_then_and_sooner_while_something_is_wrong() -> None:
    now, store = 1000.0, Asked()
    opened: Any = lambda _: store  # noqa: E731
    connections = Connections(cast(Kube, ApiInMemory()), clock=lambda: now, open_url=opened)
    spec = queue(connection={"url": "redis://one:6379/0"}).spec
    assert spec is not None
    connected = await connections.connect("ns", "u1", spec)
    assert isinstance(connected, Connected)

    async def found() -> tuple[str, ...] | None:
        return await connections.unsafe(connected.store)

    assert await found() == await found() == ()
    store.facts_now = replace(FINE, policy="allkeys-lru")
    assert await found() == ()
    now += SAFE_SECONDS
    (told,) = await found() or ()
    assert "allkeys-lru" in told
    store.facts_now = FINE
    assert await found() == (told,)
    now += UNSAFE_SECONDS
    assert await found() == ()
    assert store.asked == 3
    now += SAFE_SECONDS
    store.facts_now = AccessDenied("may not ask")
    assert await found() is None
    assert await connections.unsafe(cast(Store, Asked())) is None
