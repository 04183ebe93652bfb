"""The status page in a real browser: what it shows, to whom, and what it never does."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack

import pytest
from tests.browser.browsers import Page
from tests.browser.conftest import ODD_KEY, ODD_TABLE, TOKEN, Watched
from tests.operating import Site, insert_customers, wait_until

from vmerge.hosting.control import control_socket

pytestmark = pytest.mark.server

ROW = '.streams tr[data-stream="{}"]'


def change_odd_table(site: Site, stream: str, statement: str) -> None:
    """Change the table with the odd name on a shard; ``{}`` in a statement is its name."""
    shard = site.shards[stream]
    with shard.server.connect(shard.database) as connection, connection.cursor() as cursor:
        cursor.execute(statement.format(f"`{ODD_TABLE}`"))


def is_merged(site: Site, table: str, number: int) -> bool:
    """Whether a row is on the target."""
    return bool(site.target.query(f"SELECT 1 FROM `{site.database}`.`{table}` WHERE id = {number}"))


def test_streams_as_they_run(page: Page, watched: Watched) -> None:
    """The page shows each stream's state and figures as they become, and asks nobody but the daemon."""
    page.open(TOKEN)
    for stream in ("a", "b"):
        page.wait_for("running", ROW.format(stream))
        page.wait_for("at head", ROW.format(stream))
    before = watched.site.streams()["a"]["transactions"]
    insert_customers(watched.site.shards["a"], 1000, 5)
    page.wait_for(str(before + 5), f'{ROW.format("a")} [data-column="Applied"]')
    page.wait_for("2 streams, 2 running", ".condition")
    page.wait_for("Nobody waits.", ".aside")
    page.wait_for("entered", ".log")
    wait_until(lambda: page.element(f"{ROW.format('b')} .line").get_attribute("d").startswith("M"), "a lag is drawn")
    page.require_clean()


def test_a_wait_with_odd_names(page: Page, watched: Watched) -> None:
    """A blocked stream's line says whom it waits for and which key is held, as text, whatever the names look like."""
    site = watched.site
    page.open(TOKEN)
    change_odd_table(site, "a", "INSERT INTO {} VALUES (1, 7)")
    wait_until(lambda: is_merged(site, ODD_TABLE, 1), "the row is merged")
    site.client.stop(site.workflow, ["a"])
    page.wait_for("stopped", ROW.format("a"))
    page.wait_for(f"{site.workflow}, stream a: stopped", "#news")
    change_odd_table(site, "a", "DELETE FROM {}")
    change_odd_table(site, "b", "INSERT INTO {} VALUES (2, 7)")
    page.wait_for(f"b → a: {ODD_TABLE}.{ODD_KEY} held by id=1; since ", ".aside")
    page.wait_for("a has 1 transaction to go until its fence; ends with transactions of a", ".aside")
    page.wait_for(ODD_KEY, ROW.format("b"))
    page.wait_for(site.streams()["b"]["blocked"]["hindered"][0]["text"], ".aside li")
    site.client.start(site.workflow, ["a"], None)
    page.wait_for("Nobody waits.", ".aside")
    site.require_exact()
    assert page.browser.title.endswith("vmerge")
    assert not page.browser.execute_script("return document.querySelector('img, b, script:not([src])')")
    page.require_clean()


def test_a_schema_change(page: Page, watched: Watched) -> None:
    """A stream that has come to a schema change before its sibling is shown to wait; changes are counted."""
    page.open(TOKEN)
    page.wait_for("0 executed", ".aside")
    change = "ALTER TABLE {} ADD COLUMN nick INT"
    change_odd_table(watched.site, "a", change)
    page.wait_for("for b to come to the same one: ALTER TABLE", ".aside li")
    assert "a waits since " in page.text(".aside li") and ODD_TABLE in page.text(".aside li")
    change_odd_table(watched.site, "b", change)
    page.wait_for("No stream waits at one. 1 executed, 0 ignored.", ".aside")
    watched.site.require_exact()


def test_quarantine(page: Page, watched: Watched) -> None:
    """Rows that are kept off the target are counted where their stream is, and it is said how to see them."""
    site = watched.site
    page.open(TOKEN)
    insert_customers(site.shards["a"], 3000, 1)
    wait_until(lambda: is_merged(site, "customer", 3000), "the row is merged")
    shard = site.shards["b"]
    shard.server.execute_script(
        "INSERT INTO customer (id, email, name, balance) VALUES (3001, 'c3000@example.org', 'Test', 0)", shard.database
    )
    page.wait_for(f"b: 1 row; `vmerge quarantine list {site.workflow}` names them.", ".aside li")
    page.wait_for("1", f'{ROW.format("b")} [data-column="Quarantine"]')
    page.wait_for("quarantined", ".log")
    shard.server.execute_script("DELETE FROM customer WHERE id = 3001", shard.database)
    page.wait_for("No row is in quarantine.", ".aside")
    site.require_exact()


def test_a_wrong_token(page: Page) -> None:
    """Without the right token the page shows nothing but that it needs it, and says when it was wrong."""
    page.open()
    wait_until(lambda: page.element("#ask").is_displayed(), "the page asks for a token")
    assert not any("/v1/" in address for address in page.asked())
    page.give("a guess")
    page.wait_for("printable ASCII", "#token-problem")
    page.give("a-guess")
    page.wait_for("does not take this token", "#token-problem")
    assert not page.element("#main").is_displayed() and page.element("#ask").is_displayed()
    assert page.browser.execute_script("return sessionStorage.length") == 0
    page.give(TOKEN)
    page.wait_for("at head", ".streams")


def test_where_the_token_is(page: Page) -> None:
    """The token is kept for this tab alone and forgotten when its user says so, with all that was shown."""
    page.open(TOKEN)
    page.wait_for("at head", ".streams")
    page.browser.refresh()
    page.wait_for("at head", ".streams")
    kept = "return [location.href, document.cookie, JSON.stringify(localStorage), document.documentElement.outerHTML]"
    assert TOKEN not in str(page.browser.execute_script(kept))
    page.element("#forget").click()
    assert page.element("#ask").is_displayed() and not page.text("#workflows")
    assert page.browser.execute_script("return sessionStorage.length") == 0


def test_the_daemon_is_gone(page: Page, watched: Watched) -> None:
    """When the daemon is gone the page says since when, keeps what it has, and goes on by itself when it is back."""
    page.open(TOKEN)
    page.wait_for("at head", ".streams")
    watched.site.end()
    page.wait_for("does not answer. What is shown is as it was at ", "#notice")
    assert re.search(r"at \d\d:\d\d:\d\d, ", page.text("#notice")) and page.text("#age").endswith(" s ago")
    assert "running" in page.text(ROW.format("a")) and page.browser.title == "no answer · vmerge"
    watched.start()
    page.wait_until(lambda: not page.text("#notice"), lambda: f"no notice; there is {page.text('#notice')!r}")
    page.wait_for("at head", ROW.format("b"))


def test_clients_that_never_read(page: Page, watched: Watched) -> None:
    """Clients that ask again and again and never read an answer hold up neither the streams nor the page."""
    question = f"GET /v1/overview HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", watched.port), timeout=10))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.sendall(question * 100)
        page.open(TOKEN)
        page.wait_for("at head", ROW.format("a"))
        before = watched.site.streams()["a"]["transactions"]
        insert_customers(watched.site.shards["a"], 2000, 20)
        page.wait_for(str(before + 20), f'{ROW.format("a")} [data-column="Applied"]')


def test_the_page_on_the_socket(watched: Watched) -> None:
    """On the socket the page needs no token; there, no browser gives orders, and no foreign name reads anything."""
    page = ask_socket(watched.site, "GET / HTTP/1.1", "Host: localhost:9464", "Sec-Fetch-Site: cross-site")
    assert page.startswith("HTTP/1.1 200 ") and 'data-needs-token="no"' in page
    own = ask_socket(watched.site, "GET /v1/overview HTTP/1.1", "Host: localhost:9464", "Sec-Fetch-Site: same-origin")
    assert own.startswith("HTTP/1.1 200 ")
    foreign = ask_socket(watched.site, "GET /v1/overview HTTP/1.1", "Host: example.org")
    order = ask_socket(watched.site, "POST /v1/shutdown HTTP/1.1", "Host: localhost", "Origin: https://example.org")
    assert foreign.startswith("HTTP/1.1 403 ") and order.startswith("HTTP/1.1 403 ")
    assert watched.site.answers()


def ask_socket(site: Site, *lines: str) -> str:
    """Send a request to the control socket, with these headers alone; return the whole answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(control_socket(site.state_folder)))
        client.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        return b"".join(iter(lambda: client.recv(65536), b"")).decode()


@pytest.mark.parametrize("width", [320, 1280], ids=["phone", "desk"])
def test_every_width(page: Page, width: int) -> None:
    """Nothing is cut off on a phone or a desk, and the streams are a table to those who hear them."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.open(TOKEN)
        page.wait_for("at head", ".streams")
        assert page.browser.execute_script("return document.documentElement.scrollWidth") <= width
        tree = page.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})
        roles = [node["role"]["value"] for node in tree["nodes"] if not node["ignored"]]
        assert roles.count("rowheader") == 2 and roles.count("columnheader") == 13
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
