"""The servers that tests and the demo start: real, restartable, and gone with whoever started them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.cluster.guard import Guard
from tests.services.redis import Flavour, RedisServer, flavours


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("flavour", flavours())
def test_a_persistent_server_keeps_its_data_over_kill_and_restart(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, persist=True, guard=process_guard) as server:
        url = server.url
        with redis.Redis.from_url(url) as client:
            client.set("kept", "1")
        server.kill()
        assert server.pid is None
        assert not server.answers()
        server.start()
        server.restart()
        assert server.url == url
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"1"


@pytest.mark.parametrize("flavour", flavours())
def test_a_plain_server_starts_again_empty(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, guard=process_guard) as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("lost", "1")
        server.restart()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("lost") is None


def test_a_paused_server_answers_nothing_until_it_is_resumed(process_guard: Guard) -> None:
    with RedisServer(guard=process_guard) as server:
        server.pause()
        assert not server.answers()
        server.resume()
        assert eventually(server.answers)


def test_options_reach_the_server(process_guard: Guard) -> None:
    with (
        RedisServer(options=("--maxmemory", "20mb"), guard=process_guard) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        assert client.config_get("maxmemory") == {"maxmemory": "20971520"}


def test_a_server_that_cannot_start_says_why(process_guard: Guard) -> None:
    server = RedisServer(options=("--no-such-option", "1"), guard=process_guard)
    try:
        with pytest.raises(RuntimeError, match="no-such-option"):
            server.start()
    finally:
        server.close()


def test_close_removes_the_folder_and_may_be_repeated() -> None:
    server = RedisServer()
    server.start()
    pid = server.pid
    assert pid is not None
    folder = server.folder
    server.close()
    server.close()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_nothing_is_left_when_the_starter_is_killed() -> None:
    program = (
        "import time\n"
        "from tests.services.redis import RedisServer\n"
        "server = RedisServer(); server.start(); print(server.port, server.folder, flush=True); time.sleep(60)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    with starter.stdout:
        port, folder = starter.stdout.readline().split()
    starter.send_signal(signal.SIGKILL)
    starter.wait()

    def gone() -> bool:
        # Its process id may stay: whoever inherits the dead process may be slow to take notice of its end.
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(port))) != 0 and not Path(folder).exists()

    assert eventually(gone)
