"""Options in the query of a Redis URL: which there are, and what they mean to the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from headrace.errors import InvalidInput

_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS = (*_FILES, "ssl_cert_reqs", "ssl_check_hostname")
_SENTINEL = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True)
class Options:
    """What a query says. ``tls``, ``sentinel``: arguments of the library's connections; ``database`` of a socket."""

    tls: Mapping[str, Any] = field(default_factory=dict)
    sentinel: Mapping[str, str] = field(default_factory=dict, repr=False)
    database: int = 0


def read_options(query: str, *, tls: bool, sentinel: bool, socket: bool) -> Options:
    """Parse a query; raise InvalidInput, which shows names of options and of files, never a value that may be secret.

    ``tls``, ``sentinel``, ``socket``: what the URL's scheme allows for.
    """
    # It is no form: a plus is a plus, as it is in a password in front of the host.
    parsed = parse_qs(query.replace("+", "%2B"), keep_blank_values=True)
    given = {name: values[-1] for name, values in parsed.items()}
    allowed = (*(_TLS if tls else ()), *(_SENTINEL if sentinel else ()), *(("db",) if socket else ()))
    for name in given:
        if name in _TLS and not tls:
            raise InvalidInput("store URL", f"has {name} without TLS", f"begin it with {_with_tls(sentinel)}")
        if name not in allowed:
            known = ", ".join(allowed) or "no options"
            remedy = f"a URL such as redis://host:6379/0 takes with this scheme: {known}"
            raise InvalidInput("store URL", f"has an unknown option{_shown(name)}", remedy)
    database = given.get("db", "0")
    if not database.isdecimal():
        raise InvalidInput("store URL", "has a database that is not a number", "give db=NUMBER")
    return Options(
        _tls_arguments(given) if tls else {},
        {name.removeprefix("sentinel_"): given[name] for name in _SENTINEL if name in given},
        int(database),
    )


def _tls_arguments(given: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _FILES:
        if name in given:
            found[name] = _readable(name, given[name])
    if ("ssl_certfile" in found) != ("ssl_keyfile" in found):
        raise InvalidInput("store URL", "has one of ssl_certfile and ssl_keyfile", "give both, or none")
    verified = _choice(given, "ssl_cert_reqs", {"required": True, "none": False})
    hostname = _choice(given, "ssl_check_hostname", {"true": True, "false": False})
    found["ssl_cert_reqs"] = "required" if verified else "none"
    found["ssl_check_hostname"] = verified and hostname
    return found


def _choice(given: Mapping[str, str], name: str, choices: Mapping[str, bool]) -> bool:
    value = given.get(name, next(iter(choices))).lower()
    if value not in choices:
        raise InvalidInput("store URL", f"has a wrong {name}", f"give {' or '.join(choices)}")
    return choices[value]


def _readable(name: str, path: str) -> str:
    """Return the path of a file that can be read now: else every connection would fail without a reason."""
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        problem = f"names a file in {name} that cannot be read: {path} ({error.strerror})"
        raise InvalidInput("store URL", problem, "give the path of a PEM file") from None
    return path


def _shown(name: str) -> str:
    # What is not a name may be a part of a password with a bare '?' in it.
    return f" {name}" if name.isidentifier() and len(name) <= 40 else ""


def _with_tls(sentinel: bool) -> str:
    return "rediss+sentinel://" if sentinel else "rediss:// or rediss+cluster://"
