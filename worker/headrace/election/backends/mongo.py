"""A lock in a MongoDB document, in the collection and with the field names of the Mongo task scheduler.

Only find, insert and update by filter are used. No time to live: its sweep depends on a clock, comes late, and would
delete the lock of a living leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pymongo
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import (
    ConfigurationError,
    InvalidURI,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteConcernError,
)
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern

from headrace.election.errors import Conflict, Forbidden, LockError, Unavailable
from headrace.election.record import Record, Version
from headrace.errors import InvalidInput

T = TypeVar("T")
Document = dict[str, Any]

COLLECTION = "leader_election"
DUPLICATE_KEY = 11000
_REFUSED = (13, 18)  # Unauthorized, AuthenticationFailed
_INDEX_CONFLICTS = (85, 86)
_SLACK = 0.5
"""Seconds by which the driver exceeds its limit."""
_UNKNOWN_DURATION = 60.0


@dataclass(frozen=True, slots=True)
class MongoVersion:
    """Version number of the document (None: it was written by something else) and the holder that it was seen with."""

    number: int | None
    holder: str


def check_url(url: str) -> Any:
    """Return the parts of a URL. Raises InvalidInput, without the URL, which may hold a password."""
    try:
        return parse_uri(url)
    except (InvalidURI, ConfigurationError, ValueError):
        # Its text may quote the URL.
        remedy = "use mongodb://[user:password@]host[:port][/database] with the password percent-encoded"
        raise InvalidInput("mongo URL", "cannot be parsed", remedy) from None


class MongoLock:
    """The document whose ``leader_key`` is ``name``.

    ``url``: its database is used, else ``database``. ``call_timeout``: seconds for the longest call. Reads and writes
    are by majority; a write whose majority is not confirmed in time has an unknown outcome.
    """

    def __init__(self, url: str, name: str, *, call_timeout: float, database: str = "headrace") -> None:
        self.name = name
        parsed = check_url(url)
        self._client: AsyncMongoClient[Document] = AsyncMongoClient(
            url,
            appname="headrace",
            retryWrites=False,  # a repeated write cannot be told from a refused one
            retryReads=False,
            serverSelectionTimeoutMS=round(call_timeout * 1000),
            connectTimeoutMS=round(call_timeout * 1000),
            socketTimeoutMS=round(call_timeout * 1000),
            maxPoolSize=2,
            serverMonitoringMode="poll",  # streaming opens a second connection, which `close` may leave half made
        )
        hosts = [host if port is None else f"{host}:{port}" for host, port in parsed["nodelist"]]
        self._where = f"mongo {','.join(hosts)}: lock {name!r}"
        self._collection: AsyncCollection[Document] = self._client[parsed["database"] or database].get_collection(
            COLLECTION,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            # The time limit of a call goes to the server with it, and covers the wait for the majority.
            write_concern=WriteConcern(w="majority", j=True),
        )
        self._indexed = False

    async def read(self, timeout: float) -> tuple[Version, Record] | None:
        """See `headrace.election.record.Lock.read`."""
        return await self._bounded(self._find, timeout, write=False)

    async def create(self, record: Record, timeout: float) -> Version:
        """See `headrace.election.record.Lock.create`."""

        async def insert() -> Version:
            await self._ensure_index()
            document = {"_id": self.name, "leader_key": self.name, "rv": 1, **_fields(record)}
            await self._collection.insert_one(document)
            # An insert takes no server time: the display follows by an update of its own.
            await self._collection.update_one({"_id": self.name, "rv": 1}, {"$currentDate": {"last_seen": True}})
            return MongoVersion(1, record.holder)

        return await self._bounded(insert, timeout, write=True)

    async def cas(self, version: Version, record: Record, timeout: float) -> Version:
        """See `headrace.election.record.Lock.cas`."""
        seen = cast(MongoVersion, version)
        following = (seen.number or 0) + 1

        async def update() -> Version:
            result = await self._collection.update_one(
                {"leader_key": self.name, "rv": seen.number, "instance_id": seen.holder},
                {"$set": {"rv": following, **_fields(record)}, "$currentDate": {"last_seen": True}},
            )
            if result.matched_count != 1:
                raise Conflict(f"{self._where} is at another version")
            if record.holder and record.holder != seen.holder:
                # Not every server that speaks the protocol updates atomically: two may have matched.
                found = await self._find()
                if found is None or found[1].holder != record.holder:
                    raise Conflict(f"{self._where} was taken by another at the same time")
            return MongoVersion(following, record.holder)

        return await self._bounded(update, timeout, write=True)

    async def close(self) -> None:
        """See `headrace.election.record.Lock.close`."""
        await self._client.close()

    async def _find(self) -> tuple[Version, Record] | None:
        document = await self._collection.find_one({"leader_key": self.name})
        if document is None:
            return None
        record = Record(
            holder=str(document.get("instance_id") or ""),
            term=int(document.get("term") or 0),
            duration=float(document.get("duration_s") or _UNKNOWN_DURATION),
            seq=document.get("seq"),
            acquired=int(document.get("acquired") or 0),
            epoch=int(document.get("epoch") or 0),
        )
        return MongoVersion(document.get("rv"), record.holder), record

    async def _ensure_index(self) -> None:
        if self._indexed:
            return
        try:
            await self._collection.create_index("leader_key", unique=True)
        except OperationFailure as error:
            if error.code not in _INDEX_CONFLICTS:  # one with other options exists; `_id` keeps ours unique too
                raise
        self._indexed = True

    async def _bounded(self, call: Callable[[], Awaitable[T]], timeout: float, *, write: bool) -> T:
        limit = max(timeout - _SLACK, timeout / 2)
        try:
            with pymongo.timeout(limit):
                return await call()
        except PyMongoError as error:
            raise self._normalised(error, write=write) from error

    def _normalised(self, error: PyMongoError, *, write: bool) -> LockError:
        match error:
            case ServerSelectionTimeoutError():
                return Unavailable(f"{self._where}: no server can be reached", ambiguous=False)
            case WriteConcernError():
                return Unavailable(f"{self._where}: the majority did not confirm in time", ambiguous=True)
            case OperationFailure(code=code) if code == DUPLICATE_KEY:
                return Conflict(f"{self._where} exists already")
            case OperationFailure(code=code) if code in _REFUSED:
                return Forbidden(f"{self._where}: not allowed; check user, password and readWrite on the database")
            case OperationFailure(code=code):
                return Unavailable(f"{self._where}: refused with code {code}", ambiguous=write)
            case _:
                return Unavailable(f"{self._where}: {type(error).__name__}", ambiguous=write)


def _fields(record: Record) -> Document:
    return {
        "instance_id": record.holder,
        "term": record.term,
        "duration_s": record.duration,
        "seq": record.seq,
        "acquired": record.acquired,
        "epoch": record.epoch,
    }
