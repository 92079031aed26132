"""Redis URLs in Secrets: read when needed, kept for a while, and looked at often while one of them is of no use.

The operator may read single Secrets and not watch them, so that it can be limited to certain names.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from headrace_operator.api.names import QueueKey
from headrace_operator.kubernetes.client import ApiError, ApiUnavailable, Body, Kube, core

KEPT_SECONDS = 60.0
"""A Secret whose URL works is read again after this time."""
DOUBTED_SECONDS = 3.0
"""One whose URL is missing or does not work is read again after this time, whether or not somebody asks for it."""
_SHORTEST_PAUSE = 0.05

log = logging.getLogger("headrace.operator")


class SecretKey(NamedTuple):
    """A key of a Secret."""

    namespace: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"Secret {self.namespace}/{self.name}, key {self.key!r}"


class Value(NamedTuple):
    """What a key of a Secret holds; ``problem`` says why there is no ``url``."""

    url: str | None
    problem: str = ""


class Secrets:
    """Reads keys of Secrets. ``clock``: monotonic seconds."""

    def __init__(self, kube: Kube, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._clock = clock
        self._read: dict[SecretKey, tuple[float, Value]] = {}
        self._users: dict[str, SecretKey] = {}
        self._doubts: dict[str, tuple[QueueKey, SecretKey]] = {}

    async def read(self, key: SecretKey, uid: str) -> Value:
        """Return the value for the Queue with ``uid``, read now or a short time ago.

        Raises ApiError and ApiUnavailable.
        """
        if self._users.get(uid) != key:
            self.release(uid)
            self._users[uid] = key
        value = self.known(key)
        return await self._read_now(key) if value is None else value

    def used_by(self, uid: str) -> SecretKey | None:
        """Return what is read for the Queue with ``uid``; None if that is nothing."""
        return self._users.get(uid)

    def known(self, key: SecretKey) -> Value | None:
        """Return the value that was read a short time ago; None: it has to be read."""
        read_at, value = self._read.get(key, (float("-inf"), Value(None)))
        # One that is missing and not missed, since there is a default URL, is no reason to ask all the time.
        doubted = any(key == doubt for _, doubt in self._doubts.values())
        return value if self._clock() - read_at < (DOUBTED_SECONDS if doubted else KEPT_SECONDS) else None

    def doubt(self, uid: str, queue: QueueKey, key: SecretKey) -> None:
        """Say that the Queue with ``uid`` cannot work with what the Secret holds now."""
        self._doubts[uid] = (queue, key)

    def trust(self, uid: str) -> None:
        """Say that the Queue works, or is gone."""
        self._doubts.pop(uid, None)

    def release(self, uid: str) -> None:
        """Say that the Queue with ``uid`` is gone, or looks elsewhere: what nobody uses is not kept."""
        self.trust(uid)
        key = self._users.pop(uid, None)
        if key is not None and key not in self._users.values():
            self._read.pop(key, None)

    async def watch(
        self, changed: Callable[[QueueKey], None], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Call ``changed`` with every Queue that doubts a Secret, once what it holds is another. Ends never.

        Each Secret is read every `DOUBTED_SECONDS`, less often if that were more than 20 reads per second.
        """
        while True:
            keys = {key for _, key in self._doubts.values()}
            if not keys:
                await sleep(DOUBTED_SECONDS)
            for key in keys:
                await sleep(max(_SHORTEST_PAUSE, DOUBTED_SECONDS / len(keys)))
                _, before = self._read.get(key, (0.0, None))
                try:
                    value = await self._read_now(key)
                except (ApiError, ApiUnavailable) as error:
                    log.debug("%s: %s", key, error)
                    continue
                if value != before:
                    for queue, doubted in list(self._doubts.values()):
                        if doubted == key:
                            changed(queue)

    async def _read_now(self, key: SecretKey) -> Value:
        try:
            body = await self._kube.find(f"{core('secrets', key.namespace)}/{key.name}")
        except ApiError as error:
            if error.status != 403:
                raise
            value = Value(None, "may not be read by the operator; add its name to secretNames of the chart")
        else:
            value = _value(key, body)
        if key in self._users.values():
            self._read[key] = (self._clock(), value)
        return value


def _value(key: SecretKey, body: Body | None) -> Value:
    if body is None:
        return Value(None, f"does not exist; create it with the Redis URL under the key {key.key!r}")
    encoded = body.get("data", {}).get(key.key)
    if encoded is None:
        return Value(None, f"has no key {key.key!r}; put the Redis URL under it, or name another key")
    try:
        url = base64.b64decode(encoded, validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        return Value(None, f"holds no text under the key {key.key!r}; put the Redis URL there")
    return Value(url) if url else Value(None, f"holds nothing under the key {key.key!r}; put the Redis URL there")
