"""``headrace audit``: prove that every job of a queue is in one place."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Annotated, Any

import typer

from headrace.audit import Place, QueueAudit, audit
from headrace.cli.output import (
    Exit,
    Format,
    OutputOption,
    PrefixOption,
    UrlFileOption,
    UrlOption,
    YesOption,
    ask,
    chosen,
    show,
    with_store,
)
from headrace.cli.topology import QueueArgument
from headrace.ids import decode_id
from headrace.pacing import DEFAULT_LOAD
from headrace.remedies import remedy
from headrace.stores import Store
from headrace.stores.base import Leftover

SHOWN = 1000
"""Leftovers that a table shows; JSON has all of them."""

_COLUMNS = ("PARTITION", "KIND", "KEY", "NAME", "REPAIRED")


def audit_queue(
    queue: QueueArgument,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Mend what is found, after asking; each in one step that looks again first."),
    ] = False,
    scan: Annotated[
        bool, typer.Option("--scan", help="Look through all keys of the server, for those that nothing points to.")
    ] = False,
    load: Annotated[
        float, typer.Option("--load", help="Share of the time in which it keeps the store busy.", min=0.01, max=1.0)
    ] = DEFAULT_LOAD,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Prove, job by job, that each is in one place; name what a foreign hand has damaged. Only looks, unless --repair.

    Safe while the queue is in use. Ends with 1 if something is left, with 8 if a partition changed too fast to be
    followed to the end: then ask again, or pause the queue.
    """
    given = chosen(redis_url, redis_url_file, prefix)

    async def look(store: Store) -> QueueAudit:
        return await audit(store, queue, scan=scan, load=load)

    async def mend(store: Store) -> QueueAudit:
        return await audit(store, queue, repair=True, scan=scan, load=load)

    if scan:
        print("looking through all keys of the server", file=sys.stderr)
    found = with_store(given, look)
    if repair and found.open:
        if not yes:
            _tell(found)
            ask(f"repair {len(found.open)} leftover(s)", queue)
        found = with_store(given, mend)
    _show(output, found)
    if found.open:
        raise typer.Exit(Exit.ERROR)
    if found.unproven:
        raise typer.Exit(Exit.PENDING)


def _tell(found: QueueAudit) -> None:
    """Say what is about to be repaired, by kind."""
    for kind, number in Counter(place.leftover.kind for place in found.open).most_common():
        print(f"{number} {kind}", file=sys.stderr)


def _show(output: Format, found: QueueAudit) -> None:
    data: dict[str, Any] = {
        "queue": found.queue,
        "partitions": found.partitions,
        "jobs": found.records,
        "steps": found.steps,
        "leftovers": [_described(place) | {"remedy": _remedy(found, place)} for place in found.leftovers],
        "unproven": found.unproven,
    }
    if output is not Format.TABLE or found.leftovers:
        rows = [tuple(_described(place).values()) for place in found.leftovers[:SHOWN]]
        show(output, data, _COLUMNS, rows)
    if output is not Format.TABLE:
        return
    mended = len(found.leftovers) - len(found.open)
    print(
        f"{found.records} job(s) in {found.partitions} partition(s): {len(found.open)} leftover(s), {mended} repaired"
    )
    for (kind, key), text in {
        (place.leftover.kind, place.leftover.key): remedy(found.queue, place.leftover) for place in found.open
    }.items():
        print(f"{kind} ({key}): {text}", file=sys.stderr)
    if len(found.leftovers) > SHOWN:
        print(f"the table shows {SHOWN} of {len(found.leftovers)}; -o json has all", file=sys.stderr)
    if found.unproven:
        print(f"not proven, for they changed too fast or are damaged: {', '.join(found.unproven)}", file=sys.stderr)


def _remedy(found: QueueAudit, place: Place) -> str | None:
    return remedy(found.queue, place.leftover) or None


def _described(place: Place) -> dict[str, Any]:
    leftover = place.leftover
    return {
        "partition": place.label or None,
        "kind": leftover.kind,
        "key": leftover.key,
        "name": _name(leftover),
        "repaired": leftover.repaired,
    }


def _name(leftover: Leftover) -> str:
    """Return the job's id where there is one, else what is stored, readable."""
    key, stored = leftover.key, leftover.member
    if leftover.kind in ("key of another kind", "topology unreadable", "queue without topology", "contents unreadable"):
        return stored.decode(errors="replace")
    if key in ("scheduled", "retry", "leased", "suspects", "alone"):
        stored = stored[1:]
    elif key == "park":
        stored = stored.partition(b"\x00")[2][1:]
    elif key in ("dead", "letters"):
        stored, _, died = stored.rpartition(b"@")
        return f"{_decoded(stored)}@{died.decode(errors='replace')}"
    return _decoded(stored)


def _decoded(stored: bytes) -> str:
    try:
        return decode_id(stored)
    except ValueError:
        return stored.hex()
