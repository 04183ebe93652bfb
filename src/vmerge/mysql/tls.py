"""TLS to one server: what is asked of it, and why it fails, in words.

Knows: modes, PEM files and the system's TLS library. Never knows: addresses, accounts or what a connection is for. Used
by ``connect.py``, and by ``config`` to try the files of a workflow before anything connects.

PyMySQL is given a finished context, never its own arguments: it would read all of the system's authorities for each
connection (30 ms), and ask on the terminal for the password of a key.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from pymysql.err import OperationalError


class TlsMode(Enum):
    """How much a connection asks of TLS; the names are those of MySQL's own clients."""

    DISABLED = "disabled"
    PREFERRED = "preferred"
    REQUIRED = "required"
    VERIFY_CA = "verify_ca"
    VERIFY_IDENTITY = "verify_identity"

    @property
    def verifies(self) -> bool:
        """Whether the server must prove who it is."""
        return self in (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY)


TLS_FAILED = 2026
"""The client library's number for TLS that cannot be had."""


class TlsFailure(OperationalError):
    """TLS cannot be had, and trying again does not change that."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(TLS_FAILED, text)
        self.text = text
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to one server; paths of PEM files."""

    mode: TlsMode = TlsMode.PREFERRED
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return what a connection is wrapped with; the files are read each time, as they may have been renewed.

        Raises:
            TlsFailure: a file cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.mode is TlsMode.VERIFY_IDENTITY
        context.verify_mode = ssl.CERT_REQUIRED if self.mode.verifies else ssl.CERT_NONE
        if self.ca is not None:
            self._load_authority(context, self.ca)
        if self.certificate is not None:
            self._load_certificate(context, self.certificate)
        return context

    def _load_authority(self, context: ssl.SSLContext, path: str) -> None:
        try:
            context.load_verify_locations(path)
        except OSError as error:
            raise TlsFailure(
                f"the file {path} of `ca` cannot be used: {_reason(error)}",
                "It must hold the authority's certificate in PEM form.",
            ) from error

    def _load_certificate(self, context: ssl.SSLContext, path: str) -> None:
        try:
            context.load_cert_chain(path, self.key, password=self._refuse_password)
        except OSError as error:
            raise TlsFailure(
                f"the client's certificate {path} cannot be used with the key {self.key or path}: {_reason(error)}",
                "Both must be PEM files, and the key that of this certificate.",
            ) from error

    def _refuse_password(self) -> NoReturn:
        raise TlsFailure(
            f"the key {self.key or self.certificate} is encrypted, and there is nobody to type its password",
            "Write it without one (`openssl pkey -in KEY -out NEW`), into a file that only vmerge's user may read.",
        )


def raise_if_tls_failed(error: OperationalError) -> None:
    """Tell in words that PyMySQL's connecting failed by TLS, if it did.

    A connection that breaks in the handshake is a lost one, and no failure of TLS.

    Raises:
        TlsFailure: it did.
    """
    if isinstance(error, TlsFailure):
        return
    if error.args[0] == TLS_FAILED:
        raise TlsFailure(
            "the server offers no TLS",
            "Give the server a certificate (ssl_cert, ssl_key), or choose another mode under `tls`.",
        )
    # An alert that comes behind the handshake is met by the first read.
    match getattr(error, "original_exception", error.__context__):
        case ssl.SSLCertVerificationError() as refused:
            raise TlsFailure(
                f"the server's certificate is refused: {refused.verify_message}",
                _CERTIFICATE_HINTS.get(refused.verify_code, _OTHER_AUTHORITY),
            )
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ssl.SSLSyscallError():
            return
        case ssl.SSLError() as failed if failed.reason in _OUR_CERTIFICATE:
            raise TlsFailure(
                f"the server refuses the client's certificate: {_reason(failed)}",
                "`tls.certificate` must be signed by the authority that the server trusts (@@ssl_ca), and be valid.",
            )
        case ssl.SSLError() as failed:
            raise TlsFailure(
                f"no TLS with the server: {_reason(failed)}",
                "See which versions the server offers (@@tls_version); vmerge needs 1.2 or 1.3.",
            )


_OTHER_AUTHORITY = "`tls.ca` must be the authority that signed the server's certificate."
_OTHER_HOST = (
    "Write as `host` a name that the certificate has (its subjectAltName; a common name does not count), or give the "
    "server a certificate for this one; `mode: verify_ca` does without the name."
)
_OTHER_TIME = "Renew the server's certificate; see that the clocks of both machines are right."
_CERTIFICATE_HINTS = {
    9: _OTHER_TIME,  # not yet valid
    10: _OTHER_TIME,  # expired
    62: _OTHER_HOST,  # another name
    64: _OTHER_HOST,  # another address
}
"""By OpenSSL's number of what was found (X509_V_ERR_…)."""

_OUR_CERTIFICATE = frozenset(
    {
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
    }
)
"""Alerts of a server that does not like what it was shown; the names are OpenSSL's, of whatever version of TLS."""


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason.lower().replace("_", " ") if error.reason else "it is not in PEM form"
    return error.strerror or str(error)
