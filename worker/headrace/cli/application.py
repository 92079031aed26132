"""Loads the application that a worker runs, and says what is wrong with it in terms of its author's own code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path

import headrace
from headrace.app import App, load_app
from headrace.cli.output import fail
from headrace.errors import InvalidInput

_NOT_THE_AUTHORS = (
    "<frozen importlib",
    *(f"{Path(str(each.__file__)).parent}{os.sep}" for each in (headrace, importlib)),
)


def load(name: str) -> App:
    """Import ``module:attribute``, looked for where the command was started, as ``python -m`` does.

    Whatever the module raises ends the command with its text and its own frames. Raises InvalidInput as `load_app`,
    and for an App without handlers.
    """
    sys.path.insert(0, os.getcwd())
    try:
        loaded = load_app(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, InvalidInput) and error.field == "app":
            raise
        module = name.partition(":")[0]
        fail(f"app: importing {module!r} failed: {_kind(error)}{_frames(error)}")
    if not loaded.handlers:
        raise InvalidInput("app", f"{name!r} has no handlers", "register at least one before the worker runs")
    return loaded


def _kind(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _frames(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list(
        [frame for frame in told.stack if not frame.filename.startswith(_NOT_THE_AUTHORS)]
    )
    lines = told.stack.format()
    if isinstance(error, SyntaxError):
        lines += list(told.format_exception_only())[:-1]  # where it is; the last line has been said
    return "\n" + "".join(lines).rstrip() if lines else ""
