"""A loopback server that speaks enough of the MongoDB protocol for what FerretDB cannot: verdicts of a replica set."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import bson

Document = dict[str, Any]
HEADER = struct.Struct("<iiii")
OP_MSG, OP_REPLY, OP_QUERY = 2013, 1, 2004
HELLO = {
    "ok": 1.0,
    "isWritablePrimary": True,
    "helloOk": True,
    "minWireVersion": 0,
    "maxWireVersion": 21,
    "maxBsonObjectSize": 16_777_216,
    "maxMessageSizeBytes": 48_000_000,
    "maxWriteBatchSize": 100_000,
}


class WireServer:
    """``answers``: command name to what it is answered with; everything else succeeds. ``seen``: commands received."""

    def __init__(self) -> None:
        nothing = {"id": 0, "ns": "headrace.leader_election", "firstBatch": []}
        self.answers: dict[str, Document | Callable[[Document], Document]] = {"find": {"ok": 1.0, "cursor": nothing}}
        self.seen: list[Document] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> WireServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"mongodb://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/headrace?directConnection=true"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                length, request, _, opcode = HEADER.unpack(await reader.readexactly(HEADER.size))
                body = await reader.readexactly(length - HEADER.size)
                if opcode == OP_QUERY:
                    start = 4 + body.index(b"\0", 4) + 1 - 4 + 8
                    reply = bson.encode(self._answer(bson.decode(body[start:])))
                    data = struct.pack("<iqii", 8, 0, 0, 1) + reply
                    kind = OP_REPLY
                else:
                    reply = bson.encode(self._answer(self._command(body)))
                    data = struct.pack("<iB", 0, 0) + reply
                    kind = OP_MSG
                writer.write(HEADER.pack(HEADER.size + len(data), 1, request, kind) + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @staticmethod
    def _command(body: bytes) -> Document:
        """Kind 0 is the command, kind 1 a list of documents under a name."""
        command: Document = {}
        position = 4
        while position < len(body):
            kind = body[position]
            position += 1
            size = int.from_bytes(body[position : position + 4], "little")
            if kind == 0:
                command = {**bson.decode(body[position : position + size]), **command}
            else:
                end = body.index(b"\0", position + 4)
                name = body[position + 4 : end].decode()
                command[name] = bson.decode_all(body[end + 1 : position + size])
            position += size
        return command

    def _answer(self, command: Document) -> Document:
        name = next(key for key in command if key not in ("documents", "updates"))
        if name in ("hello", "isMaster", "ismaster"):
            return HELLO
        self.seen.append(command)
        answer = self.answers.get(name, {"ok": 1.0, "n": 1, "nModified": 1})
        return answer(command) if callable(answer) else answer

    def commands(self, name: str) -> list[Document]:
        return [command for command in self.seen if name in command]
