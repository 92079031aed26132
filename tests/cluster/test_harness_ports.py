"""Ports of servers: no two processes of tests get the same one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import ports

ROOT = Path(__file__).resolve().parents[2]


def test_a_port_is_given_to_no_other_process_as_long_as_this_one_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = ports.free_ports(1)
    asked = f"from tests.cluster import ports; ports._RANGE = range({port}, {port + 1}); print(ports.free_ports(1))"
    command = [sys.executable, "-c", asked]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert f"OSError: only 0 of 1 ports in {port}-{port} are free" in refused.stderr
    # Here it may be had again, when there is no other.
    monkeypatch.setattr(ports, "_RANGE", range(port, port + 1))
    assert ports.free_ports(1) == [port]
