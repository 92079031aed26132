"""Pod addresses: loopback addresses 127.1.x.y, one /24 per node, so that many Pods can listen on the same port."""

from __future__ import annotations

import fcntl
import random
from pathlib import Path


class PodNetwork:
    """One block 127.1.x.0/24 that no other node on this machine uses, held by a file lock until ``close()``.

    Raises OSError if all 256 blocks are taken, or no address is left in this one.
    """

    def __init__(self, locks: Path) -> None:
        locks.mkdir(parents=True, exist_ok=True)
        # At random: a block that was just given up may still have connections in TIME_WAIT.
        for block in random.sample(range(256), 256):
            handle = (locks / f"127.1.{block}").open("w")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.close()
                continue
            self._lock = handle
            self._block = block
            self._free = list(range(254, 0, -1))
            return
        raise OSError(f"every Pod network 127.1.0.0 to 127.1.255.0 is in use; locks are in {locks}")

    @property
    def cidr(self) -> str:
        return f"127.1.{self._block}.0/24"

    def allocate(self) -> str:
        """A free address. Addresses given back are used again last."""
        if not self._free:
            raise OSError(f"no free Pod address in {self.cidr}: delete some of its 254 Pods")
        return f"127.1.{self._block}.{self._free.pop()}"

    def release(self, address: str) -> None:
        """Give an address back."""
        self._free.insert(0, int(address.rsplit(".", 1)[1]))

    def close(self) -> None:
        """Let others use the block."""
        self._lock.close()
