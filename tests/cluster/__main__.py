"""``python -m tests.cluster up``: a local cluster in the foreground, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from types import FrameType

from tests.cluster.binaries import BinaryError
from tests.cluster.cluster import LocalCluster
from tests.cluster.control_plane import ControlPlaneError


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster, print how to use it, stop it on Ctrl-C or SIGTERM")
    up.add_argument("--nodes", type=int, default=1, help="number of process nodes (default: 1)")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    begun = time.monotonic()
    try:
        with LocalCluster(nodes=[f"node-{number + 1}" for number in range(chosen.nodes)]) as cluster:
            environment = cluster.environment()
            print(f"# up after {time.monotonic() - begun:.1f} s; logs in {cluster.control_plane.logs}; Ctrl-C ends it")
            print(f"export KUBECONFIG={environment['KUBECONFIG']}")
            print(f"export PATH='{environment['PATH']}'", flush=True)
            signal.pause()
    except (BinaryError, ControlPlaneError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
