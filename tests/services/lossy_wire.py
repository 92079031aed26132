"""A wire to a server that loses replies: what was asked has been done, and nobody is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LossyWire:
    """Passes connections on to a loopback port. ``loses()``: whether the reply that has come is lost.

    A lost reply ends its connection, as when a machine in between dies. Use as an asynchronous context manager.
    """

    def __init__(self, port: int, loses: Callable[[], bool] = lambda: False) -> None:
        self._port = port
        self.loses = loses
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self.lost = 0

    async def __aenter__(self) -> LossyWire:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        asking = asyncio.create_task(self._pass_on(reader, back))
        answering = asyncio.create_task(self._answer(there, writer))
        self._pumps |= {asking, answering}
        await asyncio.wait([asking, answering], return_when=asyncio.FIRST_COMPLETED)
        for pump in (asking, answering):
            pump.cancel()
        await asyncio.gather(asking, answering, return_exceptions=True)
        self._pumps -= {asking, answering}
        writer.close()
        back.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self.loses():
                self.lost += 1
                return
            writer.write(data)
            await writer.drain()
