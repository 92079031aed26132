"""KEDA's side of the external scaler: a generated gRPC client, a real Redis, real calls."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf import descriptor_pb2

from headrace import Producer
from headrace.lifecycle import configure, promote
from headrace.settings import QueueSettings
from headrace.stores import Store, open_store
from headrace.stores.base import Beat, Settled
from headrace_operator.keda import service
from headrace_operator.keda.main import serve
from headrace_operator.keda.messages import file_description
from headrace_operator.keda.options import Options
from tests.docs.blocks import ROOT, blocks
from tests.integration.keda_client import generated
from tests.services.redis import RedisServer

QUEUE = "emails"
PATIENCE = 60.0
COMMAND = Path(sys.executable).with_name("headrace-keda")


@pytest.fixture(scope="module")
def client_modules(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return generated(tmp_path_factory.mktemp("keda"))


@pytest.fixture
async def store(redis_server: RedisServer, prefix: str) -> AsyncIterator[Store]:
    opened = open_store(redis_server.url, prefix)
    await promote(opened, QUEUE, 1, 4)
    yield opened
    await opened.close()


@asynccontextmanager
async def serving(store: Store, folder: Path) -> AsyncIterator[str]:
    """Serve on a socket in ``folder``; give its address."""
    stop, address = asyncio.Event(), f"unix:{folder}/keda.sock"
    server = asyncio.create_task(serve(store, address, stop))
    try:
        yield address
    finally:
        stop.set()
        await server


class Client:
    """Calls as KEDA makes them."""

    def __init__(self, modules: tuple[Any, Any], channel: Any) -> None:
        self.messages, services = modules
        self.stub = services.ExternalScalerStub(channel)

    def ref(self, **metadata: str) -> Any:
        given = {"queue": QUEUE, "slots": "4", "scalerAddress": "somewhere:9090"} | metadata
        return self.messages.ScaledObjectRef(name="emails", namespace="shop", scalerMetadata=given)

    async def active(self, **metadata: str) -> bool:
        return bool((await self.stub.IsActive(self.ref(**metadata), wait_for_ready=True)).result)

    async def wanted(self, **metadata: str) -> float:
        request = self.messages.GetMetricsRequest(scaledObjectRef=self.ref(**metadata), metricName="m")
        (value,) = (await self.stub.GetMetrics(request, wait_for_ready=True)).metricValues
        assert (value.metricName, value.metricValue) == ("m", value.metricValueFloat)
        return float(value.metricValueFloat)


@pytest.fixture
async def client(store: Store, tmp_path: Path, client_modules: tuple[Any, Any]) -> AsyncIterator[Client]:
    async with serving(store, tmp_path) as address, grpc.aio.insecure_channel(address) as channel:
        yield Client(client_modules, channel)


async def until(what: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await what():
            await asyncio.sleep(0.05)


def test_the_messages_are_those_of_the_interface(client_modules: tuple[Any, Any]) -> None:
    published = descriptor_pb2.FileDescriptorProto()
    client_modules[0].DESCRIPTOR.CopyToProto(published)
    published.ClearField("service")
    ours = file_description()
    for file in (published, ours):
        file.message_type.sort(key=lambda message: str(message.name))
        for message in file.message_type:
            for field in (*message.field, *(each for nested in message.nested_type for each in nested.field)):
                field.ClearField("json_name")
    assert ours == published


async def test_a_queue_that_only_its_leader_runs_wants_one_however_much_waits(client: Client, store: Store) -> None:
    producer = Producer(store)
    for number in range(200):
        await producer.enqueue(QUEUE, "send", number)
    assert await client.wanted() > 1
    await configure(store, QUEUE, QueueSettings(mode="leader_only"))
    await until(lambda: _is(client, 1))
    assert await client.active()


async def _is(client: Client, expected: float) -> bool:
    return await client.wanted() == expected


async def test_an_empty_queue_wants_nobody_and_says_so_again_when_it_is_empty_again(
    client: Client, store: Store
) -> None:
    assert not await client.active()
    assert await client.wanted() == 0


async def test_a_backlog_wants_workers_as_our_policy_does(client: Client, store: Store) -> None:
    producer = Producer(store)
    for n in range(100):
        await producer.enqueue(QUEUE, "send", n)

    async def many() -> bool:
        return await client.wanted() == 3  # 100 jobs of 1 s within 10 s by 4 slots each

    await until(many)
    assert await client.active()
    assert await client.wanted(slots="100", targetWaitSeconds="1000") == 1
    # No more slots than jobs and one, however impatient somebody is.
    assert await client.wanted(slots="1", targetWaitSeconds="0.001", coldStartSeconds="1") == 50


async def test_QG7_what_runs_counts_although_nothing_waits(client: Client, store: Store) -> None:
    producer = Producer(store)
    for n in range(9):
        await producer.enqueue(QUEUE, "send", n)
    for partition in range(4):
        topology = await store.read_topology(QUEUE)
        assert topology is not None
        await store.claim(topology.refs(1)[partition], "w", partition + 1, 100, 60_000)

    async def three() -> bool:
        return await client.wanted() == 3

    await until(three)
    assert await client.active()


@pytest.fixture
def looks_only_when_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream does not look by itself within a test."""
    monkeypatch.setattr(service, "LOOK_SECONDS", 3600.0)


@pytest.mark.usefixtures("looks_only_when_woken")
async def test_a_job_that_wakes_an_idle_queue_is_told_at_once(client: Client, store: Store) -> None:
    stream = client.stub.StreamIsActive(client.ref(), wait_for_ready=True)
    answers = aiter(stream)
    async with asyncio.timeout(PATIENCE):
        assert not (await anext(answers)).result
        following = asyncio.ensure_future(anext(answers))
        await Producer(store).enqueue(QUEUE, "send", 1)
        assert (await following).result
    stream.cancel()


@pytest.mark.usefixtures("looks_only_when_woken")
async def test_a_job_that_wakes_a_queue_is_told_although_nobody_looked_while_it_was_idle(
    client: Client, store: Store
) -> None:
    """KEDA has asked by itself meanwhile, and stopped the last worker."""
    producer = Producer(store)
    stream = client.stub.StreamIsActive(client.ref(), wait_for_ready=True)
    answers = aiter(stream)
    async with asyncio.timeout(PATIENCE):
        assert not (await anext(answers)).result
        for number in range(2):
            await producer.enqueue(QUEUE, "send", number)
            assert (await anext(answers)).result
            await work_off(store)
            await until(lambda: idle(client))
    stream.cancel()


async def idle(client: Client) -> bool:
    return not await client.active()


async def work_off(store: Store) -> None:
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    for number, ref in enumerate(topology.refs(1)):
        claim = await store.claim(ref, "w", number + 1, 100, 60_000)
        assert await store.ack(ref, [Settled(job.key, claim.token) for job in claim.jobs]) == []


async def test_E3_a_paused_queue_wants_nobody(client: Client, store: Store) -> None:
    await Producer(store).enqueue(QUEUE, "send", 1)
    await configure(store, QUEUE, QueueSettings(stop="hold"))

    async def quiet() -> bool:
        return not await client.active()

    await until(quiet)
    assert await client.wanted() == 0


async def test_slots_come_from_the_workers_if_nobody_says_them(client: Client, store: Store) -> None:
    producer = Producer(store)
    for n in range(100):
        await producer.enqueue(QUEUE, "send", n)
    ref = client.messages.ScaledObjectRef(name="emails", namespace="shop", scalerMetadata={"queue": QUEUE})
    request = client.messages.GetMetricsRequest(scaledObjectRef=ref, metricName="m")

    async def wanted() -> int:
        return int((await client.stub.GetMetrics(request, wait_for_ready=True)).metricValues[0].metricValue)

    assert await wanted() == 1  # which will tell

    async def known() -> bool:
        await store.tick(QUEUE, "w1", Beat(pod="p1", slots=5))
        return await wanted() > 1

    await until(known)


async def test_the_metric_is_a_number_of_workers(client: Client) -> None:
    (spec,) = (await client.stub.GetMetricSpec(client.ref(), wait_for_ready=True)).metricSpecs
    assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == ("headrace-emails", 1, 1.0)


@pytest.mark.parametrize(
    ("metadata", "code", "text"),
    [
        ({"queue": ""}, grpc.StatusCode.INVALID_ARGUMENT, "shop/emails: metadata.queue"),
        ({"slots": "many"}, grpc.StatusCode.INVALID_ARGUMENT, "metadata.slots"),
        ({"targetWaitSeconds": "0"}, grpc.StatusCode.INVALID_ARGUMENT, "metadata.targetWaitSeconds"),
        ({"queue": "nobody"}, grpc.StatusCode.NOT_FOUND, "nobody"),
    ],
)
async def test_a_mistake_is_named(client: Client, metadata: dict[str, str], code: grpc.StatusCode, text: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.active(**metadata)
    assert refused.value.code() is code
    assert text in (refused.value.details() or "")


async def test_O12_a_redis_that_is_away_is_no_answer(tmp_path: Path, client_modules: tuple[Any, Any]) -> None:
    """KEDA then keeps what it has, and follows the fallback of its ScaledObject."""
    away = open_store("redis://127.0.0.1:1/0")
    async with serving(away, tmp_path) as address, grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await Client(client_modules, channel).active()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await away.close()


def test_the_example_of_the_page_is_understood() -> None:
    (example,) = (block.text for block in blocks(ROOT / "docs" / "scaling.md") if "kind: ScaledObject" in block.text)
    (trigger,) = yaml.safe_load(example)["spec"]["triggers"]
    options = Options.of(trigger["metadata"])
    assert (options.queue, options.slots, options.target_wait_seconds) == ("emails", 16, 5)


# ---- the command -----------------------------------------------------------------------------------------------------


def command(**environment: str) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return subprocess.Popen(
        [COMMAND], env=inherited | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


async def test_the_command_serves_until_it_is_told_to_end(
    store: Store, redis_server: RedisServer, prefix: str, tmp_path: Path, client_modules: tuple[Any, Any]
) -> None:
    address = f"unix:{tmp_path}/keda.sock"
    process = command(HEADRACE_REDIS_URL=redis_server.url, HEADRACE_PREFIX=prefix, HEADRACE_KEDA_ADDRESS=address)
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            async with asyncio.timeout(PATIENCE):
                assert not await Client(client_modules, channel).active()
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert redis_server.url not in errors
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("environment", "code", "text"),
    [
        ({"HEADRACE_REDIS_URL": "redis://127.0.0.1:1/0"}, 1, "does not answer"),
        ({"HEADRACE_REDIS_URL_FILE": "/nowhere/url"}, 1, "redis_url_file"),
        ({"HEADRACE_LOG_LEVEL": "LOUD"}, 2, "HEADRACE_LOG_LEVEL"),
    ],
)
def test_a_command_that_cannot_start_says_why(environment: dict[str, str], code: int, text: str) -> None:
    process = command(**environment)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    (line,) = errors.strip().splitlines()
    assert text in line
