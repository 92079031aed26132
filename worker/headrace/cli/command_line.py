"""How every command is read: exit codes of wrong usage, and usage lines in the form that manual pages have."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer._completion_classes import completion_init
from typer.core import TyperCommand, TyperGroup

from headrace.cli.output import Exit

F = TypeVar("F", bound=Callable[..., Any])

_INTERRUPTED = 130  # what Typer makes of a KeyboardInterrupt


class Command(TyperCommand):
    """A command whose usage shows ``QUEUE`` and ``[PAYLOAD]``, without the braces that Typer puts around the former."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the arguments as the usage line shows them."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


class Noun(typer.Typer):
    """The commands on one kind of thing: ``headrace NOUN VERB``."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """As of Typer, for a `Command`."""
        registered: Callable[[F], F] = super().command(name, **{"cls": Command, **options})
        return registered


def noun(help: str) -> Noun:
    """Return the place of the commands on one kind of thing."""
    return Noun(no_args_is_help=True, help=help)


class Root(TyperGroup):
    """Usage errors end with code 1: 2 means that a person declined, or pressed Ctrl-C."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As of Typer, with the exit codes of `headrace.cli.output.Exit`."""
        if any(name.endswith("HEADRACE_COMPLETE") for name in os.environ):
            completion_init()  # Typer does it itself only where it adds its own options for completion
        try:
            return super().main(*args, **kwargs)
        except SystemExit as ending:
            raise SystemExit(_exit_code(ending)) from None

    def invoke(self, ctx: Any) -> Any:
        """As of Typer, with errors in values told without what pydantic says before them."""
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
