"""What keeps memory in the machine reads all of it, of a whole process group, again and again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.resident import idle_page_us, resident

SIZE_KB = 16 << 10
HOLD = f"memory = b'x' * ({SIZE_KB} << 10); print('held', flush=True); input()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD!r}])"


@pytest.fixture
def child_of_child() -> Iterator[tuple[int, int]]:
    """A process that leads a group, and one that it has started, which holds memory and does nothing."""
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "held\n"
        (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        yield parent.pid, int(child)
        parent.communicate("\n", timeout=60)


def referenced_kb(process: int) -> int:
    """Return how much of its memory was touched since that was cleared."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Referenced:"))


def test_all_memory_of_a_process_group_is_touched_as_long_as_it_is_kept(child_of_child: tuple[int, int]) -> None:
    leader, held = child_of_child
    clear = Path(f"/proc/{held}/clear_refs")
    clear.write_text("1")
    assert referenced_kb(held) < SIZE_KB
    with resident(leader):
        for _ in range(2):
            clear.write_text("1")
            deadline = time.monotonic() + 60
            while referenced_kb(held) < SIZE_KB:
                assert time.monotonic() < deadline
                time.sleep(0.05)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER  # the reader alone waits for idle processors


def test_a_process_that_has_ended_is_passed_over(child_of_child: tuple[int, int]) -> None:
    leader, held = child_of_child
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    Path(f"/proc/{held}/clear_refs").write_text("1")
    with resident(gone.pid, leader):
        deadline = time.monotonic() + 60
        while referenced_kb(held) < SIZE_KB:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_the_time_to_touch_a_page_is_told() -> None:
    assert 0 < idle_page_us(0.0) < 10**6
