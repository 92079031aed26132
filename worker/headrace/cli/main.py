"""Entry point of the command ``headrace``, which kubectl finds as ``kubectl headrace``, too."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from headrace.cli import dead, job, leader, queue, schedule, topology, type, worker
from headrace.cli.acl import acl
from headrace.cli.audit import audit_queue
from headrace.cli.check import check
from headrace.cli.command_line import Noun, Root
from headrace.cli.completion import completion
from headrace.cli.dead_import import import_dead
from headrace.cli.doctor import doctor
from headrace.cli.job_actions import cancel, delete, retry
from headrace.cli.queue_apply import apply
from headrace.cli.queue_list import describe_queue, list_queues
from headrace.cli.queue_pause import pause, resume
from headrace.cli.queue_purge import purge
from headrace.cli.status import status
from headrace.cli.worker_list import describe_worker, list_workers, stop_claiming

_HELP = "Delayed-job queues on Redis: run workers, enqueue jobs, look after versions."

app = Noun(
    name="headrace",
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
worker.app.command("list")(list_workers)
worker.app.command("describe")(describe_worker)
worker.app.command("stop-claiming")(stop_claiming)
queue.app.command("list")(list_queues)
queue.app.command("describe")(describe_queue)
queue.app.command("apply")(apply)
queue.app.command("pause")(pause)
queue.app.command("resume")(resume)
queue.app.command("purge")(purge)
job.app.command("cancel")(cancel)
job.app.command("delete")(delete)
job.app.command("retry")(retry)
dead.app.command("import")(import_dead)
app.add_typer(worker.app, name="worker")
app.add_typer(topology.app, name="topology")
app.add_typer(queue.app, name="queue")
app.add_typer(job.app, name="job")
app.add_typer(dead.app, name="dead")
app.add_typer(type.app, name="type")
app.add_typer(leader.app, name="leader")
app.add_typer(schedule.app, name="schedule")
app.command("status")(status)
app.command("audit")(audit_queue)
app.command("acl")(acl)
app.command("check")(check)
app.command("doctor")(doctor)
app.command("completion")(completion)


def _show_version(asked: bool) -> None:
    if asked:
        print(installed_version("headrace"))
        raise typer.Exit()


@app.callback(help=_HELP)
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version of Headrace.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
def version() -> None:
    """Print the version of Headrace."""
    print(installed_version("headrace"))


if __name__ == "__main__":
    app()
