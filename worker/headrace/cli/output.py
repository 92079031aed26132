"""How every command speaks: tables or JSON on stdout, errors on stderr, and exit codes that scripts can rely on."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Annotated, Any, NoReturn, TypeVar

import typer
import yaml

from headrace.connection import ConnectionSettings, explain
from headrace.errors import AccessDenied, HeadraceError, InvalidInput, NotDrained
from headrace.setting_errors import InvalidSettings
from headrace.shown_text import harmless
from headrace.stores import Store

T = TypeVar("T")


class Exit(IntEnum):
    """Exit codes."""

    OK = 0
    ERROR = 1
    CANCELLED = 2
    UNCHANGED = 3
    AUTHENTICATION = 4
    PENDING = 8
    TIMED_OUT = 124


class Format(StrEnum):
    """Forms of output."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    NAME = "name"


OutputOption = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        help="URL of the store, without a password [env: HEADRACE_REDIS_URL; default: redis://127.0.0.1:6379/0].",
        show_default=False,
    ),
]
UrlFileOption = Annotated[
    str | None,
    typer.Option(
        "--redis-url-file", help="File that holds the URL [env: HEADRACE_REDIS_URL_FILE].", show_default=False
    ),
]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", help="Prefix of all keys [env: HEADRACE_PREFIX].", show_default=False)
]

UnchangedOption = Annotated[bool, typer.Option("--error-unchanged", help="End with code 3 if nothing was to change.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Count only.")]


def fail(message: str, code: Exit = Exit.ERROR) -> NoReturn:
    """Print an error and end with ``code``."""
    print(f"Error: {message}", file=sys.stderr)
    raise typer.Exit(code)


def chosen(redis_url: str | None, redis_url_file: str | None, prefix: str | None) -> dict[str, Any]:
    """Return the connection settings that were given on the command line, which win over the environment."""
    if redis_url is not None and redis_url_file is not None:
        fail("--redis-url and --redis-url-file exclude each other; give one")
    given: dict[str, Any] = {}
    if redis_url is not None:
        given.update(redis_url=redis_url, redis_url_file=None)
    if redis_url_file is not None:
        given["redis_url_file"] = redis_url_file
    if prefix is not None:
        given["prefix"] = prefix
    return given


def read_settings(given: dict[str, Any]) -> ConnectionSettings:
    """Return the connection settings; a wrong one ends with its message."""
    try:
        return ConnectionSettings(**given)
    except InvalidSettings as error:
        report(error, {name: f"--{name.replace('_', '-')}" for name in given})


def check_shared(settings: ConnectionSettings) -> None:
    """Raise InvalidInput for a store that nobody outside of this process could see."""
    if settings.store_url().startswith("memory:"):
        raise InvalidInput(
            "store URL",
            "memory:// lives within one process, and this command is a process of its own",
            "give the URL of a Redis; in a program or a test of yours, open memory:// there",
        )


def with_store(given: dict[str, Any], act: Callable[[Store], Awaitable[T]], *, check: bool = True) -> T:
    """Run ``act`` on the store; errors become messages and exit codes. ``check``: only if its server is new enough."""

    async def run() -> T:
        settings = ConnectionSettings(**given)
        check_shared(settings)
        store = settings.open_store()
        try:
            if check:
                await store.check()
            return await act(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except HeadraceError as error:
        report(error, {name: f"--{name.replace('_', '-')}" for name in given})


def report(error: HeadraceError, names: Mapping[str, str] | None = None) -> NoReturn:
    """End with the message and the exit code of an error; ``names``: as settings were given, if not by a variable."""
    if isinstance(error, InvalidSettings):
        fail("\n".join(explain(error, names)))
    code = Exit.ERROR
    if isinstance(error, AccessDenied):
        code = Exit.AUTHENTICATION
    elif isinstance(error, NotDrained):
        code = Exit.PENDING  # jobs run dry by themselves
    fail(str(error), code)


def ask(action: str, queue: str) -> None:
    """Ask a person whether to do ``action``; ends with code 2 if they decline, with 1 without a terminal."""
    if not sys.stdin.isatty():
        fail(f"this would {action}; without a terminal give --yes, or --dry-run to count only")
    if not typer.confirm(f"{action} of queue {queue}?", err=True):
        raise typer.Exit(Exit.CANCELLED)


def ask_for_name(action: str, queue: str) -> None:
    """Ask a person to type the queue's name before ``action``; ends as `ask`, with code 2 if it is another one."""
    if not sys.stdin.isatty():
        fail(f"this would {action}; without a terminal give --yes, or --dry-run to count only")
    if typer.prompt(f"This would {action}. Type the name of the queue to go on", err=True) != queue:
        raise typer.Exit(Exit.CANCELLED)


def show(form: Format, data: Any, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print ``data`` as JSON, YAML, JSON lines or names of its elements, or ``rows`` as a table under ``columns``."""
    if form is Format.JSON:
        print(json.dumps(data, indent=2, ensure_ascii=False))
        return
    if form is Format.YAML:
        print(yaml.safe_dump(json.loads(json.dumps(data)), sort_keys=False, allow_unicode=True).rstrip())
        return
    if form is not Format.TABLE:
        for each in data if isinstance(data, list) else [data]:
            print(json.dumps(each, ensure_ascii=False) if form is Format.JSONL else _name(each))
        return
    cells = [[*columns], *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(columns))]
    for row in cells:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _name(element: Mapping[str, Any]) -> str:
    return str(next((element[field] for field in ("name", "id", "type", "queue", "user") if field in element), ""))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return harmless(str(value))


def age(ms: int | None) -> str | None:
    """Return a duration for people: 850ms, 42s, 3m, 5h, 12d."""
    if ms is None:
        return None
    for limit, divisor, unit in (
        (1000, 1, "ms"),
        (120_000, 1000, "s"),
        (7_200_000, 60_000, "m"),
        (172_800_000, 3_600_000, "h"),
    ):
        if ms < limit:
            return f"{max(0, ms) // divisor}{unit}"
    return f"{ms // 86_400_000}d"
