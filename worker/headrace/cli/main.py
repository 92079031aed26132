"""Entry point of the command ``headrace``."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace.cli import dead, job, leader, queue, schedule, topology, types, worker
from headrace.cli.acl import acl
from headrace.cli.audit import audit_queue
from headrace.cli.cancelling import cancel, delete, retry
from headrace.cli.check import check
from headrace.cli.output import Exit
from headrace.cli.pausing import pause, resume
from headrace.cli.purging import purge
from headrace.cli.queues import describe_queue, list_queues
from headrace.cli.status import status
from headrace.cli.workers import list_workers, stop_claiming

_HELP = "Delayed-job queues on Redis: run workers, enqueue jobs, look after versions."
_INTERRUPTED = 130  # what Typer makes of a KeyboardInterrupt


class _Group(TyperGroup):
    """Usage errors end with code 1: 2 means that a person declined, or pressed Ctrl-C."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except SystemExit as ending:
            raise SystemExit(_exit_code(ending)) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:  # of the command, whose arguments are read here
            error.message = error.message.removeprefix("Value error, ")
            raise


def _exit_code(ending: SystemExit) -> int:
    cause = ending.__context__
    if isinstance(cause, typer.Abort):
        return Exit.CANCELLED
    if isinstance(cause, typer.Exit):
        return Exit.CANCELLED if cause.exit_code == _INTERRUPTED else cause.exit_code
    return Exit.ERROR if ending.code else Exit.OK


app = typer.Typer(
    name="headrace",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
worker.app.command("list")(list_workers)
worker.app.command("stop-claiming")(stop_claiming)
queue.app.command("list")(list_queues)
queue.app.command("describe")(describe_queue)
queue.app.command("pause")(pause)
queue.app.command("resume")(resume)
queue.app.command("purge")(purge)
job.app.command("cancel")(cancel)
job.app.command("delete")(delete)
job.app.command("retry")(retry)
app.add_typer(worker.app, name="worker")
app.add_typer(topology.app, name="topology")
app.add_typer(queue.app, name="queue")
app.add_typer(job.app, name="job")
app.add_typer(dead.app, name="dead")
app.add_typer(types.app, name="type")
app.add_typer(leader.app, name="leader")
app.add_typer(schedule.app, name="schedule")
app.command("status")(status)
app.command("audit")(audit_queue)
app.command("acl")(acl)
app.command("check")(check)


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
