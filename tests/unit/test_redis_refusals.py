"""Every error of a server is a typed one, whether its word stands first or, as before Redis 7, inside of another."""

from __future__ import annotations

from typing import Any, cast

import pytest
from redis._parsers.base import BaseParser

from headrace.errors import (
    AccessDenied,
    HeadraceError,
    InvalidInput,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    UnsupportedServer,
    not_applied,
)
from headrace.redis.refusals import Redirected, translated

WRAPPED = "ERR Error running script (call to f_0123abc): @user_script:12: @user_script: 12: -{}"

REFUSALS = [
    ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull, "out of memory"),
    ("READONLY You can't write against a read only replica.", StoreRefused, "read-only replica"),
    ("LOADING Redis is loading the dataset in memory", StoreRefused, "loading its data set"),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", StoreRefused, "primary"),
    ("CLUSTERDOWN The cluster is down", StoreRefused, "part of the cluster is down"),
    ("NOREPLICAS Not enough good replicas to write.", StoreRefused, "min-replicas-to-write"),
    (
        "MISCONF Redis is configured to save RDB snapshots, but cannot write to disk.",
        StoreRefused,
        "disk",
    ),
    (
        "BUSY Redis is busy running a script.",
        StoreRefused,
        "busy",
    ),
    ("UNBLOCKED force unblock from blocking operation, instance state changed", StoreRefused, "changed its role"),
    ("ERR Script killed by user with SCRIPT KILL... script: 694a5fe1, on @user_script:1.", StoreRefused, "SCRIPT KILL"),
    (
        "ERR Script attempted to execute a command while the cluster is down script: 694a5fe1, on @user_script:1.",
        StoreRefused,
        "part of the cluster is down",
    ),
    (
        "ERR Script attempted to access a non local key in a cluster node script: 694a5fe1, on @user_script:1.",
        StoreUnavailable,
        "its slot moves",
    ),
    ("ERR unknown command 'EVALSHA', with args beginning with: 'x'", UnsupportedServer, "Redis 6.2 or newer"),
    ("ERR Unknown Redis command called from script script: 1", UnsupportedServer, "Redis 6.2 or newer"),
]


def told(text: str) -> HeadraceError:
    return translated(cast(Any, BaseParser).parse_error(text), "one:6379/0", tls=False, spoke_before=True)


@pytest.mark.parametrize(("text", "kind", "words"), REFUSALS, ids=lambda value: str(value).partition(" ")[0])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_refusal_is_typed_and_says_what_to_look_at(
    text: str, kind: type[HeadraceError], words: str, wrapped: bool
) -> None:
    error = told(WRAPPED.format(text) if wrapped else text)
    assert type(error) is kind
    assert str(error).startswith("redis one:6379/0 ")
    assert words in str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ERR The user executing the script can't run this command or subcommand script: "
            "36cfe41e4f3241eeb63edb3fe8553049428055d9, on @user_script:1.",
            "can't run this command or subcommand)",
        ),
        (
            "ERR The user executing the script can't access at least one of the keys mentioned in the command "
            "arguments script: d7faeb20a02230768e7be3d6f5b54c47b143dee4, on @user_script:1.",
            "can't access at least one of the keys mentioned in the command arguments)",
        ),
        (
            "ERR ACL failure in script: User x has no permissions to run the 'hset' command script: on @user_script:1.",
            "no permissions to run the 'hset' command)",
        ),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_script_that_was_forbidden_something_may_have_been_applied_in_part(
    text: str, words: str, wrapped: bool
) -> None:
    error = told(WRAPPED.format(text.removeprefix("ERR ")) if wrapped else text)
    assert type(error) is AccessDenied
    assert error.half_way
    assert not not_applied(error)
    assert words in str(error)
    assert "`headrace acl`" in str(error)


def test_what_is_refused_before_it_begins_was_not_applied() -> None:
    assert not_applied(told("NOPERM User x has no permissions to run the 'evalsha' command"))
    assert not_applied(told("ERR Script killed by user with SCRIPT KILL... script: 694a5fe1, on @user_script:1."))
    assert not not_applied(told("NOPERM ACL failure in script: No permissions to access a key"))
    assert not not_applied(told("ERR Script attempted to access a non local key in a cluster node"))


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("NOAUTH Authentication required.", AccessDenied, "credentials"),
        ("WRONGPASS invalid username-password pair or user is disabled.", AccessDenied, "credentials"),
        (
            "NOPERM User x has no permissions to run the 'evalsha' command",
            AccessDenied,
            "run the 'evalsha' command); give its user the rule that `headrace acl` prints",
        ),
        ("NOPERM User x has no permissions to run the 'scan' command", AccessDenied, "allow `+scan` too"),
        ("ERR DB index is out of range", InvalidInput, "no database of that number"),
        ("ERR This instance has cluster support disabled", InvalidInput, "give redis:// instead of redis+cluster://"),
        ("ERR max number of clients reached", StoreUnavailable, "maxclients"),
        ("ERR something else", HeadraceError, "something else"),
        ("ERR unknown command 'EVALSHA'", UnsupportedServer, "needs Redis 6.2 or newer"),
        (
            "ERR Error running script (call to f_ab9d): @user_script:129: ERR syntax error",
            UnsupportedServer,
            "needs Redis 6.2 or newer",
        ),
        ("ERR wrong number of arguments for 'lpop' command", UnsupportedServer, "needs Redis 6.2 or newer"),
        ("MOVED 3999 127.0.0.1:6381", Redirected, r"redis+cluster://"),
    ],
)
def test_what_else_a_server_says(text: str, kind: type[HeadraceError], words: str) -> None:
    error = told(text)
    assert type(error) is kind
    assert words in str(error)
