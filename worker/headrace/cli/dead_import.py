"""``headrace dead import``: brings dead letters back that ``headrace dead export`` has written."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.output import (
    DryRunOption,
    Format,
    OutputOption,
    PrefixOption,
    UrlFileOption,
    UrlOption,
    chosen,
    fail,
    show,
    with_store,
)
from headrace.cli.topology import QueueArgument
from headrace.dead_letter_lines import Imported, import_letters, letter_of
from headrace.errors import InvalidInput
from headrace.stores import Store
from headrace.stores.base import DeadLetter


def import_dead(
    queue: QueueArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON lines, or - to read them from stdin.", show_default=False)
    ] = "-",
    dry_run: DryRunOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Add dead letters that `headrace dead export` has written, of this queue or of another one.

    The same again adds none. A letter whose id is live is kept out. All lines are looked at before the first is added.
    Nothing runs: see `headrace dead retry`.
    """
    letters = list(_letters(file))

    async def act(store: Store) -> Imported:
        return await import_letters(store, queue, letters, dry_run=dry_run)

    found = with_store(chosen(redis_url, redis_url_file, prefix), act)
    data: dict[str, Any] = {"queue": queue, "changed": not dry_run and found.added > 0, **found._asdict()}
    show(output, data, ("NAME", "MISSING" if dry_run else "ADDED", "EXISTING", "LIVE"), [(queue, *found)])


def _letters(file: str) -> Iterator[DeadLetter]:
    for number, text in enumerate(_lines(file), 1):
        if not text.strip():
            continue
        try:
            yield letter_of(json.loads(text))
        except InvalidInput as error:
            fail(f"line {number}: {error}; nothing was imported")
        except ValueError as error:
            fail(f"line {number}: is not JSON ({error}); nothing was imported")


def _lines(file: str) -> Iterator[str]:
    if file == "-":
        yield from sys.stdin
        return
    try:
        with Path(file).open() as lines:
            yield from lines
    except (OSError, UnicodeDecodeError) as error:
        fail(f"FILE: {file} cannot be read ({getattr(error, 'strerror', None) or 'is not text'})")
