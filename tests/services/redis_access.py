"""How a Redis server is reached: who may log in, and with which certificates it speaks TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.cluster.certificates import Authority


@dataclass(frozen=True)
class Login:
    """The one user of a server, with all permissions. An empty user is ``default``, which has a password only."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"

    def options(self) -> tuple[str, ...]:
        """Command-line options of a server, as of one that follows another."""
        if not self.user:
            return ("--requirepass", self.password, "--masterauth", self.password)
        return (
            *("--user", self.user, "on", f">{self.password}", "~*", "&*", "+@all", "--user", "default", "off"),
            *("--masteruser", self.user, "--masterauth", self.password),
        )

    def client_options(self) -> dict[str, Any]:
        """Arguments of the library's client."""
        return {"username": self.user or None, "password": self.password}

    @property
    def in_url(self) -> str:
        """The part of a URL before the host."""
        return f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@"


@dataclass(frozen=True)
class Tls:
    """A server's certificate and key, and the authority that signed it, as files.

    ``client``: certificate and key of a client; if given, the server asks clients for one.
    """

    certificate: Path
    key: Path
    authority: Path
    client: tuple[Path, Path] | None = None

    @staticmethod
    def made(folder: Path, *hosts: str, asks_clients: bool = False) -> Tls:
        """Write certificates into the folder, signed by a new authority: one for the hosts (names or addresses)."""
        signer = Authority("redis-authority")
        ca = folder / "ca.crt"
        ca.write_bytes(signer.certificate)
        client = signer.client("worker").write(folder, "worker") if asks_clients else None
        return Tls(*signer.server("redis", list(hosts), peer=True).write(folder, "redis"), ca, client)

    def options(self, port: int) -> tuple[str, ...]:
        """Command-line options of a server that speaks TLS only, to its replicas too."""
        return (
            *("--port", "0", "--tls-port", str(port), "--tls-replication", "yes"),
            *("--tls-auth-clients", "yes" if self.client else "no"),
            *("--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key)),
            *("--tls-ca-cert-file", str(self.authority)),
        )

    def client_options(self) -> dict[str, Any]:
        """Arguments of the library's client."""
        own = {"ssl_certfile": str(self.client[0]), "ssl_keyfile": str(self.client[1])} if self.client else {}
        return {"ssl": True, "ssl_ca_certs": str(self.authority), **own}

    def context(self) -> ssl.SSLContext:
        """A context that trusts the authority."""
        context = ssl.create_default_context(cafile=str(self.authority))
        if self.client:
            context.load_cert_chain(*self.client)
        return context
