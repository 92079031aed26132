"""Many workers lose Redis in one moment: when it returns they do not come in one moment."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter

from headrace import App, Worker
from headrace.lifecycle import promote
from headrace.stores import open_store
from tests.integration.worker.support import QUEUE, eventually, settings
from tests.services.redis import RedisServer

WORKERS = 40


class Door:
    """The way to a server, which may be shut: then connections end, and new ones end at once. Notes who comes when."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._there: set[asyncio.StreamWriter] = set()
        self.shut = False
        self.came: list[float] = []

    async def __aenter__(self) -> Door:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.close()

    def close(self) -> None:
        """Shut it: whoever is connected is cut off in this moment."""
        self.shut = True
        for writer in self._there:
            writer.close()

    def _cut_off(self) -> bool:
        return self.shut

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came.append(time.monotonic())
        if self._cut_off():
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._there |= {writer, back}
        if self._cut_off():  # meanwhile
            self.close()
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            self._there -= {writer, back}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def outage(door: Door) -> tuple[float, float]:
    """Shut the door for seconds. Return which share of the tries, and of those who returned, came in one moment."""
    seen = len(door.came)
    door.close()
    lost_at = time.monotonic()
    # Until their pauses have become long; each of them tries again and again meanwhile.
    await eventually(lambda: time.monotonic() > lost_at + 6 and len(door.came) > seen + 5 * WORKERS)
    tried = [at for at in door.came if at > lost_at + 3]
    back_at = time.monotonic()
    # Nobody tries without a pause: a fraction of a try each second and loop, of which a worker has a few.
    assert len(tried) < WORKERS * 4 * (back_at - lost_at - 3)
    door.shut = False
    # A few may have been on their way through when it was shut, and have lost nothing.
    await eventually(lambda: len([at for at in door.came if at > back_at]) >= WORKERS * 0.8)
    return crowd(tried), crowd([at for at in door.came if at > back_at])


def crowd(arrivals: list[float]) -> float:
    """Return the largest share of them within a tenth of a second."""
    return Counter(int(at / 0.1) for at in arrivals).most_common(1)[0][1] / len(arrivals)


async def test_QF7_workers_that_lost_redis_in_one_moment_come_back_spread_over_time(
    redis_server: RedisServer, prefix: str
) -> None:
    """Real workers with all their loops. In lockstep nearly all of their tries would fall into few moments."""
    app, safe = App(), open_store(redis_server.url, prefix)

    @app.handler("note")
    async def note(ctx: object, payload: object) -> None: ...

    await promote(safe, QUEUE, 1, 2)
    async with Door(redis_server.port) as door:
        stores = [open_store(door.url, prefix) for _ in range(WORKERS)]
        workers = [Worker(app, store, settings(leader_backends=("none",))) for store in stores]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await asyncio.gather(*(worker.started.wait() for worker in workers))
        # A machine that stands still for a moment makes a crowd of anybody, but not each time.
        outages = 0
        while max(crowds := await outage(door)) >= 0.4:
            outages += 1
            assert outages < 4, (
                f"within a tenth of a second came {crowds[0]:.0%} of the tries, {crowds[1]:.0%} of those back"
            )
        await asyncio.gather(*(worker.stop(at_once=True) for worker in workers))
        await asyncio.gather(*running)
        for store in stores:
            await store.close()
    await safe.close()
