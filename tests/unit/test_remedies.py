"""What a remedy tells somebody to type is a command of the program, with all that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import typer.main

from headrace.cli.main import app
from headrace.remedies import remedy
from headrace.stores.base import Leftover, LeftoverKind
from headrace.stores.redis.kinds import PARTITION_KINDS, QUEUE_KINDS, SHARED_KINDS

KEYS = ("", "*", *PARTITION_KINDS, *QUEUE_KINDS, *SHARED_KINDS)


def typed() -> Iterator[str]:
    """Every command that a remedy names, with values in the place of its capitals."""
    for kind in get_args(LeftoverKind):
        for key in KEYS:
            text = remedy("emails", Leftover(kind, key))
            assert text, kind
            for command in re.findall(r"`headrace ([^`]+)`", text):
                yield re.sub(r"\b(N|ID)\b", "7", command)


COMMANDS = sorted(set(typed()))


def parse(line: str) -> None:
    """Raise unless the line can be run."""
    command: Any = typer.main.get_command(app)
    words = line.split()
    while hasattr(command, "commands"):
        name = words.pop(0)
        if name not in command.commands:
            raise LookupError(f"no command {name!r}")
        command = command.commands[name]
    command.make_context("headrace", words)


def test_the_remedies_name_several_commands() -> None:
    assert {line.split()[0] for line in COMMANDS} >= {"audit", "topology", "job", "dead"}


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_that_a_remedy_names_can_be_typed(line: str) -> None:
    parse(line)


@pytest.mark.parametrize(
    "line", ["job show emails 7", "topology promote emails", "dead delete emails --ids 7", "audit"]
)
def test_a_command_that_is_none_is_found(line: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no command|missing|no such option"):
        parse(line)
