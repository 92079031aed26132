"""As long as it is measured, a whole process group stays in memory and comes before other processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.priority import before_others, may_come_first, turns_of_others
from bench.resident import idle_page_us, resident
from bench.rig import Rig
from bench.undisturbed import disturbances, undisturbed

SIZE_KB = 16 << 10
HOLD = f"memory = b'x' * ({SIZE_KB} << 10); print('held', flush=True); input()"
PARENT = f"""
import subprocess, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
while True:
    subprocess.run([sys.executable, "-c", {HOLD!r}])
"""


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[str]]:
    """A process of two threads that leads a group, and starts another one that holds memory, at each line a new one."""
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            held(process)
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def held(leader: subprocess.Popen[str]) -> None:
    assert leader.stdout is not None
    assert leader.stdout.readline() == "held\n"


def child_of(leader: subprocess.Popen[str]) -> int:
    (child,) = Path(f"/proc/{leader.pid}/task/{leader.pid}/children").read_text().split()
    return int(child)


# ---- memory ----------------------------------------------------------------------------------------------------------


def referenced_kb(process: int) -> int:
    """Return how much of its memory was touched since that was cleared."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Referenced:"))


def test_all_memory_of_a_process_group_is_touched_as_long_as_it_is_kept(leader: subprocess.Popen[str]) -> None:
    holder = child_of(leader)
    clear = Path(f"/proc/{holder}/clear_refs")
    clear.write_text("1")
    assert referenced_kb(holder) < SIZE_KB
    with resident(leader.pid):
        for _ in range(2):
            clear.write_text("1")
            deadline = time.monotonic() + 60
            while referenced_kb(holder) < SIZE_KB:
                assert time.monotonic() < deadline
                time.sleep(0.05)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER  # the reader alone waits for idle processors


def test_a_process_that_has_ended_is_passed_over(leader: subprocess.Popen[str]) -> None:
    holder = child_of(leader)
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    Path(f"/proc/{holder}/clear_refs").write_text("1")
    with resident(gone.pid, leader.pid):
        deadline = time.monotonic() + 60
        while referenced_kb(holder) < SIZE_KB:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_the_time_to_touch_a_page_is_told() -> None:
    assert 0 < idle_page_us(0.0) < 10**6


# ---- processors ------------------------------------------------------------------------------------------------------


def policies(*processes: int) -> set[int]:
    """How the threads of these processes are scheduled."""
    threads = (thread for process in processes for thread in Path(f"/proc/{process}/task").iterdir())
    return {os.sched_getscheduler(int(thread.name)) for thread in threads}


@pytest.fixture
def first_policy() -> int:
    """How this process may have others scheduled; without the right nothing changes."""
    return os.SCHED_RR if may_come_first() else os.SCHED_OTHER


def test_a_process_group_comes_first_as_long_as_it_is_measured(
    leader: subprocess.Popen[str], first_policy: int
) -> None:
    assert leader.stdin is not None
    rig = cast(Rig, SimpleNamespace(server=SimpleNamespace(process=leader.pid), options={}))
    with contextlib.suppress(KeyError), undisturbed(rig):
        assert policies(leader.pid, child_of(leader), os.getpid()) - {os.SCHED_IDLE} == {first_policy}
        leader.stdin.write("\n")  # the child ends, and another one begins
        leader.stdin.flush()
        held(leader)
        assert policies(leader.pid, child_of(leader)) == {first_policy}
        raise KeyError("a measurement that fails")
    assert policies(leader.pid, child_of(leader), os.getpid()) == {os.SCHED_OTHER}


def test_what_was_scheduled_in_another_way_is_so_again(leader: subprocess.Popen[str]) -> None:
    os.sched_setscheduler(child_of(leader), os.SCHED_BATCH, os.sched_param(0))
    with contextlib.suppress(PermissionError), before_others(leader.pid):
        assert policies(leader.pid, child_of(leader)) == {os.SCHED_RR}
    assert policies(leader.pid) == {os.SCHED_OTHER}
    assert policies(child_of(leader)) == {os.SCHED_BATCH}


def test_an_option_leaves_others_their_turns(leader: subprocess.Popen[str]) -> None:
    options = {"priority": "no", "resident": "no"}
    rig = cast(Rig, SimpleNamespace(server=SimpleNamespace(process=leader.pid), options=options))
    with undisturbed(rig):
        assert policies(leader.pid, child_of(leader), os.getpid()) == {os.SCHED_OTHER}
    turns, touch = disturbances(rig)
    assert turns.endswith("what was measured waited for them like others.")
    assert touch.endswith("what was measured was left to the host.")


def test_turns_of_others_are_told() -> None:
    busy: list[subprocess.Popen[Any]] = []
    for processor in os.sched_getaffinity(0):
        loop = f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
        busy.append(subprocess.Popen([sys.executable, "-c", loop]))
    try:
        turns = turns_of_others(1.0)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert 0.1 < turns.share < 1
    assert 0.1 < turns.longest < 1000
