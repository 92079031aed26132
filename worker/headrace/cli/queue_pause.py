"""``headrace queue pause`` and ``resume``: no job is started, until somebody says so."""

from __future__ import annotations

from typing import Any, Literal

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
    report,
    show,
    with_store,
)
from headrace.cli.queue_object import set_paused
from headrace.cli.topology import QueueArgument
from headrace.errors import OwnedByObject, UnknownQueue
from headrace.pausing import pause_queue, resume_queue
from headrace.stores import Store
from headrace.topology import Topology

Verb = Literal["pause", "resume"]


def pause(
    queue: QueueArgument,
    error_unchanged: UnchangedOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Let workers start no more jobs. What runs ends, producers go on.

    If a Queue object owns the queue, its spec.paused is set, by the access to Kubernetes that kubectl would use.
    """
    _change("pause", queue, error_unchanged, output, chosen(redis_url, redis_url_file, prefix))


def resume(
    queue: QueueArgument,
    error_unchanged: UnchangedOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Let a queue take and run jobs again: the end of a pause, and of taking no new jobs."""
    _change("resume", queue, error_unchanged, output, chosen(redis_url, redis_url_file, prefix))


def _change(verb: Verb, queue: str, error_unchanged: bool, output: Format, given: dict[str, Any]) -> None:
    async def read(store: Store) -> Topology:
        topology = await store.read_topology(queue)
        if topology is None:
            raise UnknownQueue(queue)
        return topology

    before = with_store(given, read)
    try:
        in_object = set_paused(queue, before.owner, paused=verb == "pause") if before.owner else None
    except OwnedByObject as error:
        report(error)
    if (changed := in_object) is not None:
        _show(output, queue, verb, "object", changed)
    else:

        async def act(store: Store) -> Topology:
            # Its object, if there was one, is gone.
            return await (pause_queue if verb == "pause" else resume_queue)(store, queue, owned=True)

        changed = with_store(given, act).epoch != before.epoch
        _show(output, queue, verb, "topology", changed)
    if error_unchanged and not changed:
        raise typer.Exit(Exit.UNCHANGED)


def _show(output: Format, queue: str, verb: Verb, where: str, changed: bool) -> None:
    state = "paused" if verb == "pause" else "running"
    data = {"queue": queue, "state": state, "changed": changed, "where": where}
    show(output, data, ("NAME", "STATE", "CHANGED", "WHERE"), [(queue, state, changed, where)])
