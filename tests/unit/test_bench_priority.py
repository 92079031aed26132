"""What is measured comes before other processes, with all its threads and children, for as long as it is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.priority import first, may_come_first, turns_of_others

CHILD = "print('here', flush=True); input()"
PARENT = f"""
import subprocess, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
subprocess.run([sys.executable, "-c", {CHILD!r}])
subprocess.run([sys.executable, "-c", {CHILD!r}])
"""


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[str]]:
    """A process that leads a group, has two threads, and has started another one."""
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield process
        process.kill()


def policies(process: int) -> set[int]:
    """How the threads of a process and of its children are scheduled."""
    found = {os.sched_getscheduler(int(thread.name)) for thread in Path(f"/proc/{process}/task").iterdir()}
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        found |= policies(int(child))
    return found


def test_a_process_group_comes_first_as_long_as_it_is_measured(leader: subprocess.Popen[str]) -> None:
    assert leader.stdin is not None
    assert leader.stdout is not None
    if not may_come_first():
        with pytest.raises(PermissionError), first(leader.pid):
            raise AssertionError("nothing is measured then")
        return
    with first(leader.pid):
        assert policies(leader.pid) == {os.SCHED_RR}
        leader.stdin.write("\n")  # the child ends, and another one begins
        leader.stdin.flush()
        assert leader.stdout.readline() == "here\n"
        assert policies(leader.pid) == {os.SCHED_RR}
    assert policies(leader.pid) == {os.SCHED_OTHER}
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_turns_of_others_are_told() -> None:
    turns = turns_of_others(0.2)
    assert 0 <= turns.share < 1
    assert 0 <= turns.longest < 10**6
