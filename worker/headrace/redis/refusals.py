"""What an error of Redis, or of the connection to it, means to us: the typed error for it, without any credential."""

from __future__ import annotations

import re
from collections.abc import Callable

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from headrace.errors import (
    AccessDenied,
    DataDamaged,
    HeadraceError,
    InvalidInput,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    UnsupportedServer,
)
from headrace.redis.no_answer import why

OLDEST_SERVER = (6, 2)
OLDEST = ".".join(map(str, OLDEST_SERVER))

_REFUSED: dict[str, str] = {
    "READONLY": "is a read-only replica now; waiting for the primary",
    "LOADING": "is loading its data set",
    "MASTERDOWN": "is a replica without its primary; waiting for a primary",
    "CLUSTERDOWN": "does not serve this slot now: a part of the cluster is down",
    "NOREPLICAS": "has fewer replicas than its min-replicas-to-write and refuses writes; see to the replicas",
    "MISCONF": "cannot save its data and refuses writes; see to its disk and its log",
    "BUSY": "is busy with a script of somebody else; SCRIPT KILL ends it",
    "UNBLOCKED": "changed its role while a call waited; waiting for the primary",
}
"""Nothing was applied, and it may work later. Before Redis 7 the word of an error in a script is not the first."""

_RULE = "give its user the rule that `headrace acl` prints, anew after an upgrade"

_SIGNS: tuple[tuple[re.Pattern[str], Callable[[str, str], HeadraceError]], ...] = (
    (
        re.compile(r"\bOOM\b"),
        lambda where, _: StoreFull(f"{where} is out of memory (maxmemory) and refused the call; free or add memory"),
    ),
    (
        re.compile(rf"\b({'|'.join(_REFUSED)})\b"),
        lambda where, sign: StoreRefused(f"{where} {_REFUSED[sign]}"),
    ),
    (
        # In the words of Redis before 7.2, and of Valkey, where that is no NOPERM.
        re.compile(r"(?:The user executing the script can't|ACL failure in script:) .*?(?= script:|$)"),
        lambda where, sign: AccessDenied(
            f"{where} forbids a command or a key that a script of Headrace needs ({sign}); {_RULE}",
            half_way=True,
        ),
    ),
    (
        # Redis ends only a script that has written nothing yet.
        re.compile(r"\bScript killed by user"),
        lambda where, _: StoreRefused(f"{where} ended the call, for somebody has sent SCRIPT KILL"),
    ),
    (
        re.compile(r"Script attempted to execute a (?:write )?command while the cluster is down"),
        lambda where, _: StoreRefused(f"{where} {_REFUSED['CLUSTERDOWN']}"),
    ),
    (
        # What a script has removed and writes again is missing on the old node of a slot that is on its way.
        re.compile(r"Script attempted to access a non local key"),
        lambda where, _: StoreUnavailable(f"{where} ended the call half-way, for its slot moves to another node"),
    ),
    (
        re.compile(r"unknown (?:subcommand|command|redis command)", re.IGNORECASE),
        lambda where, _: UnsupportedServer(
            f"{where} lacks a command that is used; Headrace needs Redis {OLDEST} or newer, or Valkey, and all commands"
        ),
    ),
    (
        # Ours were run on servers that know all of it, so this one does not.
        re.compile(r"syntax error|wrong number of arguments", re.IGNORECASE),
        lambda where, _: UnsupportedServer(
            f"{where} lacks an option of a command that is used; Headrace needs Redis {OLDEST} or newer, or Valkey"
        ),
    ),
    (
        re.compile(r"DB index"),
        lambda where, _: InvalidInput("store URL", f"{where} has no database of that number", "give a lower one, or 0"),
    ),
    (
        re.compile(r"cluster support disabled"),
        lambda where, _: InvalidInput(
            "store URL", f"{where} is no node of a Redis Cluster", "give redis:// instead of redis+cluster://"
        ),
    ),
)

_DAMAGE = re.compile(r"user_script:\d|\bWRONGTYPE\b|\bnot (?:an integer|a (?:valid )?float)\b")
"""A script or a command met what no step of ours has written."""
_PLACE = re.compile(r"^(?:\w+ )?Error running script.*?user_script:\d+: |^(?:ERR )?user_script:\d+: ")
_BEHIND = re.compile(r" script: [0-9a-f]{40}.*$")


class NotConnected(RedisError):
    """There was no connection, and none could be made: nothing of the call was sent. ``why``: the library's error."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


class Redirected(HeadraceError):
    """A cluster node did not run a command: its slot is elsewhere, or on its way. Nothing was applied."""

    def __init__(self, where: str, error: MovedError | AskError | TryAgainError) -> None:
        super().__init__(f"{where} is a node of a Redis Cluster; connect with redis+cluster://")
        self.error = error


def translated(error: Exception, server: str, *, tls: bool, spoke_before: bool) -> HeadraceError:
    """Return the typed error for one of the Redis library's.

    ``server``: its name that may be shown. ``tls``, ``spoke_before``: see `headrace.redis.no_answer.why`.
    """
    where = f"redis {server}"
    match error:
        case NotConnected():
            cause = translated(error.why, server, tls=tls, spoke_before=spoke_before)
            return StoreRefused(str(cause)) if type(cause) is StoreUnavailable else cause
        case MovedError() | AskError() | TryAgainError():
            return Redirected(where, error)
        case AuthenticationError():
            return AccessDenied(f"{where} refused the credentials; check user and password of the connection")
        case NoPermissionError():
            remedy = "allow `+scan` too" if "'scan'" in str(error) else _RULE  # only an audit with --scan asks for it
            return AccessDenied(
                f"{where} forbids a command or a key that Headrace needs ({error}); {remedy}",
                half_way="in script" in str(error),
            )
        case BusyLoadingError():
            return StoreRefused(f"{where} {_REFUSED['LOADING']}")
        case ResponseError():
            return _refused(error, where)
        case _:
            told = why(error, tls=tls, spoke_before=spoke_before)
            return StoreUnavailable(f"{where} does not answer: {told}")


def _refused(error: ResponseError, where: str) -> HeadraceError:
    # The library takes the first word away where it knows it.
    word = next((word for kind, word in _WORDS if isinstance(error, kind)), "")
    text = f"{word} {error}".strip()
    for sign, explain in _SIGNS:
        if found := sign.search(text[:200]):
            return explain(where, found[0])
    if _DAMAGE.search(text):
        if "WRONGTYPE" in text:
            return DataDamaged("", "is of another kind than it should be")
        return DataDamaged("", f"holds what cannot be read ({_BEHIND.sub('', _PLACE.sub('', text))[:200]})")
    return HeadraceError(f"{where}: {error}")


_WORDS = (
    (OutOfMemoryError, "OOM"),
    (ReadOnlyError, "READONLY"),
    (MasterDownError, "MASTERDOWN"),
    (ClusterDownError, "CLUSTERDOWN"),
)
