"""Says why a server gave no answer, as far as the error tells, and what to look at. Never shows a credential."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import AuthenticationError, InvalidResponse

_OTHER_HOST = (62, 64)
"""OpenSSL's codes for a certificate that is valid, but for another name or address."""

_GIVE_OURS = "add ssl_certfile=FILE and ssl_keyfile=FILE to the URL"


def why(error: BaseException, *, tls: bool, spoke_before: bool) -> str:
    """Return the reason and the remedy. ``tls``: the connection uses it; ``spoke_before``: it has worked before."""
    if not isinstance(error, MasterNotFoundError):
        return _why(error, tls, spoke_before)
    if error.__cause__ is None:
        return "no Sentinel knows a primary of that name that is up; check the name, and the Sentinels' view of it"
    return f"no Sentinel answers: {_why(error.__cause__, tls, spoke_before)}"


def _why(error: BaseException, tls: bool, spoke_before: bool) -> str:
    for cause in _causes(error):
        match cause:
            case AuthenticationError():
                return "they refuse the credentials; give theirs as sentinel_username= and sentinel_password="
            case ConnectionRefusedError():
                return "connection refused; check host and port, and that the server runs"
            case socket.gaierror():
                return "its host name is unknown; check it"
            case ssl.SSLCertVerificationError() if cause.verify_code in _OTHER_HOST:
                return f"its certificate is for another host ({cause.verify_message}); use a name that it is made for"
            case ssl.SSLCertVerificationError():
                return f"its certificate is not trusted ({cause.verify_message}); add ssl_ca_certs=FILE to the URL"
            case ssl.SSLError() if "CERTIFICATE_REQUIRED" in (cause.reason or ""):
                return f"it asks for a certificate of ours; {_GIVE_OURS}"
            case ssl.SSLError():
                return "the TLS handshake failed; a server without TLS needs redis instead of rediss in the URL"
            case InvalidResponse():
                return "something there does not speak the Redis protocol; check host and port"
            case TimeoutError():
                return _silent(tls, spoke_before)
            case ConnectionResetError() | BrokenPipeError() | EOFError():
                return _closed(tls, spoke_before)
    if "max number of clients" in str(error):
        return "it has as many connections as it allows (maxclients); close some, or allow more"
    if "closed" in str(error):
        return _closed(tls, spoke_before)
    if "Timeout" in type(error).__name__:
        return _silent(tls, spoke_before)
    return type(error).__name__


def _silent(tls: bool, spoke_before: bool) -> str:
    if tls and not spoke_before:  # Redis without TLS takes the handshake for the beginning of a command
        return "no answer in time; check host, port and network; a server without TLS needs redis instead of rediss"
    return "no answer in time; check host, port and network"


def _closed(tls: bool, spoke_before: bool) -> str:
    if spoke_before:
        return "the connection was closed"
    if tls:  # its alert may be lost when it closes the connection at once
        return f"the connection was closed; if it asks for a certificate of ours, {_GIVE_OURS}"
    return (
        "the connection was closed; a server with TLS needs rediss instead of redis in the URL, and one with as many "
        "connections as it allows (maxclients) takes no more"
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
