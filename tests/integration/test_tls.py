"""TLS to real servers: what each mode accepts, and the one message for each thing that it does not."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from tests.certificates import Authority, Pair
from tests.integration.reading import READER_UUID
from tests.operating import wait_until

from vmerge.core.binlog import Surroundings
from vmerge.core.findings import Finding
from vmerge.core.position import GtidSet
from vmerge.core.projection import Carried
from vmerge.errors import SourceLost, SourceRejected, VmergeError
from vmerge.lab.servers import Lab, Server
from vmerge.mysql import sql
from vmerge.mysql.connect import Endpoint, short_connection
from vmerge.mysql.faults import source_fault
from vmerge.mysql.preflight_server import check_encryption, open_server
from vmerge.mysql.source import DumpSource, decompress
from vmerge.mysql.spool import SpooledRows
from vmerge.mysql.tls import Tls, TlsMode

pytestmark = pytest.mark.server

PASSWORD = "tls-s3cret"
ACCOUNTS = """
CREATE USER free IDENTIFIED BY '{password}';
CREATE USER needs_tls IDENTIFIED BY '{password}' REQUIRE SSL;
CREATE USER needs_certificate IDENTIFIED BY '{password}' REQUIRE X509;
"""
VERIFYING = (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY)


@dataclass
class Place:
    """A server whose certificate can be changed, and what was signed for it."""

    server: Server
    authority: Authority
    stranger: Authority
    """Signed nothing that the server knows."""
    good: Pair

    def present(self, pair: Pair | None) -> None:
        """Have the server show a certificate from now on, or do without TLS."""
        certificate, key = ("/none", "/none") if pair is None else (pair.certificate, pair.key)
        self.server.query("SET GLOBAL ssl_cert = %s", str(certificate))
        self.server.query("SET GLOBAL ssl_key = %s", str(key))
        self.server.query("ALTER INSTANCE RELOAD TLS" + (" NO ROLLBACK ON ERROR" if pair is None else ""))

    def endpoint(self, mode: TlsMode, *, user: str = "free", client: Pair | None = None) -> Endpoint:
        tls = Tls(
            mode,
            ca=str(self.authority.certificate) if mode.verifies else None,
            certificate=str(client.certificate) if client else None,
            key=str(client.key) if client else None,
        )
        return Endpoint("stream -80", "127.0.0.1", self.server.port, user, PASSWORD, tls=tls)


@pytest.fixture(scope="module")
def certified(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with a certificate for this machine."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder, "authority")
    good = authority.issue("good", "127.0.0.1", "localhost")
    files = {"ssl-ca": authority.certificate, "ssl-cert": good.certificate, "ssl-key": good.key}
    server = lab.start("certified", options={name: str(path) for name, path in files.items()})
    server.execute_script(ACCOUNTS.format(password=PASSWORD))
    yield Place(server, authority, Authority(folder, "stranger"), good)
    lab.remove(server)


@pytest.fixture
def place(certified: Place) -> Place:
    """The server with its good certificate."""
    certified.present(certified.good)
    return certified


def cipher(endpoint: Endpoint) -> str:
    with short_connection(endpoint, "asking", source_fault) as connection, connection.cursor() as cursor:
        cursor.execute(sql.READ_CIPHER)
        return str(cursor.fetchall()[0][1])


def refusal(endpoint: Endpoint) -> Finding:
    """Return what a check finds. The stream must stop with the same text, and neither may show the password."""
    finding = open_server(endpoint, ())
    assert isinstance(finding, Finding)
    error = dump_error(endpoint)
    assert isinstance(error, SourceRejected)
    for text in (finding.text, finding.hint, error.message, error.hint):
        assert text
        assert PASSWORD not in text
    assert error.hint == finding.hint
    assert error.message.rpartition(": ")[2] == finding.text.rpartition(": ")[2]
    return finding


def dump_error(endpoint: Endpoint) -> VmergeError:
    surroundings = Surroundings(Carried, SpooledRows, decompress, 1 << 20)
    source = DumpSource(endpoint, server_id=1, replica_uuid=READER_UUID, surroundings=surroundings)
    with pytest.raises(VmergeError) as raised:
        source.open(GtidSet())
    source.close()
    return raised.value


@pytest.mark.parametrize("mode", TlsMode)
def test_every_mode_takes_a_server_that_proves_itself(place: Place, mode: TlsMode) -> None:
    """A good certificate does for every mode, and all but one encrypt."""
    endpoint = place.endpoint(mode)
    for host in ("127.0.0.1", "localhost"):
        assert bool(cipher(replace(endpoint, host=host))) == (mode is not TlsMode.DISABLED)


def test_a_socket_is_encrypted_where_tls_is_asked_for(place: Place) -> None:
    """As MySQL's own clients do: `preferred` spares TLS on a socket, `required` does not."""
    path = str(place.server.socket_path)
    assert cipher(replace(place.endpoint(TlsMode.PREFERRED), unix_socket=path)) == ""
    assert cipher(replace(place.endpoint(TlsMode.REQUIRED), unix_socket=path)) != ""


@pytest.mark.parametrize("mode", VERIFYING)
def test_a_stranger_s_certificate_is_refused(place: Place, mode: TlsMode) -> None:
    """Another authority than the server's is told as that."""
    endpoint = place.endpoint(mode)
    finding = refusal(replace(endpoint, tls=replace(endpoint.tls, ca=str(place.stranger.certificate))))
    assert (finding.id, finding.where) == ("tls", "stream -80")
    assert "the server's certificate is refused: self-signed certificate in certificate chain" in finding.text
    assert "`tls.ca`" in finding.hint


def test_only_verify_identity_looks_at_the_host(place: Place) -> None:
    """A certificate of the right authority for another host is refused by the one mode that promises so."""
    place.present(place.authority.issue("elsewhere", "db.example.org"))
    for mode in (TlsMode.PREFERRED, TlsMode.REQUIRED, TlsMode.VERIFY_CA):
        assert cipher(place.endpoint(mode))
    finding = refusal(place.endpoint(TlsMode.VERIFY_IDENTITY))
    assert finding.id == "tls"
    assert "certificate is not valid for '127.0.0.1'" in finding.text
    assert "`host`" in finding.hint
    named = refusal(replace(place.endpoint(TlsMode.VERIFY_IDENTITY), host="localhost"))
    assert "not valid for 'localhost'" in named.text


def test_an_expired_certificate_is_refused(place: Place) -> None:
    """Both verifying modes see that a certificate has ended while the server ran; the others do not look."""
    place.present(place.authority.issue("brief", "127.0.0.1", ends_in_seconds=2))
    endpoint = place.endpoint(TlsMode.VERIFY_CA)
    wait_until(lambda: isinstance(open_server(endpoint, ()), Finding), "the certificate has ended")
    for mode in VERIFYING:
        finding = refusal(place.endpoint(mode))
        assert "certificate has expired" in finding.text
        assert "Renew" in finding.hint
    assert cipher(place.endpoint(TlsMode.REQUIRED))


def test_a_server_without_tls(place: Place) -> None:
    """What asks for TLS is refused; `preferred` and `disabled` go on in plain text."""
    place.present(None)
    assert cipher(place.endpoint(TlsMode.PREFERRED)) == ""
    assert cipher(place.endpoint(TlsMode.DISABLED)) == ""
    for mode in (TlsMode.REQUIRED, *VERIFYING):
        finding = refusal(place.endpoint(mode))
        assert finding.id == "tls"
        assert "the server offers no TLS" in finding.text
        assert "ssl_cert" in finding.hint


def test_what_accounts_require(place: Place) -> None:
    """Accounts with REQUIRE SSL and REQUIRE X509 take who comes so; others get a hint at what may be the cause."""
    client = place.authority.issue("client")
    assert cipher(place.endpoint(TlsMode.PREFERRED, user="needs_tls"))
    for mode in (TlsMode.REQUIRED, *VERIFYING):
        assert cipher(place.endpoint(mode, user="needs_certificate", client=client))
        finding = refusal(place.endpoint(mode, user="needs_certificate"))
        assert finding.id == "access-refused"
        assert "REQUIRE X509" in finding.hint
    assert refusal(place.endpoint(TlsMode.DISABLED, user="needs_tls")).id == "access-refused"


def test_a_client_s_certificate_that_the_server_does_not_know(place: Place) -> None:
    """The server may hang up before its alert is read, so this may look like a lost connection; the cause is told."""
    client = place.stranger.issue("unknown-client")
    error = dump_error(place.endpoint(TlsMode.REQUIRED, user="needs_certificate", client=client))
    assert isinstance(error, SourceLost | SourceRejected)
    assert "client's certificate" in error.message


def test_a_server_that_takes_encrypted_connections_only(place: Place) -> None:
    """With require_secure_transport, plain connections are told what to set."""
    place.server.query("SET GLOBAL require_secure_transport = ON")
    try:
        finding = refusal(place.endpoint(TlsMode.DISABLED))
        assert finding.id == "tls"
        assert "`tls`" in finding.hint
        assert cipher(place.endpoint(TlsMode.PREFERRED))
    finally:
        place.server.query("SET GLOBAL require_secure_transport = OFF")


@pytest.mark.parametrize(
    ("host", "mode", "warns"),
    [
        ("127.0.0.1", TlsMode.DISABLED, False),
        ("db.example.org", TlsMode.REQUIRED, False),
        ("db.example.org", TlsMode.DISABLED, True),
        ("192.0.2.1", TlsMode.DISABLED, True),
    ],
)
def test_plain_text_over_a_network_is_warned_of(place: Place, host: str, mode: TlsMode, warns: bool) -> None:
    """Whoever connects without TLS to another machine is told what that costs; this machine itself is no network."""
    endpoint = place.endpoint(mode)
    view = open_server(endpoint, ())
    assert not isinstance(view, Finding)
    found = [finding.id for finding in check_encryption(view, replace(endpoint, host=host))]
    view.close()
    assert found == (["unencrypted"] if warns else [])


def _packet(number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


def _greeting() -> bytes:
    flags = 0x00080000 | 0x8000 | 0x0200  # plugins, long passwords, protocol 4.1; no TLS
    head = (
        b"\x0a9.7.4\0"
        + struct.pack("<I", 1)
        + b"12345678\0"
        + struct.pack("<HBHH", flags & 0xFFFF, 255, 2, flags >> 16)
    )
    return _packet(0, head + bytes([21]) + bytes(10) + b"123456789012\0" + b"caching_sha2_password\0")


@contextmanager
def asking_for(plugin: bytes) -> Iterator[tuple[int, Callable[[], bytes]]]:
    """A server that asks for the password in a way of its choice; yields its port, and what it was told in the end."""
    told = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(_greeting())
                told.extend(connection.recv(4096))
                connection.sendall(_packet(2, b"\xfe" + plugin + b"\0" + b"Password: "))
                while part := connection.recv(4096):
                    told.extend(part)

        thread = threading.Thread(target=serve)
        thread.start()

        def ended() -> bytes:
            thread.join()
            return bytes(told)

        yield listening.getsockname()[1], ended
        thread.join()


@pytest.mark.parametrize("plugin", ["mysql_clear_password", "dialog", "mysql_old_password", "client_ed25519"])
def test_no_server_can_ask_the_password_out_of_us(plugin: str) -> None:
    """Whoever answers at the address may choose how the password is proven, but not one that gives it away."""
    with asking_for(plugin.encode()) as (port, told):
        finding = open_server(Endpoint("target", "127.0.0.1", port, "free", PASSWORD), ())
        assert PASSWORD.encode() not in told()
    assert isinstance(finding, Finding)
    assert finding.id == "tls"
    assert "the server asks for the password" in finding.text
    assert PASSWORD not in finding.text + finding.hint
