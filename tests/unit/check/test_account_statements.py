"""The accounts that ``vmerge check --grants`` prints, and that documents and images repeat them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vmerge.check.account_statements import account_statements
from vmerge.core.appliers import ApplierSetting
from vmerge.core.rules import StartAt, StreamRules
from vmerge.core.schema_policy import OnDdl
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.preflight import StreamFacts, WorkflowFacts
from vmerge.mysql.tls import Tls, TlsMode

ROOT = Path(__file__).parents[3]
SOURCE = Endpoint("stream -80", "10.0.0.1", 3306, "vmerge", "hidden")
TARGET = Endpoint("target", "10.0.0.5", 3306, "vmerge", "hidden")
FACTS = WorkflowFacts(
    "shop",
    TARGET,
    "_vmerge",
    (StreamFacts("-80", SOURCE, StreamRules.build({"shop_0": "shop"}, ("*.*",)), StartAt.CURRENT),),
)


def test_every_server_gets_its_account() -> None:
    """Names are quoted, patterns escaped, and passwords are left to whoever runs it."""
    lines = list(account_statements(FACTS))
    assert lines[:10] == [
        "-- stream -80 (vmerge@10.0.0.1:3306)",
        "CREATE USER `vmerge` IDENTIFIED BY '…';",
        "GRANT REPLICATION SLAVE ON *.* TO `vmerge`;",
        "GRANT SELECT ON `shop\\_0`.* TO `vmerge`;",
        "",
        "-- target (vmerge@10.0.0.5:3306)",
        "CREATE USER `vmerge` IDENTIFIED BY '…';",
        "GRANT REPLICATION_APPLIER ON *.* TO `vmerge`;",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON `shop`.* TO `vmerge`;",
        "GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON `\\_vmerge`.* TO `vmerge`;",
    ]
    assert lines[-1] == "-- GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON `shop`.* TO `vmerge`;"
    assert "hidden" not in str(lines)


def test_the_workflow_decides_what_is_needed() -> None:
    """Statements need TRIGGER in place of BINLOG, schema changes more on both databases; TLS asks for what it gives."""
    pair = Tls(TlsMode.VERIFY_CA, "ca", "certificate", "key")
    target = replace(TARGET, tls=pair)
    text = "\n".join(
        account_statements(replace(FACTS, target=target, applier=ApplierSetting.STATEMENTS, on_ddl=OnDdl.EXECUTE))
    )
    assert "REPLICATION_APPLIER" not in text
    assert "GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER, ALTER, CREATE, INDEX ON `shop`.*" in text
    assert "GRANT CREATE, SELECT, INSERT, UPDATE, DELETE, ALTER, DROP, INDEX ON `\\_vmerge`.*" in text
    assert text.count("REQUIRE X509") == 1
    required = replace(TARGET, tls=Tls(TlsMode.REQUIRED))
    assert "REQUIRE SSL;" in "\n".join(account_statements(replace(FACTS, target=required)))


@pytest.mark.parametrize("place", ["docs/operators-guide.md", "docker"])
def test_what_is_printed_is_what_is_documented(place: str) -> None:
    """The guide and the composition's own accounts have the same grants, to the letter but for quotes around names."""
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.glob("*.sql"))
    text = "\n".join(file.read_text() for file in files)
    grants = [line for line in account_statements(FACTS) if line.startswith("GRANT")]
    for grant in grants:
        assert grant.replace("`vmerge`;", "vmerge;").replace("`shop`.*", "shop.*") in text
