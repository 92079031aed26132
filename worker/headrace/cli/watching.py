"""``-w``: a command that shows something again and again, until it is interrupted."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Annotated

import typer

EVERY_SECONDS = 2.0

WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Look again every 2 s and print what has changed, until Ctrl-C.")
]


def watched(look: Callable[[], None], watch: bool, sleep: Callable[[float], None] = time.sleep) -> None:
    """Call ``look``, which prints; with ``watch`` again and again, and pass its output on whenever it differs.

    Ctrl-C is how it ends, so it is no error. What ``look`` raises ends it.
    """
    if not watch:
        look()
        return
    last = None
    try:
        while True:
            with redirect_stdout(io.StringIO()) as seen:
                look()
            if seen.getvalue() != last:
                last = seen.getvalue()
                print(last, end="", flush=True)
            sleep(EVERY_SECONDS)
    except KeyboardInterrupt:
        return
