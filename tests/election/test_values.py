"""Timings, identities and the thread: what is refused, what is unique, what ends."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from typing import Any

import pytest

from headrace.election.backends.memory import MemoryLock
from headrace.election.elector import Elector
from headrace.election.memory_fence import FenceState, Listeners, MemoryFence
from headrace.election.record import RankedLock, holder_of, identity_of, make_identity
from headrace.election.states import Reason
from headrace.election.tenure import Term
from headrace.election.thread import ElectorThread
from headrace.election.timings import FAST, STANDARD, Timings
from headrace.errors import InvalidInput


@pytest.mark.parametrize("profile", [STANDARD, FAST], ids=["standard", "fast"])
def test_the_profiles_keep_their_own_rules(profile: Timings) -> None:
    assert dataclasses.replace(profile) == profile
    assert profile.lease_duration / profile.renew_deadline >= 1.5


def test_the_bound_of_the_standard_profile() -> None:
    assert STANDARD.bound == pytest.approx(15 + 2.4 + 7.5)


@pytest.mark.parametrize(
    ("change", "field", "numbers"),
    [
        ({"lease_duration": 14}, "lease_duration", ("14", "15", "10")),
        ({"lease_duration": 15.5}, "lease_duration", ("15.5",)),
        ({"lease_duration": 0}, "lease_duration", ("0",)),
        ({"renew_deadline": 7.9}, "renew_deadline", ("7.9", "8", "2.5", "0.5")),
        ({"fence_ttl": 10.0}, "fence_ttl", ("10",)),
        ({"fence_ttl": 31.0}, "fence_ttl", ("31", "30", "15")),
        ({"fallback_after": 5.9}, "fallback_after", ("5.9", "6")),
        ({"fallback_after": 7.6}, "fallback_after", ("7.6", "7.5")),
        ({"failback_after": 29.0}, "failback_after", ("29", "30")),
        ({"failback_after_others": 20.0}, "failback_after_others", ("20", "30")),
        ({"call_timeout": float("nan")}, "call_timeout", ("nan",)),
        ({"retry_period": -1.0}, "retry_period", ("-1",)),
        ({"probe_period": float("inf")}, "probe_period", ("inf",)),
    ],
)
def test_a_broken_inequality_is_refused_with_the_numbers(
    change: dict[str, Any], field: str, numbers: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        dataclasses.replace(STANDARD, **change)
    assert caught.value.field == field
    for number in numbers:
        assert number in str(caught.value)


def test_L16_LE22_processes_with_one_name_have_different_identities() -> None:
    environ = {"POD_NAME": "worker-1", "POD_UID": "6f1c9a52-77aa-4e0b-8a55-3f2d6c1b9e11"}
    made = {make_identity(environ) for _ in range(50)}
    assert len(made) == 50
    assert all(each.startswith("worker-1_6f1c9a52-") for each in made)
    assert make_identity({}) != make_identity({})


def test_LE23_a_holder_belongs_to_the_identity_that_it_was_made_of_and_to_no_prefix_of_it() -> None:
    holder = holder_of("worker-10_aa-bb", "nonce")
    assert identity_of(holder) == "worker-10_aa-bb"
    assert identity_of(holder) != "worker-1"
    assert identity_of("") == ""


class Hooks:
    """Remembers where its hooks ran."""

    def __init__(self) -> None:
        self.threads: list[tuple[str, int]] = []
        self.leading = threading.Event()

    async def on_started(self, term: Term) -> None:
        self.threads.append(("started", threading.get_ident()))
        self.leading.set()
        await asyncio.Event().wait()

    async def on_stopped(self, term: Term, reason: Reason) -> None:
        self.threads.append((f"stopped {reason}", threading.get_ident()))

    def on_new_leader(self, identity: str) -> None:
        self.threads.append(("leader", threading.get_ident()))


def thread(hooks: Hooks, lock: MemoryLock, state: FenceState) -> ElectorThread:
    application = asyncio.get_running_loop()
    place = RankedLock("memory", 1, lock)
    fence = MemoryFence(state, Listeners())
    return ElectorThread(lambda: Elector([place], fence, hooks, FAST, application=application))


async def test_the_hooks_run_on_the_applications_loop_and_the_elector_elsewhere() -> None:
    hooks = Hooks()
    elector = thread(hooks, MemoryLock(), FenceState(lambda: time.monotonic_ns() // 1_000_000))
    elector.start()
    async with asyncio.timeout(60):
        while not hooks.leading.is_set():
            await asyncio.sleep(0.01)
    assert elector.is_leader()
    assert await elector.stop()
    assert {where for _, where in hooks.threads} == {threading.get_ident()}
    assert [what for what, _ in hooks.threads if what != "leader"] == ["started", "stopped terminated"]
    assert not elector.is_leader()
    assert elector.healthy()


async def test_L5_a_blocked_application_loop_does_not_stop_renewals() -> None:
    hooks, lock = Hooks(), MemoryLock()
    elector = thread(hooks, lock, FenceState(lambda: time.monotonic_ns() // 1_000_000))
    elector.start()
    async with asyncio.timeout(60):
        while not hooks.leading.is_set():
            await asyncio.sleep(0.01)
    version = lock.version
    deadline = time.monotonic() + 60
    while lock.version < version + 2:  # blocks the loop on purpose
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert elector.is_leader()
    assert await elector.stop()


async def test_LE38_a_stopped_elector_can_be_started_again() -> None:
    hooks, lock = Hooks(), MemoryLock()
    elector = thread(hooks, lock, FenceState(lambda: time.monotonic_ns() // 1_000_000))
    for _ in range(3):
        hooks.leading.clear()
        elector.start()
        with pytest.raises(RuntimeError, match="runs already"):
            elector.start()
        async with asyncio.timeout(60):
            while not hooks.leading.is_set():
                await asyncio.sleep(0.01)
        assert await elector.stop()
        assert lock.record is not None
        assert lock.record.holder == ""
    assert [what for what, _ in hooks.threads if what != "leader"] == ["started", "stopped terminated"] * 3


async def test_LE20_a_thread_that_is_stopped_at_once_calls_no_hook() -> None:
    hooks, lock = Hooks(), MemoryLock()
    elector = thread(hooks, lock, FenceState(lambda: 0))
    elector.start()
    elector.resign()
    assert await elector.stop()
    started = [what for what, _ in hooks.threads if what == "started"]
    stopped = [what for what, _ in hooks.threads if what.startswith("stopped")]
    assert len(started) == len(stopped)
