"""A real browser without a window, and the status page in it as its user sees it.

Knows: how Chromium is found and driven, and where the page has what. Never knows: daemons. Users: its tests.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from tests.operating import wait_until

from vmerge.stopping import SystemClock

CHROMIUM, DRIVER = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"), ("chromedriver",)
MISSING = (
    "tests/browser need Chromium and its driver, and scripts/browser could not install them: "
    "on Debian `apt-get install chromium chromium-driver` as root; "
    "elsewhere put `chromium` (or `google-chrome`) and a `chromedriver` of the same version on the PATH"
)
LOOK_AGAIN_SECONDS = 0.25
LOOK_AGAIN = "document.dispatchEvent(new Event('visibilitychange'))"
"""What happens when the page's tab comes to the front: it asks at once, and a test need not wait for the next time."""


@contextmanager
def chromium(folder: Path) -> Iterator[Chrome]:
    """Start a browser with a fresh profile in a folder; it has ended afterwards."""
    program, driver = (next(filter(None, map(shutil.which, names)), None) for names in (CHROMIUM, DRIVER))
    if program is None or driver is None:
        raise AssertionError(MISSING)
    options = ChromeOptions()
    options.binary_location = program
    words = ["headless=new", "disable-dev-shm-usage", "disable-gpu", "no-first-run", "disable-background-networking"]
    words += [f"user-data-dir={folder}", "disable-component-update", "disable-default-apps", "disable-sync"]
    if os.geteuid() == 0:
        words.append("no-sandbox")  # Chromium's sandbox refuses to run as root
    for word in words:
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    browser = Chrome(options=options, service=ChromeService(driver))
    try:
        yield browser
    finally:
        browser.quit()


class Page:
    """The status page of one daemon in a browser."""

    def __init__(self, browser: Chrome, address: str) -> None:
        self.browser = browser
        self.address = address

    def open(self, token: str | None = None) -> None:
        """Open the page as in a tab that has never seen it, and give a token if there is one."""
        self.browser.get(f"{self.address}page/icon.svg")  # of the same place, and without a script
        self.browser.execute_script("sessionStorage.clear()")
        self.drain("performance")
        self.drain("browser")
        self.browser.get(self.address)
        if token is not None:
            self.give(token)

    def give(self, token: str) -> None:
        """Type a token and send it off."""
        wait_until(lambda: self.element("#ask").is_displayed(), "the page asks for a token")
        self.element("#token").clear()
        self.element("#token").send_keys(token)
        self.element("#ask button").click()

    def element(self, selector: str) -> Any:
        """Return what a selector finds first."""
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "body") -> str:
        """Return the texts of all that a selector finds and that can be seen."""
        words = "return [...document.querySelectorAll(arguments[0])].map(one => one.innerText).join('\\n')"
        return str(self.browser.execute_script(words, selector))

    def wait_for(self, text: str, selector: str = "body") -> None:
        """Wait until a text can be seen."""
        self.wait_until(lambda: text in self.text(selector), lambda: f"{text!r} in {self.text(selector)!r}")

    def wait_until(self, holds: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait until something holds, while the page asks again and again."""
        clock = SystemClock()
        next_look = clock.monotonic()

        def holds_now() -> bool:
            nonlocal next_look
            if clock.monotonic() >= next_look:
                self.browser.execute_script(LOOK_AGAIN)
                next_look = clock.monotonic() + LOOK_AGAIN_SECONDS
            return holds()

        wait_until(holds_now, what)

    def drain(self, kind: str) -> list[dict[str, Any]]:
        """Return what the browser has logged since the last time."""
        entries: list[dict[str, Any]] = self.browser.get_log(kind)  # type: ignore[no-untyped-call] # so in selenium
        return entries

    def asked(self) -> list[str]:
        """Return the addresses that were asked for since the page was opened."""
        messages = [json.loads(entry["message"])["message"] for entry in self.drain("performance")]
        return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]

    def require_clean(self) -> None:
        """Nothing was asked of anybody but the daemon, no address holds a secret, and nothing was complained about."""
        asked = [urlsplit(address) for address in self.asked()]
        assert asked and {f"{one.scheme}://{one.netloc}/" for one in asked} == {self.address}
        assert {one.query.partition("=")[0] for one in asked} <= {"", "after", "workflow"}
        assert self.drain("browser") == []
