"""``headrace queue apply``: makes queues what a file says, where there is no operator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.output import (
    Exit,
    Format,
    OutputOption,
    PrefixOption,
    UnchangedOption,
    UrlFileOption,
    UrlOption,
    chosen,
    fail,
    report,
    show,
    with_store,
)
from headrace.errors import InvalidInput
from headrace.queue_apply import Applied, apply_queue, plan_queue
from headrace.queue_file import read_queues, summaries
from headrace.stores import Store


def apply(
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="Queue objects as YAML or JSON; - for stdin.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    error_unchanged: UnchangedOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Create, promote and configure queues as a file of Queue objects says, without Kubernetes.

    The same again does nothing. What a spec leaves out is up to the workers' settings; a pause that it says nothing of
    stays. What only Kubernetes can do (workers, scaling, ...) is left aside. A queue that belongs to an object in
    Kubernetes is refused.
    """
    try:
        wanted = read_queues(_text(file))
    except InvalidInput as error:
        report(error)
    for line in summaries(wanted):
        print(line, file=sys.stderr)

    async def act(store: Store) -> list[Applied]:
        planned = [await plan_queue(store, each) for each in wanted]  # nothing is changed if one is refused
        return planned if dry_run else [await apply_queue(store, each) for each in wanted]

    found = with_store(chosen(redis_url, redis_url_file, prefix), act)
    data = [{"name": each.queue, "changed": each.changed, "dry_run": dry_run, **_data(each)} for each in found]
    marked = " (dry run)" if dry_run else ""
    rows = [
        (each.queue, _verb(each) + marked, ", ".join(f"{name}={new}" for name, _, new in each.settings))
        for each in found
    ]
    show(output, data, ("NAME", "RESULT", "SETTINGS"), rows)
    if error_unchanged and not any(each.changed for each in found):
        raise typer.Exit(Exit.UNCHANGED)


def _data(applied: Applied) -> dict[str, Any]:
    return {
        "created": applied.created,
        "promoted": applied.promoted,
        "settings": {name: {"before": old, "after": new} for name, old, new in applied.settings},
    }


def _verb(applied: Applied) -> str:
    if applied.created:
        return "created"
    if applied.promoted:
        return "promoted"
    return "configured" if applied.settings else "unchanged"


def _text(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"--file: {file} cannot be read ({getattr(error, 'strerror', None) or 'is not text'})")
