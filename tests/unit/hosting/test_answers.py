"""Who may ask a daemon: over TCP those with the token, on the socket nobody in the name of a foreign site."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from vmerge.hosting.answers import Headers, from_this_machine, json_answer, questions_with, send


def request(method: str = "GET", path: str = "/v1/status", **headers: str) -> dict[str, Any]:
    """Return a request; ``host="x"`` is the header ``Host: x``."""
    named = {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    return {"REQUEST_METHOD": method, "PATH_INFO": path, **named}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:9464", "[::1]", "[::1]:9464", ""])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_on_the_socket_programs_ask(method: str, host: str) -> None:
    """A program that names this machine, in whatever way, gets through."""
    assert from_this_machine(request(method, host=host)) is None


def test_on_the_socket_a_program_need_not_name_it() -> None:
    """A request without any of these headers gets through."""
    assert from_this_machine(request("POST")) is None


@pytest.mark.parametrize("host", ["example.org", "localhost.example.org", "example.org:80", "10.0.0.1", "[::2]:80"])
def test_on_the_socket_no_other_name(host: str) -> None:
    """A foreign name that leads to a forwarded port of this machine reads nothing."""
    refused = from_this_machine(request(host=host))
    assert refused is not None and refused.status.startswith("403")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_on_the_socket_no_other_site_asks(site: str) -> None:
    """A browser that another site has sent gets no answer."""
    assert from_this_machine(request(host="localhost", sec_fetch_site=site)) is not None


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://localhost"])
def test_on_the_socket_browsers_give_no_orders(origin: str) -> None:
    """Whatever comes from a browser is a question."""
    assert from_this_machine(request("POST", "/v1/shutdown", host="localhost", origin=origin)) is not None
    same_page = request(host="localhost", origin="http://localhost", sec_fetch_site="same-origin")
    assert from_this_machine(same_page) is None


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_over_tcp_probes_need_no_token(path: str) -> None:
    """The probes are for everybody."""
    assert questions_with("secret")(request(path=path)) is None


@pytest.mark.parametrize("given", ["", "secret", "Bearer", "Bearer secre", "Bearer secret ", "Bearer sécret"])
def test_over_tcp_a_wrong_token(given: str) -> None:
    """Nothing but the whole token opens anything, and what was wrong with it is not told."""
    refuse = questions_with("secret")
    refused = {refuse(request(path=path, authorization=given)) for path in ("/v1/status", "/metrics", "/v1/nothing")}
    assert len(refused) == 1 and {one and one.status for one in refused} == {"401 Unauthorized"}


def test_over_tcp_questions_only() -> None:
    """The token lets questions through, and no order."""
    refuse = questions_with("secret")
    assert refuse(request(authorization="Bearer secret")) is None
    refused = refuse(request("POST", authorization="Bearer secret"))
    assert refused is not None and refused.status.startswith("403")


def test_no_answer_is_kept() -> None:
    """No browser or proxy keeps an answer, or guesses what it is."""
    headers: Headers = []
    assert list(send(json_answer("200 OK", {}), lambda _, given: headers.extend(given))) == [b"{}"]
    assert ("Cache-Control", "no-store") in headers and ("X-Content-Type-Options", "nosniff") in headers


class StoppedClock:
    """A clock that is set."""

    now = 0.0

    def monotonic(self) -> float:
        """The time that was set."""
        return self.now

    def wall(self) -> float:
        """The time that was set."""
        return self.now


def test_who_guesses_tokens_is_told_but_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """The first wrong token is told at once, the others once a minute with their number; no token is."""
    clock = StoppedClock()
    refuse = questions_with("secret", clock)
    caplog.set_level(logging.WARNING, "vmerge")
    logging.getLogger("vmerge").propagate = True
    for second in range(90):
        clock.now = float(second)
        refusal = refuse({**request(path="/v1/status", authorization="Bearer guessed"), "REMOTE_ADDR": "10.0.0.9"})
        assert refusal is not None
        assert refusal.status.startswith("401")
    assert [record.getMessage() for record in caplog.records] == [
        "1 questions over TCP without the right token, the last from 10.0.0.9",
        "60 questions over TCP without the right token, the last from 10.0.0.9",
    ]
