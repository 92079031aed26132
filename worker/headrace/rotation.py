"""A store whose URL lies in a file that changes while the program runs, as a mounted Secret does.

The file is looked at in passing, every few seconds while the store is in use. A new URL is proved first: a connection
of its own is made, and the data set behind it must bear the mark of the one in use. Then every clone goes over to it
with its next call; calls under way end on the old connection, which is closed after the last of them. Nothing is lost
or interrupted, and a URL that does not work, or leads elsewhere, changes nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, cast
from uuid import uuid4

from headrace.errors import HeadraceError, InvalidInput
from headrace.stores import server_of
from headrace.stores.base import Store
from headrace.topology import PartitionRef

log = logging.getLogger("headrace.connection")

LOOK_SECONDS = 5.0
"""How often the file is looked at."""
TOLD_SECONDS = 60.0
"""How often it is said that the file holds a URL that cannot be used."""

_NOBODYS = PartitionRef("-", 1, 0)


class _Source:
    """What all clones share: which URL is in use, and what is known of the data set behind it."""

    def __init__(self, read: Callable[[], str], open: Callable[[str], Store], clock: Callable[[], float]) -> None:
        self.read = read
        self.open = open
        self._clock = clock
        self.url = read()
        self.marker: str | None = None
        self.own_marker = str(uuid4())
        """For a data set that nobody has marked. Nobody else uses it, so finding it proves the data set too."""
        self._lock = threading.Lock()
        self._look_at = clock() + LOOK_SECONDS
        self._told_at = float("-inf")

    def begin_look(self) -> bool:
        """Whether the caller is to look at the file now; nobody else will for a while."""
        now = self._clock()
        if now < self._look_at:
            return False
        with self._lock:
            if now < self._look_at:
                return False
            self._look_at = now + LOOK_SECONDS
            return True

    def tell(self, problem: HeadraceError | str) -> None:
        """Say why the file's URL is not used, once per interval."""
        now = self._clock()
        if now - self._told_at >= TOLD_SECONDS:
            self._told_at = now
            log.error("the URL in the file is not used, the old connection stays: %s", problem)

    def changed(self, url: str) -> None:
        """Use another URL from now on."""
        self.url = url
        self._told_at = float("-inf")
        log.warning("the connection has changed: going over to %s", server_of(url))


class _Opened:
    """One store and the calls on it; when it is ``left`` it is closed after the last one."""

    __slots__ = ("calls", "left", "store", "url")

    def __init__(self, url: str, store: Store) -> None:
        self.url = url
        self.store = store
        self.calls = 0
        self.left = False


class _Following:
    """Every asynchronous method of the store, on whichever connection is the right one at the time of the call."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._opened = _Opened(source.url, source.open(source.url))
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __repr__(self) -> str:
        return repr(self._opened.store)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._opened.store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            opened = self._enter()
            try:
                return await getattr(opened.store, name)(*args, **kwargs)
            finally:
                self._leave(opened)

        self.__dict__[name] = call
        return call

    @property
    def hints_may_be_lost(self) -> bool:
        """As the store says."""
        return self._opened.store.hints_may_be_lost

    def beside(self, queue: str) -> Any:
        """As the store behind the URL that is in use now says, whichever one this clone has used last. Any thread."""
        opened, url = self._opened, self._source.url
        store = opened.store if opened.url == url else self._source.open(url)
        return store.beside(queue)  # type: ignore[attr-defined]

    def clone(self) -> Store:
        """Return a store that follows the same file with connections of its own."""
        return cast(Store, _Following(self._source))

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._opened.store.close()

    # ---- calls -----------------------------------------------------------------------------------------------------

    def _enter(self) -> _Opened:
        if not self._closed:
            if self._opened.url != self._source.url:
                self._go_over()
            if self._source.begin_look():
                self._begin(self._look())
        self._opened.calls += 1
        return self._opened

    def _leave(self, opened: _Opened) -> None:
        opened.calls -= 1
        if opened.left and not opened.calls:
            self._begin(opened.store.close())

    def _go_over(self) -> None:
        old, url = self._opened, self._source.url
        self._opened = _Opened(url, self._source.open(url))
        old.left = True
        if not old.calls:
            self._begin(old.store.close())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- the file --------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Compare the file with the URL in use, and go over to what it says if that is proved."""
        source = self._source
        try:
            url = await asyncio.to_thread(source.read)
            if url == source.url:
                await self._remember_mark()
                return
            await self._prove(url)
            source.changed(url)
        except HeadraceError as error:
            source.tell(error)
        except Exception:
            log.exception("looking at the file of the URL failed unexpectedly")

    async def _remember_mark(self) -> None:
        """Read the mark while the connection works: it may not any more when it is asked for."""
        source = self._source
        if source.marker is None:
            with suppress(HeadraceError):  # whoever works with the store tells of it
                source.marker = await self._mark()

    async def _mark(self) -> str:
        """Return the mark of the data set in use; one that nobody has marked gets one."""
        store = self._opened.store
        return await store.read_marker() or await store.write_marker(self._source.own_marker)

    async def _prove(self, url: str) -> None:
        """Raise what speaks against a URL: nobody answers there, the credentials do not do, or it holds other data."""
        source = self._source
        with suppress(HeadraceError):  # first, since it may write the mark that is to be found
            source.marker = await self._mark()
        known = source.marker
        candidate = source.open(url)
        try:
            await candidate.check()
            await candidate.counts([_NOBODYS])  # scripts may be run
            found = await candidate.read_marker()
        finally:
            await candidate.close()
        if found is None or found not in (known, source.own_marker):
            raise InvalidInput(
                "redis_url_file",
                f"{server_of(url)} holds other data (mark {found}) than the connection in use (mark {known})",
                "correct the file, or restart this program to begin there",
            )


def follow(read: Callable[[], str], open: Callable[[str], Store], clock: Callable[[], float] = time.monotonic) -> Store:
    """Return a store at the URL that ``read`` gives, which goes over to another one when it gives another.

    ``read`` is called in a thread, at most every 5 s while the store is in use; ``open`` opens a URL without a call.
    Both raise InvalidInput, here for the first URL; later problems are logged once per minute.
    """
    return cast(Store, _Following(_Source(read, open, clock)))
