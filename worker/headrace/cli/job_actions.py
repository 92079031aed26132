"""``headrace job cancel``, ``delete`` and ``retry``: ends single jobs, or lets dead ones run again."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

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
from headrace.dead_letters import newest_letter, retry_dead
from headrace.inquiry import Inquiry
from headrace.producer import Producer
from headrace.stores import Store
from headrace.withdrawal import Cancellation, cancel_jobs, delete_job

IdsArgument = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of jobs.")]
_COLUMNS = ("NAME", "STATE", "RESULT")


def cancel(
    queue: QueueArgument,
    ids: IdsArgument,
    waiting_only: Annotated[bool, typer.Option("--waiting-only", help="Leave a job that runs alone.")] = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Cancel live jobs: one that waits never runs; of one that runs nothing counts, and its handler is told to stop.

    STATE: where it was. Nothing is kept of a cancelled job. Ends with 1 if one could not be cancelled.
    """

    async def act(store: Store) -> list[Cancellation]:
        return await cancel_jobs(store, queue, ids, running=not waiting_only)

    found = with_store(chosen(redis_url, redis_url_file, prefix), act)
    _end(output, queue, [(each.id, each.state, "cancelled" if each.cancelled else "unchanged") for each in found])


def delete(
    queue: QueueArgument,
    ids: IdsArgument,
    yes: YesOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Forget jobs that wait, and every dead letter of their ids. One that runs is refused: see `job cancel`.

    Ends with 1 if there was nothing of one of them.
    """
    if not yes:
        ask(f"delete {len(ids)} job(s) and their dead letters", queue)

    async def act(store: Store) -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = []
        for id in dict.fromkeys(ids):
            removed = await delete_job(store, queue, id)
            found += [(id, state, "deleted") for state in removed] or [(id, "unknown", "unchanged")]
        return found

    _end(output, queue, with_store(chosen(redis_url, redis_url_file, prefix), act))


def retry(
    queue: QueueArgument,
    ids: IdsArgument,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Put dead jobs back into the active version, to run now with all their runs before them.

    Only dead ones: one that waits for its retry comes by itself, one that has succeeded is enqueued anew. Ends with 1
    if one of them is not dead. Many at once, by type or error: `headrace dead retry`.
    """

    async def act(store: Store) -> list[tuple[str, str, str]]:
        producer = Producer(store)
        found: list[tuple[str, str, str]] = []
        for id in dict.fromkeys(ids):
            state = (await Inquiry(store, queue).look([id]))[id].state
            letter = await newest_letter(store, queue, id) if state == "dead" else None
            done = letter is not None and await retry_dead(producer, store, letter)
            found.append((id, state, "enqueued" if done else "unchanged"))
            if state != "dead":
                print(f"job {id} is {state} and not dead, so there is nothing to put back", file=sys.stderr)
        return found

    _end(output, queue, with_store(chosen(redis_url, redis_url_file, prefix), act))


def _end(output: Format, queue: str, found: list[tuple[str, str, str]]) -> None:
    """Show what became of each job; end with 1 if something was not done."""
    data: list[dict[str, Any]] = [
        {"id": id, "queue": queue, "state": state, "result": result} for id, state, result in found
    ]
    show(output, data, _COLUMNS, found)
    if any(result == "unchanged" for _, _, result in found):
        raise typer.Exit(Exit.ERROR)
