"""``headrace acl``: what a user of Redis must be allowed."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.output import Format, OutputOption, PrefixOption, chosen, fail, read_settings, show
from headrace.redis.permissions import rule


def acl(
    user: Annotated[str, typer.Argument(metavar="USER", help="Name of the user in Redis.")],
    output: OutputOption = Format.TABLE,
    prefix: PrefixOption = None,
) -> None:
    """Print the ACL rule for a user who may do what Headrace does under the prefix, and no more.

    For redis-cli, with a password in place of PASSWORD. Commands inside of scripts count too; no server is asked.
    """
    if not user or any(letter.isspace() for letter in user):  # Redis would take what follows for a rule
        fail(f"USER: {user!r} is no name of a user; give one word")
    rules = rule(read_settings(chosen(None, None, prefix)).prefix)
    if output is Format.TABLE:
        print("ACL SETUSER", user, "on", ">PASSWORD", *rules)
    else:
        show(output, {"user": user, "rules": rules}, (), ())
