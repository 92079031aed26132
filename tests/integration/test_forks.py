"""A process that is forked off shares nothing that counts calls or holds connections: neither loses a job by it."""

from __future__ import annotations

import subprocess
import sys

from headrace.lifecycle import promote
from headrace.stores import open_store
from tests.conformance.steps import QUEUE, sizes
from tests.services.redis import RedisServer

_PRELUDE = """
import asyncio, ctypes, os, signal, sys

from headrace import App, HeadraceError, Producer, SyncProducer, Worker, WorkerSettings, open_store

URL, PREFIX = sys.argv[1:]


def forked(call, fork=os.fork):
    # What a child that is forked off here says, and how it ends; what hangs is to end.
    read, write = os.pipe()
    if fork() == 0:
        signal.alarm(60)
        try:
            said = repr(call())
        except HeadraceError as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as heard:
        said = heard.read()
    print(said, os.waitstatus_to_exitcode(os.wait()[1]), sep=";")
"""


def run(program: str, url: str, prefix: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", _PRELUDE + program, url, prefix]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()


async def test_M17_a_producer_of_before_a_fork_is_refused_in_two_children_and_works_in_none_by_halves(
    redis_server: RedisServer, prefix: str
) -> None:
    """Both would count their calls alike: the second one's jobs would be taken for the first one's, and be lost."""
    store = open_store(redis_server.url, prefix)
    await promote(store, QUEUE, 1, 1)
    program = """
producer = Producer(URL, prefix=PREFIX)


async def enqueue(id):
    await producer.enqueue("emails", "send", id=id)


def child():
    try:
        asyncio.run(enqueue("of a child"))
    finally:
        asyncio.run(producer.aclose())  # does not wait for what only its own process can end


forked(child)
forked(child)
asyncio.run(enqueue("of the parent"))
"""
    said = run(program, redis_server.url, prefix)
    refusal = "this Producer was made in another process, which this one was forked off; make one per process, after"
    assert [line.startswith(refusal) for line in said] == [True, True]
    assert [line[-2:] for line in said] == [";0", ";0"]
    assert await sizes(store) == {"ready": 1}
    await store.close()


def test_M17_a_fork_of_which_python_is_not_told_is_noticed(redis_server: RedisServer, prefix: str) -> None:
    """As servers in C do it. Without a look at the process the call would wait for a thread that is not there."""
    program = """
producer = SyncProducer(URL, prefix=PREFIX)
forked(lambda: producer.enqueue("emails", "send"), ctypes.PyDLL(None).fork)
"""
    (said,) = run(program, redis_server.url, prefix)
    assert said.startswith("this SyncProducer was made in another process")
    assert said.endswith(";0")


async def test_M17_a_store_of_before_a_fork_may_be_used_by_children_unless_it_was_connected(
    redis_server: RedisServer, prefix: str
) -> None:
    store = open_store(redis_server.url, prefix)
    await promote(store, QUEUE, 1, 1)
    program = """
store = open_store(URL, PREFIX)


async def enqueue(id):
    return (await Producer(store).enqueue("emails", "send", id=id)).id


def of_child(id):
    return lambda: asyncio.run(enqueue(id))


forked(of_child("first"))
forked(of_child("second"))


with asyncio.Runner() as runner:
    runner.run(enqueue("parent"))
    forked(of_child("late"))
    runner.run(enqueue("parent again"))
"""
    first, second, late = run(program, redis_server.url, prefix)
    assert (first, second) == ("'first';0", "'second';0")
    assert late.startswith("this connection to Redis was made in another process")
    assert late.endswith(";0")
    assert await sizes(store) == {"ready": 4}
    await store.close()


def test_V14_a_worker_of_before_a_fork_does_not_run_in_a_child(redis_server: RedisServer, prefix: str) -> None:
    """Two would claim under one name, and each would be handed the other one's jobs."""
    program = """
worker = Worker(App(), open_store(URL, PREFIX), WorkerSettings(queues=("emails",)))
forked(lambda: asyncio.run(worker.run()))
"""
    (said,) = run(program, redis_server.url, prefix)
    assert said.startswith("this Worker was made in another process")
    assert said.endswith(";0")
