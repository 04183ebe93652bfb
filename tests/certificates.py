"""Certificates of authorities of a test's own, as PEM files.

Used by the tests of TLS and of secrets in files.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

VALID_SECONDS = 10 * 86400.0


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates. Its own is in ``certificate``; all files are in its folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.certificate = folder / f"{name}.pem"
        builder = _builder(self._name, self._name, self._key, VALID_SECONDS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        _write_certificate(self.certificate, builder.sign(self._key, hashes.SHA256()))

    def issue(
        self, name: str, *hosts: str, ends_in_seconds: float = VALID_SECONDS, password: bytes | None = None
    ) -> Pair:
        """Sign a certificate for hosts: names or addresses; ``password`` encrypts its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._name, key, ends_in_seconds)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        _write_certificate(pair.certificate, builder.sign(self._key, hashes.SHA256()))
        encryption: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password)
        )
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, seconds: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(seconds=seconds))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
