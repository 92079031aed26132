"""``headrace completion``: what lets a shell complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

PROGRAMS = ("headrace", "kubectl-headrace")


class Shell(StrEnum):
    """Shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a script that completes commands and options in a shell.

    bash: `source <(headrace completion bash)` in ~/.bashrc. zsh: the same, after compinit, in ~/.zshrc. fish:
    `headrace completion fish > ~/.config/fish/completions/headrace.fish`.
    """
    called = context.find_root().info_name
    program = called if called in PROGRAMS else PROGRAMS[0]
    variable = f"_{program}_COMPLETE".replace("-", "_").upper()
    print(get_completion_script(prog_name=program, complete_var=variable, shell=shell))
