"""A client in a process of its own that kills itself right after a command, before it reads the answer.

``python -m tests.conformance.mortal URL PREFIX OPERATION FOLDER`` does the operation again and again, each time in a
new process that dies one command later, of those that may change anything, and says line by line whether it was
``killed`` or has ``ended``. What its ledger says at that moment is in the file FOLDER/owed. It goes on when it reads a
line.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.lifecycle import promote
from headrace.redis.client import Command, RedisClient
from headrace.redis.packing import packed
from headrace.settings import QueueSettings, Retention
from headrace.stores.redis import RedisStore
from headrace.stores.redis.scripts import script
from tests.conformance.ledger import Ledger
from tests.conformance.steps import QUEUE
from tests.conformance.test_cut_connections import OPERATIONS, SCRIPTS, may_change

NAMES = {script(name).sha: name for name in SCRIPTS}


def name_of(command: Command) -> str:
    """The name of a command, or of the script that it runs."""
    sent = str(command[0])
    return NAMES.get(str(command[1]), sent) if sent == "EVALSHA" else sent


async def once(url: str, prefix: str, operation: str, folder: Path, at: int) -> None:
    """Do the operation, and die after command number ``at`` of those that may change anything."""
    store = RedisStore(url, prefix=prefix)
    await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))
    ledger, sent = Ledger(store), 0
    live = RedisClient.round_trip

    async def round_trip(client: RedisClient, commands: Sequence[Command], *, wait_ms: int = 0) -> list[Any]:
        nonlocal sent
        changes = any(map(may_change, map(name_of, commands)))
        sent += changes
        if sent < at or not changes:
            return await live(client, commands, wait_ms=wait_ms)
        pool = client._redis.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        await connection.send_packed_command(packed(connection, commands))
        (folder / "owed").write_text(json.dumps(sorted(each.hex() for each in ledger.owed)))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead")

    setattr(RedisClient, "round_trip", round_trip)  # noqa: B010 - of the class, so that every node of a Cluster counts
    await OPERATIONS[operation](ledger.store)
    (folder / "owed").write_text(json.dumps(sorted(each.hex() for each in ledger.owed)))


def main(url: str, prefix: str, operation: str, folder: Path) -> None:
    """Fork for each command."""
    at = 0
    while sys.stdin.readline():
        at += 1
        if (child := os.fork()) == 0:
            asyncio.run(once(url, f"{prefix}-{at}", operation, folder, at))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        told = {-signal.SIGKILL: "killed", 0: "ended"}.get(os.waitstatus_to_exitcode(status), "failed")
        print(told, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
