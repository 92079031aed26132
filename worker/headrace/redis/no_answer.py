"""Says why a server gave no answer, as far as the error tells, and what to look at. Never shows a credential."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from redis.exceptions import InvalidResponse


def why(error: BaseException, *, tls: bool, spoke_before: bool) -> str:
    """Return the reason and the remedy. ``tls``: the connection uses it; ``spoke_before``: it has worked before."""
    for cause in _causes(error):
        match cause:
            case ConnectionRefusedError():
                return "connection refused; check host and port, and that the server runs"
            case socket.gaierror():
                return "its host name is unknown; check it"
            case ssl.SSLCertVerificationError():
                return f"its certificate is not trusted ({cause.verify_message}); add ssl_ca_certs=FILE to the URL"
            case ssl.SSLError():
                return "the TLS handshake failed; a server without TLS needs redis:// instead of rediss://"
            case InvalidResponse():
                return "something there does not speak the Redis protocol; check host and port"
            case TimeoutError():
                return "no answer in time; check host, port and network"
            case ConnectionResetError() | BrokenPipeError() | EOFError():
                return _closed(tls, spoke_before)
    if "closed" in str(error):
        return _closed(tls, spoke_before)
    if "Timeout" in type(error).__name__:
        return "no answer in time; check host, port and network"
    return type(error).__name__


def _closed(tls: bool, spoke_before: bool) -> str:
    if tls or spoke_before:
        return "the connection was closed"
    return "the connection was closed; a server with TLS needs rediss:// instead of redis://"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
