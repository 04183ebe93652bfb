"""Where connections come from."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest

from vmerge.mysql.connect import Endpoint

SOURCE = Path(__file__).parents[3] / "src" / "vmerge"


def callers(*functions: str) -> list[str]:
    """Return the product's modules that call one of these functions, or derive a class from one."""
    return [name for name, text in _texts().items() if _calls(text, functions)]


def _texts() -> dict[str, str]:
    paths = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    return {name: path.read_text() for name, path in paths.items() if not name.startswith("lab/")}


def _calls(text: str, functions: Sequence[str]) -> bool:
    if not any(function in text for function in functions):
        return False
    nodes = [*ast.walk(ast.parse(text))]
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    bases = {ast.unparse(base) for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases}
    return not called.isdisjoint(functions) or not bases.isdisjoint(functions)


def test_every_connection_has_its_endpoint_s_tls() -> None:
    """One module makes connections, from an endpoint; and one place makes endpoints, from a workflow file."""
    assert callers("pymysql.connect", "Connection", "Connect") == ["mysql/connect.py"]
    assert callers("Endpoint") == ["config/workflow.py"]


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("localhost", True), ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("10.0.0.1", False), ("db", False)],
)
def test_what_is_on_this_machine(host: str, is_here: bool) -> None:
    """Loopback addresses and sockets are; a name is not, but for `localhost`."""
    assert Endpoint("target", host, 3306, "u", "p").is_on_this_machine is is_here
    assert Endpoint("target", host, 3306, "u", "p", unix_socket="/s").is_on_this_machine


def test_an_endpoint_never_shows_its_password() -> None:
    """Neither as text nor as data in a message."""
    endpoint = Endpoint("target", "db", 3306, "u", "hidden-word")
    assert "hidden-word" not in f"{endpoint} {endpoint!r} {[endpoint]}"
