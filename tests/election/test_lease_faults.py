"""What an API server or the way to it may do that no healthy one can be made to do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import kubernetes.client
import pytest

from headrace.election.backends.lease import STUCK_CALLS, LeaseLock, from_time, to_time
from headrace.election.errors import Conflict, Forbidden, LockError, Unavailable
from headrace.election.record import SECOND, Record, next_seq
from tests.election.api import FakeApi, Handler, authorize

C = 5.0
SHORT = 0.4


def record(seq: int = 1_700_000_000_123_456) -> Record:
    return Record("a_1", 1, 15, seq, acquired=seq)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    made = FakeApi()
    yield made
    await asyncio.to_thread(made.close)


@pytest.fixture
async def lock(api: FakeApi) -> AsyncIterator[LeaseLock]:
    made = LeaseLock("leader", "default", configure=api.configuration)
    yield made
    await made.close()


async def failing(call: object) -> LockError:
    with pytest.raises(LockError) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_the_stand_in_behaves_like_the_real_one_where_both_can(api: FakeApi, lock: LeaseLock) -> None:
    assert await lock.read(C) is None
    version = await lock.create(record(), C)
    with pytest.raises(Conflict):
        await lock.create(record(), C)
    following = await lock.cas(version, record(1_700_000_000_223_456), C)
    with pytest.raises(Conflict):
        await lock.cas(version, record(1_700_000_000_323_456), C)
    assert await lock.read(C) == (following, record(1_700_000_000_223_456))


@pytest.mark.parametrize(
    ("code", "ambiguous"),
    [(429, False), (500, True), (502, True), (503, True), (504, True), (400, False), (422, False)],
)
async def test_refusals_without_a_verdict(api: FakeApi, lock: LeaseLock, code: int, ambiguous: bool) -> None:
    version = await lock.create(record(), C)

    def refuse(request: Handler) -> bool:
        request.status(code, "no", Retry_After="3")
        return True

    api.fault = refuse
    error = await failing(lock.cas(version, record(1_700_000_000_223_456), C))
    assert isinstance(error, Unavailable)
    assert (error.ambiguous, error.retry_after) == (ambiguous, 3.0)
    error = await failing(lock.read(C))
    assert isinstance(error, Unavailable)
    assert not error.ambiguous


@pytest.mark.parametrize("code", [401, 403])
async def test_LE8_forbidden(api: FakeApi, lock: LeaseLock, code: int) -> None:
    def refuse(request: Handler) -> bool:
        request.status(code, "no")
        return True

    api.fault = refuse
    assert isinstance(await failing(lock.read(C)), Forbidden)


@pytest.mark.parametrize("body", [b"<html>Welcome, please log in</html>", b"[]", b"{}", b""])
async def test_a_page_of_some_proxy_is_no_success(api: FakeApi, lock: LeaseLock, body: bytes) -> None:
    version = await lock.create(record(), C)

    def page(request: Handler) -> bool:
        request.answer(200, body, content="text/html")
        return True

    api.fault = page
    for call in (lock.read(C), lock.cas(version, record(1_700_000_000_223_456), C)):
        assert isinstance(await failing(call), Unavailable)


async def test_LE17_a_peer_that_is_silent_costs_one_attempt_and_no_more_than_the_limit(
    api: FakeApi, lock: LeaseLock
) -> None:
    version = await lock.create(record(), C)
    released = threading.Event()

    def hang(request: Handler) -> bool:
        released.wait(60)
        request.cut()
        return True

    api.fault = hang
    begun = time.monotonic()
    error = await failing(lock.cas(version, record(1_700_000_000_223_456), SHORT))
    assert isinstance(error, Unavailable)
    assert error.ambiguous
    assert time.monotonic() - begun < 30  # and not until the peer answers
    released.set()
    await asyncio.sleep(0)
    assert [method for method, _ in api.requests].count("PUT") == 1


async def test_LE18_a_write_that_is_applied_and_cut_is_in_doubt_and_not_a_conflict(
    api: FakeApi, lock: LeaseLock
) -> None:
    version = await lock.create(record(), C)

    def cut(request: Handler) -> bool:
        if request.command != "PUT":
            return False
        request.apply()
        request.cut()
        return True

    api.fault = cut
    error = await failing(lock.cas(version, record(1_700_000_000_223_456), C))
    assert isinstance(error, Unavailable)
    assert error.ambiguous
    found = await lock.read(C)
    assert found is not None
    assert found[1].seq == 1_700_000_000_223_456
    assert [method for method, _ in api.requests].count("PUT") == 1


async def test_LE24_an_answer_that_drips_ends_by_the_callers_limit_and_blocks_no_later_call(
    api: FakeApi, lock: LeaseLock
) -> None:
    version = await lock.create(record(), C)
    api.fault = lambda request: request.drip(6) or True  # type: ignore[func-returns-value]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SHORT):
            await lock.cas(version, record(1_700_000_000_223_456), SHORT)
    # Single-flight: the thread is still at it.
    error = await failing(lock.read(SHORT))
    assert isinstance(error, Unavailable)
    assert not error.ambiguous
    api.fault = None
    await until(lambda: True, after=2 * SHORT)
    assert await lock.read(C) is not None


async def test_LE24_threads_that_hang_are_limited(api: FakeApi, lock: LeaseLock) -> None:
    await lock.create(record(), C)
    api.fault = lambda request: request.drip(30) or True  # type: ignore[func-returns-value]
    count, deadline = 0, time.monotonic() + 60
    while count < STUCK_CALLS:
        assert time.monotonic() < deadline
        before = len(api.requests)
        try:
            async with asyncio.timeout(0.1):
                await lock.read(0.1)
        except (TimeoutError, Unavailable):
            count += len(api.requests) > before
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    before = len(api.requests)
    error = await failing(lock.read(0.1))
    assert isinstance(error, Unavailable)
    assert len(api.requests) == before


async def test_a_token_that_expired_is_read_anew_once(api: FakeApi, lock: LeaseLock) -> None:
    api.token = "one"
    version = await lock.create(record(), C)
    api.token = "two"
    assert await lock.read(C) == (version, record())
    other = LeaseLock("leader", "default", configure=lambda: _with_token(api, "stale"))
    error = await failing(other.read(C))
    assert isinstance(error, Forbidden)
    assert "stale" not in str(error)
    await other.close()


def _with_token(api: FakeApi, token: str) -> kubernetes.client.Configuration:
    made = api.configuration()
    authorize(made, token)
    return made


async def test_nobody_listens(api: FakeApi) -> None:
    configuration = api.configuration()
    configuration.host = "http://127.0.0.1:9"
    lock = LeaseLock("leader", "default", configure=lambda: configuration)
    error = await failing(lock.create(record(), C))
    assert isinstance(error, Unavailable)
    assert not error.ambiguous
    await lock.close()


async def test_without_access_to_any_api_it_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    lock = LeaseLock("leader", "default")
    error = await failing(lock.read(C))
    assert isinstance(error, Forbidden)
    assert "run in a Pod or set KUBECONFIG" in str(error)


async def test_LE25_a_time_that_cannot_be_read_is_no_time(api: FakeApi, lock: LeaseLock) -> None:
    await lock.create(record(), C)
    for text in ("yesterday", "", None, 5, "2023-13-45T99:00:00.000000Z"):
        api.leases["leader"]["spec"]["renewTime"] = text
        found = await lock.read(C)
        assert found is not None
        assert found[1].seq is None
        assert found[1].holder == "a_1"


def test_LE19_times_have_six_digits_and_a_renewal_never_falls_on_a_full_second() -> None:
    for seq in (1, 1_700_000_000_000_000, 1_700_000_000_000_001, 1_700_000_000_999_999):
        text = to_time(seq)
        assert len(text.partition(".")[2]) == 7
        assert from_time(text) == seq
    assert next_seq(5 * SECOND, 0) == 5 * SECOND + 1
    assert next_seq(3, 5 * SECOND - 1) == 5 * SECOND + 1
    assert next_seq(7, 3) == 7
    # Others write fewer digits, or more.
    assert from_time("2023-11-14T22:13:20Z") == 1_700_000_000_000_000
    assert from_time("2023-11-14T22:13:20.123456789Z") == 1_700_000_000_123_456


async def until(condition: Callable[[], bool], *, after: float = 0.0, within: float = 60.0) -> None:
    """Wait for at least ``after`` seconds, and then for the condition."""
    begun = time.monotonic()
    while time.monotonic() - begun < after or not condition():
        assert time.monotonic() - begun < within
        await asyncio.sleep(0.02)
