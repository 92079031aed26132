"""The one real Redis of a run, and what it tells: CPU of its main thread, memory, commands."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, cast

import redis

from bench.ours.queue import QUEUE
from headrace.stores.redis.keys import Keys
from headrace.topology import Topology
from tests.services.redis import Flavour, RedisServer, flavours

KEYS = Keys("headrace")
SECONDS_OF_A_CALL = 120.0


class BenchServer:
    """A server on loopback without persistence, used by every subject of a run."""

    def __init__(self, flavour: Flavour | None = None) -> None:
        self._server = RedisServer(flavour or flavours()[0])
        self._client: redis.Redis | None = None

    def __enter__(self) -> BenchServer:
        self._server.start()
        # To empty a server of the million jobs of a peer takes many seconds.
        self._client = redis.Redis.from_url(self._server.url, protocol=2, socket_timeout=SECONDS_OF_A_CALL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()
        self._server.close()

    @property
    def url(self) -> str:
        """URL of the server, database 0."""
        return self._server.url

    @property
    def version(self) -> str:
        """Name and version of the server."""
        about = self.info("server")
        name = "valkey" if "valkey_version" in about else "redis"
        return f"{name} {about.get('valkey_version') or about['redis_version']}"

    @property
    def process(self) -> int:
        """The server's process."""
        return int(self.info("server")["process_id"])

    @property
    def client(self) -> redis.Redis:
        """The connection of the benchmark itself."""
        if self._client is None:
            raise RuntimeError("the server has not been started")
        return self._client

    def info(self, section: str) -> dict[str, Any]:
        """Return one section of INFO."""
        return dict(self.client.info(section))

    def flush(self) -> None:
        """Empty the server, its scripts included, so that every subject finds the same."""
        self.client.flushall()
        self.client.script_flush()

    def main_thread_cpu(self) -> float:
        """Return the seconds of CPU, user and system, that the main thread has used so far."""
        cpu = self.info("cpu")
        return float(cpu["used_cpu_user_main_thread"]) + float(cpu["used_cpu_sys_main_thread"])

    def commands_sent(self, seconds: float) -> int:
        """Count the commands that clients send within ``seconds``, without those inside scripts and our own."""
        count = 0
        with self.client.monitor() as monitor:  # type: ignore[no-untyped-call]
            deadline = time.monotonic() + seconds
            while (left := deadline - time.monotonic()) > 0:
                if monitor.connection.can_read(timeout=left):
                    count += monitor.next_command()["client_type"] != "lua"
        return count

    def used_memory(self) -> int:
        """Return the bytes that the server has allocated, after it gave back what it could."""
        self.client.memory_purge()
        return int(self.info("memory")["used_memory"])


def unfinished(client: redis.Redis) -> int:
    """Return how many jobs version 1 of our queue holds, in whatever state (two round trips, no script)."""
    stored = client.get(KEYS.queue(QUEUE, "topology"))
    if stored is None:
        return 0
    refs = Topology.from_json(QUEUE, cast(bytes, stored)).refs(1)
    with client.pipeline(transaction=False) as pipeline:
        for ref in refs:
            pipeline.hlen(KEYS.partition(ref, "jobs"))
        return sum(pipeline.execute())
