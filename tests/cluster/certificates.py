"""One elliptic-curve authority per cluster and the certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Credential:
    """A private key and its certificate, both PEM."""

    key: bytes
    certificate: bytes

    def __repr__(self) -> str:
        return "Credential(...)"

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write ``<name>.crt`` and ``<name>.key`` (mode 0600); returns both paths."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        write_private(key, self.key)
        return certificate, key


class Authority:
    """A certificate authority, valid for a year from yesterday (clocks may differ a little)."""

    def __init__(self, name: str = "headrace-local") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
        )
        self.certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def client(self, user: str, *groups: str) -> Credential:
        """A client certificate: the API server takes CN as user and each O as a group."""
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._issue(subject, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), None)

    def server(self, user: str, hosts: list[str], *, peer: bool = False) -> Credential:
        """A serving certificate for names and addresses; a ``peer`` shows it to others of its kind as a client too."""
        entries: list[x509.GeneralName] = []
        for host in hosts:
            try:
                entries.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                entries.append(x509.DNSName(host))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if peer else [])]
        usage = x509.ExtendedKeyUsage(uses)
        return self._issue(subject, usage, x509.SubjectAlternativeName(entries))

    def _issue(
        self, subject: x509.Name, usage: x509.ExtendedKeyUsage, names: x509.SubjectAlternativeName | None
    ) -> Credential:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(usage, critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Credential(_pem(key), certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=365))
        )


def tls_context(authority: Authority, credential: Credential, *, server: bool) -> ssl.SSLContext:
    """A context that shows ``credential`` and trusts ``authority`` alone; a server demands a client certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    with tempfile.TemporaryDirectory() as folder:  # the module loads a key from a file only
        certificate, key = credential.write(Path(folder), "credential")
        context.load_cert_chain(certificate, key)
    return context


def signing_pair() -> tuple[bytes, bytes]:
    """A (private, public) PEM pair for service-account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _pem(key), public


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(data)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )
