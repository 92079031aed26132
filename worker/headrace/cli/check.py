"""``headrace check``: whether the servers, and queues on them, are fit for jobs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, NamedTuple

import typer

from headrace.cli.output import (
    Exit,
    Format,
    OutputOption,
    PrefixOption,
    UrlFileOption,
    UrlOption,
    chosen,
    show,
    with_store,
)
from headrace.drift import queue_findings
from headrace.errors import AccessDenied, StoreUnavailable
from headrace.server_facts import Finding, ServerFacts, findings, unsafe
from headrace.stores import Store

_SERVERS = ("SERVER", "VERSION", "ROLE", "MEMORY", "USED", "POLICY", "SAVES", "REPLICAS", "LATENCY")
_FINDINGS = ("LEVEL", "FOUND", "WHERE", "PROBLEM")
LOOK_AGAIN_SECONDS = 1.0


class Checked(NamedTuple):
    """What was looked at and found."""

    servers: list[ServerFacts]
    found: list[Finding]


def check(
    queues: Annotated[
        list[str] | None, typer.Argument(metavar="QUEUE", help="Queues to compare with their topology.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as failures.")] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="Wait so long until all is well.")
    ] = 0.0,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Look at the servers: version, memory, eviction, persistence, replicas, time to answer.

    Ends with 1 if jobs may vanish in normal operation (level unsafe), with 124 if --wait was not long enough.
    """

    async def act(store: Store) -> Checked | None:
        until = time.monotonic() + wait
        while True:
            last = time.monotonic() >= until
            try:
                checked = await _checked(store, queues or [])
                if last or not failing(checked.found, strict=strict):
                    return checked
            except AccessDenied:
                raise
            except StoreUnavailable as error:
                if last and wait:
                    print(f"Error: {error}", file=sys.stderr)
                    return None
                if last:
                    raise
            await asyncio.sleep(min(LOOK_AGAIN_SECONDS, max(0.0, until - time.monotonic())))

    checked = with_store(chosen(redis_url, redis_url_file, prefix), act, check=not wait)
    if checked is None:
        raise typer.Exit(Exit.TIMED_OUT)
    _print(output, checked, strict=strict)
    if failing(checked.found, strict=strict):
        raise typer.Exit(Exit.TIMED_OUT if wait else Exit.ERROR)


async def _checked(store: Store, queues: Sequence[str]) -> Checked:
    await store.check()
    servers = await store.facts()
    of_queues = [finding for queue in queues for finding in await queue_findings(store, queue)]
    return Checked(servers, [*findings(servers), *of_queues])


def failing(found: Sequence[Finding], *, strict: bool) -> bool:
    """Whether the findings make the command fail."""
    return bool(unsafe(found)) or (strict and any(finding.level == "warning" for finding in found))


def _print(output: Format, checked: Checked, *, strict: bool) -> None:
    data = {
        "ok": not failing(checked.found, strict=strict),
        "servers": [asdict(server) | {"memory_ratio": server.memory_ratio} for server in checked.servers],
        "findings": [finding._asdict() for finding in checked.found],
    }
    show(output, data, _SERVERS, [_row(server) for server in checked.servers])
    if output is Format.TABLE:
        print()
        if checked.found:
            rows = [(finding.level, finding.code, finding.where, finding.problem) for finding in checked.found]
            show(output, None, _FINDINGS, rows)
            for remedy in dict.fromkeys(finding.remedy for finding in checked.found if finding.level != "note"):
                print(f"- {remedy}")
        else:
            print("nothing to say against it")


def _row(server: ServerFacts) -> tuple[Any, ...]:
    saves = {True: "snapshots", False: "nothing", None: "unknown"}[server.snapshots]
    ratio = server.memory_ratio
    return (
        server.address,
        server.version,
        server.role,
        f"{server.used_bytes / 2**20:.1f}Mi" + (f"/{server.max_bytes / 2**20:.0f}Mi" if server.max_bytes else ""),
        None if ratio is None else f"{ratio:.0%}",
        server.policy,
        "appends" if server.append_only else saves,
        server.replicas,
        f"{server.latency_ms:.1f}ms",
    )
