"""The page's files: complete, served to everybody, and nothing in them that its own rules for browsers forbid."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from vmerge.hosting import page as module
from vmerge.hosting.answers import Answer, Headers, send
from vmerge.hosting.page import PageInFront, page_files

ROOT = Path(__file__).parents[3]
FILES = page_files()
SCRIPTS = {name: content.decode() for name, content in FILES.items() if name.endswith(".js")}
HOME = FILES["home.html"].decode()


class Asked:
    """Asks a page for paths. What the page does not answer is answered with ``elsewhere``."""

    def __init__(self, *, needs_token: bool = True) -> None:
        self._page = PageInFront(
            lambda environ, start: send(Answer("200 OK", b"elsewhere"), start), needs_token=needs_token
        )
        self.status = ""
        self.headers: dict[str, str] = {}

    def ask(self, path: str, method: str = "GET") -> bytes:
        """Return the body; status and headers are kept."""
        environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path}
        return b"".join(self._page(environ, self._start))

    def _start(self, status: str, headers: Headers) -> None:
        self.status, self.headers = status, dict(headers)


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_served_under_strict_rules(name: str) -> None:
    """Every file comes as what it is, is never kept, and lets a browser load, run and frame nothing from elsewhere."""
    asked = Asked()
    body = asked.ask("/" if name == "home.html" else f"/page/{name}")
    assert len(body) > 50 and asked.status == "200 OK"
    assert asked.headers["Content-Type"].split(";")[0] in {
        "text/html",
        "text/css",
        "text/javascript",
        "image/svg+xml",
    }
    assert asked.headers["Cache-Control"] == "no-store"
    assert asked.headers["X-Content-Type-Options"] == "nosniff"
    assert asked.headers["Referrer-Policy"] == "no-referrer"
    rules = dict(rule.split(" ", 1) for rule in asked.headers["Content-Security-Policy"].split("; "))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert {value for rule, value in rules.items() if rule.endswith("-src")} == {"'none'", "'self'"}


def test_other_requests_go_on() -> None:
    """What is no file of the page, or no GET, is answered by what stands behind it."""
    asked = Asked()
    asked_for = [("/v1/status", "GET"), ("/", "POST"), ("/page/", "GET"), ("/page/../page.py", "GET")]
    assert {asked.ask(path, method) for path, method in asked_for} == {b"elsewhere"}


@pytest.mark.parametrize("needs_token", [False, True])
def test_the_page_knows_whether_it_needs_a_token(needs_token: bool) -> None:
    """The page is told whether to ask for a token before it asks the daemon."""
    words = re.findall(rb'data-needs-token="(\w+)"', Asked(needs_token=needs_token).ask("/"))
    assert words == [b"yes" if needs_token else b"no"]


def test_every_file_is_in_the_package() -> None:
    """The wheel gets every file that the page has."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["vmerge"]
    folder = Path(module.__file__).parent / "page_files"
    paths = [str(path.relative_to(folder.parents[1])) for path in folder.rglob("*")]
    assert len(paths) == len(FILES)
    assert all(any(fnmatch(path, pattern) for pattern in patterns) for path in paths)


def test_what_refers_to_files_finds_them() -> None:
    """Every file that another one names is there, and its address is relative, so that a proxy may move the page."""
    named = re.findall(r'(?:href|src)="([^"]+)"', HOME)
    imported = [name for text in SCRIPTS.values() for name in re.findall(r'from "([^"]+)"', text)]
    assert {name.removeprefix("page/") for name in named} | {name.removeprefix("./") for name in imported} == (
        FILES.keys() - {"home.html"}
    )
    assert all(name.startswith("page/") for name in named) and all(name.startswith("./") for name in imported)


def test_nothing_becomes_markup_or_code() -> None:
    """No file has a script or style within markup, reads markup from a text, or names a place elsewhere."""
    assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", HOME)
    for text in SCRIPTS.values():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|localStorage|cookie", text
        )
    texts = [HOME, *SCRIPTS.values(), FILES["page.css"].decode()]
    assert {one for text in texts for one in re.findall(r"\w+://[^\s\"']+", text)} == {"http://www.w3.org/2000/svg"}
