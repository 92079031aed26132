"""What is shown: progress bars on a terminal, plain lines elsewhere, and a table at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table

if TYPE_CHECKING:
    from examples.demo.scenario import Outcome

LINE_SECONDS = 2.0


@dataclass(slots=True)
class Progress:
    """How far it is: jobs sent, jobs run by version, jobs left in the old version."""

    files: int = 0
    sent: int = 0
    old_partitions: int = 0
    new_partitions: int = 0
    jobs: dict[int, int] = field(default_factory=dict)
    left: int = 0

    def line(self) -> str:
        """Return it as one line."""
        return (
            f"sent {self.sent}/{self.files}, run by v1 {self.jobs.get(1, 0)}, by v2 {self.jobs.get(2, 0)}, "
            f"left in v1 {self.left}"
        )


class Report:
    """Tells the user what happens."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = 120  # of a log file, which has none
        self._begun = time.monotonic()
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last_line = ""
        self._last_time = 0.0

    def step(self, text: str) -> None:
        """Say what begins now."""
        self._console.print(f"[dim]{time.monotonic() - self._begun:6.1f} s[/]  {text}")

    def say(self, text: str) -> None:
        """Show text as it is."""
        self._console.print(text, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def bars(self) -> Iterator[None]:
        """Keep progress bars on the terminal while the block runs."""
        if not self._console.is_terminal:
            yield
            return
        columns = (TextColumn("          {task.description:<12}"), BarColumn(40), TextColumn("{task.completed:.0f}"))
        with Bars(*columns, console=self._console, transient=True) as bars:
            self._bars = bars
            self._tasks = {name: bars.add_task(name, total=None) for name in ("sent", "run by v1", "run by v2")}
            self._tasks["left in v1"] = bars.add_task("left in v1", total=None)
            try:
                yield
            finally:
                self._bars = None

    def show(self, progress: Progress) -> None:
        """Show how far it is."""
        if self._bars is not None:
            values = {
                "sent": progress.sent,
                "run by v1": progress.jobs.get(1, 0),
                "run by v2": progress.jobs.get(2, 0),
                "left in v1": progress.left,
            }
            for name, value in values.items():
                self._bars.update(self._tasks[name], completed=value, total=progress.files)
            return
        line, now = progress.line(), time.monotonic()
        if line != self._last_line and now - self._last_time >= LINE_SECONDS:
            self._last_line, self._last_time = line, now
            self.step(line)

    def finish(self, outcome: Outcome) -> None:
        """Show the result."""
        versions = Table("version", "partitions", "jobs run", title="Who ran what", title_justify="left")
        for version, partitions in ((1, 4), (2, 16)):
            versions.add_row(f"v{version}", str(partitions), str(outcome.jobs.get(version, 0)))
        proofs = Table("holds", "what", "otherwise", title="What must hold", title_justify="left")
        for check in outcome.checks:
            proofs.add_row("[green]yes[/]" if check.holds else "[red]NO[/]", check.claim, check.problem)
        self._console.print()
        self._console.print(versions)
        self._console.print(
            f"v1 held {outcome.left_at_bump} jobs when the version was bumped; v2 was active after "
            f"{outcome.active_after} s, v1 was gone after {outcome.gone_after} s."
        )
        self._console.print()
        self._console.print(proofs)
        verdict = "[green]Everything holds.[/]" if outcome.passed else "[red]The demo failed.[/]"
        self._console.print(f"{verdict} {time.monotonic() - self._begun:.0f} s in all.")
