"""The table of commands in docs/operating.md is that of the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from headrace.cli.main import app
from tests.docs.blocks import ROOT

ROWS = [line for line in (ROOT / "docs" / "operating.md").read_text().splitlines() if line.startswith("| `headrace ")]


def commands(group: Any, *before: str) -> Iterator[str]:
    """Every command, as it is typed."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *before, name)
        else:
            yield " ".join((*before, name))


def documented() -> Iterator[str]:
    """Every command that a row begins with; further verbs of a noun follow in the same cell: `, `verb``."""
    for row in ROWS:
        first, *others = re.findall(r"`([^`]+)`", row.split(" | ")[0])
        words = re.match(r"headrace ((?:[a-z][a-z-]* ?)+)", first)
        assert words, row
        yield words[1].strip()
        yield from (f"{words[1].split()[0]} {re.match('[a-z-]+', other)[0]}" for other in others)  # type: ignore[index]


def test_every_command_has_a_row_and_every_row_a_command() -> None:
    assert sorted(documented()) == sorted(commands(typer.main.get_command(app)))


def test_every_option_that_a_row_names_is_one_of_its_command() -> None:
    root: Any = typer.main.get_command(app)
    for row in ROWS:
        first = re.findall(r"`headrace ((?:[a-z][a-z-]* ?)+)", row)[0].split()
        command = root
        for word in first:
            command = command.commands[word]
        known = {option for each in (root, command) for parameter in each.params for option in parameter.opts}
        for option in re.findall(r"`(--[a-z-]+)", row.split(" | ", 1)[1]):
            assert option in known, (row, option)
