"""Free ports on loopback that stay free while their server is stopped."""

from __future__ import annotations

import random
import socket

# Below the ephemeral ranges of Linux (32768) and macOS (49152): no outgoing connection takes the port of a server
# that a test has stopped and will start again.
_RANGE = range(20000, 32000)


def free_ports(count: int) -> list[int]:
    """``count`` different TCP ports nobody listens on. Raises OSError if there are too few."""
    found: list[int] = []
    for port in random.sample(_RANGE, len(_RANGE)):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"only {len(found)} of {count} ports in {_RANGE.start}-{_RANGE.stop - 1} are free")
