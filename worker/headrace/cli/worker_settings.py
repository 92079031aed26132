"""``headrace worker run --show-settings``: which value of each setting holds, and who gave it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.cli.output import Format, show
from headrace.errors import HeadraceError
from headrace.settings import QueueSettings
from headrace.worker import WorkerSettings
from headrace.worker.provenance import Value, effective, overruled

_COLUMNS = ("SETTING", "VALUE", "GIVEN BY")


def show_values(settings: WorkerSettings, given_by: Mapping[str, str], form: Format) -> None:
    """Print the settings of a worker, and what its queues overrule of them, if the store answers."""
    values = effective(settings, given_by)
    live = asyncio.run(_live(settings))
    ruled = {queue: overruled(queue, each) for queue, each in live.items()}
    data = {"settings": _tree(values), "queues": {queue: _tree(each) for queue, each in ruled.items()}}
    rows = [value for each in (values, *ruled.values()) for value in each]
    show(form, data, _COLUMNS, [(row.setting, _shown(row.value), row.given_by) for row in rows])


async def _live(settings: WorkerSettings) -> dict[str, QueueSettings]:
    """Return the live settings of the queues; says of which they are not known."""
    found = {}
    store = settings.open_store()
    try:
        for queue in settings.queue_names:
            try:
                topology = await store.read_topology(queue)
            except HeadraceError as error:
                print(f"what queue {queue} overrules is not known: {error}", file=sys.stderr)
                continue
            if topology is None:
                print(f"queue {queue} does not exist yet, so it overrules nothing", file=sys.stderr)
            else:
                found[queue] = topology.settings
    finally:
        await store.close()
    return found


def _tree(values: Sequence[Value]) -> dict[str, Any]:
    return {each.setting: {"value": each.value, "given_by": each.given_by} for each in values}


def _shown(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value
