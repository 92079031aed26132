"""What shells complete, and how usage is shown."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def headrace(*arguments: str, program: str = "headrace", **environment: str) -> str:
    return subprocess.run(
        [BIN / program, *arguments], env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("headrace", "qu"), ["queue"]),
        (("headrace", "queue", "p"), ["pause", "purge"]),
        (("headrace", "status", "emails", "--pre"), ["--prefix"]),
        (("headrace", "status", "-o", "jso"), ["json", "jsonl"]),
    ],
)
def test_bash_completes_nouns_verbs_options_and_choices(typed: tuple[str, ...], offered: list[str]) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    words = " ".join(typed)
    code = f"""source <(headrace completion bash)
COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}
_headrace_completion headrace
printf '%s\\n' "${{COMPREPLY[@]}}\""""
    shown = subprocess.run(
        [bash, "-c", code], env={"PATH": f"{BIN}:/usr/bin:/bin"}, capture_output=True, text=True, timeout=60
    )
    assert (shown.stdout.split(), shown.stderr) == (offered, "")


def test_each_shell_has_a_script_that_asks_the_program_it_is_for() -> None:
    for shell, hook in (("bash", "complete -o default"), ("zsh", "compdef"), ("fish", "complete --command")):
        script = headrace("completion", shell)
        assert hook in script
        assert "_HEADRACE_COMPLETE" in script
    for_kubectl = headrace("completion", "bash", program="kubectl-headrace")
    assert "_KUBECTL_HEADRACE_COMPLETE" in for_kubectl
    assert for_kubectl.rstrip().endswith(" kubectl-headrace")


@pytest.mark.parametrize(
    ("shell", "given", "offered"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "headrace dead "}, "retry"),
        ("fish", {"_TYPER_COMPLETE_ARGS": "headrace dead ", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "retry"),
    ],
)
def test_zsh_and_fish_are_answered(shell: str, given: dict[str, str], offered: str) -> None:
    assert offered in headrace(_HEADRACE_COMPLETE=f"complete_{shell}", **given)


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (("status",), "headrace status [OPTIONS] QUEUE"),
        (("job", "retry"), "headrace job retry [OPTIONS] QUEUE ID..."),
        (("job", "enqueue"), "headrace job enqueue [OPTIONS] QUEUE TYPE [PAYLOAD]"),
        (("check",), "headrace check [OPTIONS] [QUEUE]..."),
    ],
)
def test_usage_shows_arguments_as_manual_pages_do(command: tuple[str, ...], usage: str) -> None:
    assert headrace(*command, "--help").splitlines()[0] == f"Usage: {usage}"
