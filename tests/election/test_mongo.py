"""The lock in MongoDB: its document on FerretDB, and verdicts that only a replica set gives."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pymongo
import pytest

from headrace.election import Elector, RankedLock, Reason, Term
from headrace.election.backends.mongo import COLLECTION, MongoLock, MongoVersion
from headrace.election.errors import Conflict, Forbidden, LockError, Unavailable
from headrace.election.memory_fence import FenceState, Listeners, MemoryFence
from headrace.election.record import Record
from headrace.election.thread import ElectorThread
from headrace.election.timings import derived
from headrace.errors import InvalidInput
from tests.election.wire import WireServer
from tests.services.mongo import FerretServer

C = 5.0


@pytest.fixture(autouse=True)
def half_made_connections() -> Iterator[None]:
    """Collect here what the driver forgets: a socket whose connecting was cancelled because its client was closed."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def record(holder: str = "a_1", seq: int = 1_700_000_000_123_456, term: int = 1) -> Record:
    return Record(holder, term, 15, seq, acquired=5)


def collection(url: str) -> Any:
    return pymongo.MongoClient[Any](url).get_default_database()[COLLECTION]


async def failing(call: object) -> LockError:
    with pytest.raises(LockError) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_the_document_has_the_names_of_the_mongo_scheduler(mongo_url: str) -> None:
    name = uuid4().hex
    lock = MongoLock(mongo_url, name, call_timeout=C)
    version = await lock.create(record(), C)
    documents = collection(mongo_url)
    stored = documents.find_one({"leader_key": name})
    assert stored["instance_id"] == "a_1"
    first = stored["last_seen"]
    indexes = documents.index_information().values()
    assert any(index.get("unique") and index["key"] == [("leader_key", 1)] for index in indexes)
    assert not any("expireAfterSeconds" in index for index in indexes)
    await lock.cas(version, record(seq=1_700_000_001_123_456), C)
    assert documents.find_one({"leader_key": name})["last_seen"] >= first
    documents.database.client.close()
    await lock.close()


async def test_a_document_of_the_mongo_scheduler_is_understood_and_taken_over(mongo_url: str) -> None:
    name = uuid4().hex
    documents = collection(mongo_url)
    documents.insert_one({"leader_key": name, "instance_id": "old-1", "last_seen": None})
    lock = MongoLock(mongo_url, name, call_timeout=C)
    found = await lock.read(C)
    assert found is not None
    assert (found[1].holder, found[1].term, found[1].seq) == ("old-1", 0, None)
    with pytest.raises(Conflict):
        await lock.create(record(), C)
    version = await lock.cas(found[0], record(), C)
    assert await lock.read(C) == (version, record())
    assert documents.count_documents({"leader_key": name}) == 1
    documents.database.client.close()
    await lock.close()


async def test_L14_LE29_a_document_that_vanished_is_a_conflict_and_then_absent(mongo_url: str) -> None:
    name = uuid4().hex
    lock = MongoLock(mongo_url, name, call_timeout=C)
    version = await lock.create(record(), C)
    documents = collection(mongo_url)
    documents.delete_one({"leader_key": name})
    with pytest.raises(Conflict):
        await lock.cas(version, record(seq=1_700_000_001_123_456), C)
    assert await lock.read(C) is None
    documents.database.client.close()
    await lock.close()


async def test_LE30_a_server_that_is_frozen_or_gone_is_unavailable_in_time(ferret: FerretServer) -> None:
    lock = MongoLock(ferret.url, "x", call_timeout=1.0)
    version = await lock.create(record(), C)
    ferret.pause()
    begun = time.monotonic()
    error = await failing(lock.cas(version, record(seq=1_700_000_001_123_456), 1.0))
    assert isinstance(error, Unavailable)
    assert error.ambiguous
    assert time.monotonic() - begun < 25  # the driver's own defaults would wait for half a minute
    ferret.resume()
    ferret.kill()
    for _ in range(2):
        assert isinstance(await failing(lock.read(1.0)), Unavailable)
    ferret.start()
    found = await lock.read(C)
    assert found is not None
    await lock.close()


DUPLICATE = "E11000 duplicate key error collection: headrace.leader_election index: leader_key_1"


@pytest.mark.parametrize(
    "answer",
    [
        {"ok": 1.0, "n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": DUPLICATE}]},
        {"ok": 0.0, "code": 11000, "codeName": "DuplicateKey", "errmsg": DUPLICATE},
    ],
    ids=["write error", "command error"],
)
async def test_LE26_a_duplicate_key_in_either_form_is_a_conflict(answer: dict[str, Any]) -> None:
    async with WireServer() as server:
        server.answers["insert"] = answer
        lock = MongoLock(server.url, "x", call_timeout=C)
        assert isinstance(await failing(lock.create(record(), C)), Conflict)
        await lock.close()


# How a replica set says that it has written and its majority has not confirmed: the limit of the whole command, which
# is what the lock sets, has ended the wait, or a limit of the wait alone, which a URL may set.
UNCONFIRMED = {
    "command": {"code": 50, "codeName": "MaxTimeMSExpired", "errmsg": "operation exceeded time limit"},
    "wait": {
        "code": 64,
        "codeName": "WriteConcernFailed",
        "errmsg": "waiting for replication timed out",
        "errInfo": {"wtimeout": True},
    },
}


@pytest.mark.parametrize("limit", UNCONFIRMED)
async def test_LE28_a_majority_that_does_not_confirm_leaves_the_outcome_unknown(limit: str) -> None:
    async with WireServer() as server:
        server.answers["update"] = {"ok": 1.0, "n": 1, "nModified": 1, "writeConcernError": UNCONFIRMED[limit]}
        lock = MongoLock(server.url, "x", call_timeout=2.0)
        error = await failing(lock.cas(MongoVersion(3, "a_1"), record(), 2.0))
        assert isinstance(error, Unavailable)
        assert error.ambiguous
        (update,) = server.commands("update")
        assert update["writeConcern"] == {"w": "majority", "j": True}
        assert 0 < update["maxTimeMS"] <= 2000
        assert "txnNumber" not in update  # no repeated write below
        assert await lock.read(2.0) is None
        (find,) = server.commands("find")
        assert find["readConcern"] == {"level": "majority"}
        await lock.close()


@pytest.mark.parametrize("code", [13, 18])
async def test_LE8_refused_credentials_are_forbidden(code: int) -> None:
    async with WireServer() as server:
        server.answers["update"] = {"ok": 0.0, "code": code, "errmsg": "not authorized on headrace as secret-user"}
        lock = MongoLock(server.url, "x", call_timeout=2.0)
        error = await failing(lock.cas(MongoVersion(3, "a_1"), record(), 2.0))
        assert isinstance(error, Forbidden)
        assert "secret" not in str(error)
        await lock.close()


@pytest.mark.parametrize("code", [10107, 189, 11600, 91, 50])
async def test_LE12_a_server_that_steps_down_or_is_slow_is_unavailable(code: int) -> None:
    async with WireServer() as server:
        server.answers["update"] = {"ok": 0.0, "code": code, "errmsg": "not now"}
        lock = MongoLock(server.url, "x", call_timeout=2.0)
        error = await failing(lock.cas(MongoVersion(3, "a_1"), record(), 2.0))
        assert isinstance(error, Unavailable)
        assert error.ambiguous
        # Closed while the driver connects anew, it would leave that socket to the garbage collector.
        assert await lock.read(2.0) is None
        await lock.close()


async def test_LE36_two_that_matched_at_once_find_out_who_was_last(mongo_url: str) -> None:
    """The server matched both; the second to write is the one whose name stands there."""
    async with WireServer() as server:
        stored = {"_id": "x", "leader_key": "x", "rv": 4, "instance_id": "b_1", "term": 2, "duration_s": 15, "seq": 7}
        batch = {"ok": 1.0, "cursor": {"id": 0, "ns": "headrace.leader_election", "firstBatch": [stored]}}
        server.answers["find"] = batch
        lock = MongoLock(server.url, "x", call_timeout=2.0)
        assert isinstance(await failing(lock.cas(MongoVersion(3, ""), record("a_1", term=2), 2.0)), Conflict)
        assert await lock.cas(MongoVersion(3, ""), record("b_1", term=2), 2.0) == MongoVersion(4, "b_1")
        await lock.close()


@pytest.mark.parametrize("url", ["mongodb://user:secret@/x", "http://user:secret@host", "mongodb://u:se/cret@h:1"])
def test_a_malformed_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        MongoLock(url, "x", call_timeout=1.0)
    assert "secret" not in str(caught.value)
    assert "cret" not in str(caught.value)


async def test_no_message_holds_a_password(mongo_url: str) -> None:
    lock = MongoLock("mongodb://user:secret@127.0.0.1:9/x", "x", call_timeout=0.2)
    error = await failing(lock.read(0.2))
    assert isinstance(error, Unavailable)
    assert "secret" not in str(error)
    assert "127.0.0.1:9" in str(error)
    await lock.close()


class Led:
    """What an elector told."""

    def __init__(self) -> None:
        self.stops: list[Reason] = []

    async def on_started(self, term: Term) -> None:
        await asyncio.Event().wait()

    async def on_stopped(self, term: Term, reason: Reason) -> None:
        self.stops.append(reason)

    def on_new_leader(self, identity: str) -> None: ...


async def eventually(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.02)


async def test_LE28_writes_in_doubt_are_resolved_by_majority_reads_and_a_leader_stays_or_goes() -> None:
    """The verdicts of a replica set that confirms no write: first they were applied, then they were not."""
    unconfirmed = {"ok": 1.0, "n": 1, "nModified": 1, "writeConcernError": UNCONFIRMED["command"]}
    stored: dict[str, Any] = {}
    applying, confirming = True, True
    timings = derived(8, 5.0, 0.5, 1.2)

    def insert(command: dict[str, Any]) -> dict[str, Any]:
        stored.update(command["documents"][0])
        return {"ok": 1.0, "n": 1}

    def update(command: dict[str, Any]) -> dict[str, Any]:
        (each,) = command["updates"]
        matched = all(stored.get(name) == value for name, value in each["q"].items() if name != "_id")
        if not matched:
            return {"ok": 1.0, "n": 0, "nModified": 0}
        if applying:
            stored.update(each["u"].get("$set", {}))
        return {"ok": 1.0, "n": 1, "nModified": 1} if confirming else unconfirmed

    def find(command: dict[str, Any]) -> dict[str, Any]:
        batch = [dict(stored)] if stored else []
        return {"ok": 1.0, "cursor": {"id": 0, "ns": "headrace.leader_election", "firstBatch": batch}}

    async with WireServer() as server:
        server.answers |= {"insert": insert, "update": update, "find": find}
        led = Led()
        loop = asyncio.get_running_loop()

        def build() -> Elector:
            lock = MongoLock(server.url, "x", call_timeout=timings.call_timeout)
            fence = MemoryFence(FenceState(lambda: time.monotonic_ns() // 1_000_000), Listeners())
            return Elector([RankedLock("mongo", 2, lock)], fence, led, timings, application=loop)

        elector = ElectorThread(build)
        elector.start()
        await eventually(elector.is_leader)
        confirming = False
        doubted, looks = stored["rv"], len(server.commands("find"))
        began = time.monotonic()
        # Renewals that nobody confirms, for longer than a single one counts.
        await eventually(lambda: time.monotonic() - began > timings.renew_deadline + 1 and stored["rv"] >= doubted + 3)
        assert elector.is_leader()
        assert led.stops == []
        reads = server.commands("find")[looks:]
        assert len(reads) >= 3
        assert all(read["readConcern"] == {"level": "majority"} for read in reads)
        applying = False
        await eventually(lambda: led.stops)
        assert led.stops[0] in (Reason.EXPIRED, Reason.LOST)
        applying = confirming = True
        await eventually(elector.is_leader)
        assert await elector.stop()
