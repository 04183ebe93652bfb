"""A source's schema change as the statement that does the same on the target: names, spelling, and what is refused."""

from __future__ import annotations

import pytest

from vmerge.core.rules import TableName
from vmerge.core.target_statement import Refused, altered_instead, target_statement

LONG = "t" * 64


def rename(name: TableName) -> TableName | None:
    """Database ``d`` becomes ``m``, and its table ``old`` becomes ``new``."""
    database, table = name
    return ("m", {"old": "new"}.get(table, table)) if database == "d" else None


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("ALTER TABLE t ADD c INT", "ALTER TABLE `m`.`t` ADD c INT"),
        ("alter table `d`.`old` add `old` int", "alter table `m`.`new` add `old` int"),
        ("ALTER TABLE d . old ADD c INT; ", "ALTER TABLE `m`.`new` ADD c INT"),
        ("ALTER TABLE /* t */ old ADD c INT COMMENT 'old'", "ALTER TABLE /* t */ `m`.`new` ADD c INT COMMENT 'old'"),
        ("ALTER TABLE `a``b` DROP c", "ALTER TABLE `m`.`a``b` DROP c"),
        (f"ALTER TABLE {LONG} DROP c", f"ALTER TABLE `m`.`{LONG}` DROP c"),
        ("CREATE UNIQUE INDEX i ON old (c)", "CREATE UNIQUE INDEX i ON `m`.`new` (c)"),
        ("ALTER TABLE t RENAME COLUMN c TO e", "ALTER TABLE `m`.`t` RENAME COLUMN c TO e"),
        ("ALTER TABLE t ENGINE=InnoDB", "ALTER TABLE `m`.`t` ENGINE=InnoDB"),
        ("ALTER TABLE t ROW_FORMAT=DYNAMIC ENGINE innodb", "ALTER TABLE `m`.`t` ROW_FORMAT=DYNAMIC ENGINE innodb"),
        ("DROP INDEX i ON d.old", "DROP INDEX i ON `m`.`new`"),
        (
            "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (c) REFERENCES old (id)",
            "ALTER TABLE `m`.`t` ADD CONSTRAINT f FOREIGN KEY (c) REFERENCES `m`.`new` (id)",
        ),
        (
            "CREATE TABLE IF NOT EXISTS old (id INT PRIMARY KEY)",
            "CREATE TABLE IF NOT EXISTS `m`.`new` (id INT PRIMARY KEY)",
        ),
        (
            "ALTER TABLE t ADD (c INT, e ENUM('a,b', 'ALTER'))",
            "ALTER TABLE `m`.`t` ADD (c INT, e ENUM('a,b', 'ALTER'))",
        ),
    ],
)
def test_names_become_the_targets(statement: str, text: str) -> None:
    """Only the names of tables are replaced; quotes, comments and every other word stay as they are."""
    assert target_statement(statement, "d", rename).text == text


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("ALTER TABLE t ADD c INT", "alter  table `t`\n add C int -- now", True),
        ("ALTER TABLE t ADD c INT DEFAULT 'a'", "ALTER TABLE t ADD c INT DEFAULT 'A'", False),
        ("ALTER TABLE t ADD c INT", "ALTER TABLE t ADD c BIGINT", False),
        ("ALTER TABLE t ADD c INT", "ALTER TABLE u ADD c INT", False),
    ],
)
def test_what_is_the_same_change(one: str, other: str, are_same: bool) -> None:
    """Blanks, comments, quotes of names and the case of words do not count; values and names of tables do."""
    normal = [target_statement(statement, "d", rename).normal for statement in (one, other)]
    assert (normal[0] == normal[1]) is are_same


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE TABLE t",
        "DROP TABLE t",
        "RENAME TABLE t TO u",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t ADD id INT AUTO_INCREMENT PRIMARY KEY",
        "ALTER TABLE t ADD c DATETIME DEFAULT CURRENT_TIMESTAMP",
        "ALTER TABLE t MODIFY c TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP",
        "ALTER TABLE t CHANGE c e TIMESTAMP DEFAULT NOW()",
        "ALTER TABLE t ADD c CHAR(36) DEFAULT (UUID())",
        "ALTER TABLE t DROP PARTITION p",
        "ALTER TABLE t ENGINE=MyISAM",
        "ALTER TABLE t ADD c INT, ROW_FORMAT=FIXED ENGINE MyISAM",
        "ALTER TABLE t DISCARD TABLESPACE",
        "CREATE TABLE t LIKE u",
        "CREATE TABLE t SELECT 1",
        "ALTER TABLE t /*!80000 ADD c INT */",
        "ALTER TABLE elsewhere.t ADD c INT",
        "ALTER TABLE t ADD FOREIGN KEY (c) REFERENCES elsewhere.u (id)",
        "",
    ],
)
def test_what_is_never_run(statement: str) -> None:
    """What takes rows away, gives each row a value of its own, or reaches elsewhere is refused with a reason."""
    with pytest.raises(Refused, match=r"\w"):
        target_statement(statement, "d", rename)


def test_what_was_done_to_a_shadow_is_done_to_the_real_table() -> None:
    """The statements about a tool's table run on the target's table for the real one, in order."""
    statements = ["ALTER TABLE _old_gho ADD c INT", "ALTER TABLE `d`.`_old_gho` DROP e"]
    found = altered_instead(statements, ("d", "_old_gho"), ("d", "old"), rename)
    assert found.table == ("m", "new")
    assert found.texts == ("ALTER TABLE `m`.`new` ADD c INT", "ALTER TABLE `m`.`new` DROP e")
    with pytest.raises(Refused, match="not seen"):
        altered_instead([], ("d", "_old_gho"), ("d", "old"), rename)
