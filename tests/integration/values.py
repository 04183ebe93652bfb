"""The hard values of tests/values: tables of them, and statements that write and change them at a source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import yaml

FOLDER = Path(__file__).parent.parent / "values"
FILES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))

TAKES_EVERYTHING = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00'"

TYPED = """
CREATE TABLE typed (
  tinyblob_ TINYBLOB, blob_ BLOB, mediumblob_ MEDIUMBLOB, longblob_ LONGBLOB, binary_ BINARY(4),
  varbinary_ VARBINARY(9), bit_1 BIT(1), bit_9 BIT(9), bit_64 BIT(64), timestamp_ TIMESTAMP(6) NULL,
  zero_timestamp TIMESTAMP NULL, date_ DATE, datetime_ DATETIME(3), time_ TIME(6), year_ YEAR,
  decimal_10_2 DECIMAL(10,2), small_10_2 DECIMAL(10,2), decimal_65_30 DECIMAL(65,30), decimal_5_0 DECIMAL(5,0),
  zero_5_0 DECIMAL(5,0), decimal_18_0 DECIMAL(18,0), enum_ ENUM('a', 'é'), set_ SET('a', 'b'), float_ FLOAT,
  latin1_ VARCHAR(9) CHARACTER SET latin1, point_ POINT, unsigned_ INT UNSIGNED, bigint_ BIGINT);
SET SESSION sql_mode = '';
INSERT INTO typed VALUES (
  X'00FF', X'', X'0100', X'FF', X'61', '42', 1, 257, ~0, '2020-01-02 03:04:05.000006', 0, '2020-01-02',
  '2020-01-02 03:04:05.006', '-01:02:03.5', 2000, 1.10, 0.10, -1.5, -5, 0, 1000000000,
  'é', 'a,b', 1.1, 'é', POINT(1, 2), 5, 5000000000);
"""
"""A table whose columns give documents values of every type that documents keep."""


NO_KEYS = re.compile("(TINY|MEDIUM|LONG)?(BLOB|TEXT)|JSON|VECTOR|GEOMETRY|(MULTI)?(POINT|LINESTRING|POLYGON)")
"""The beginnings of types that no key of a whole value can hold."""


class HardColumn(NamedTuple):
    """One column and its values."""

    type: str
    values: tuple[str, ...]
    """SQL expressions."""

    @property
    def can_be_key(self) -> bool:
        """Whether an index takes the whole value."""
        return NO_KEYS.match(self.type) is None

    def value(self, row: int) -> str:
        """The one in a row; the column begins again behind its last."""
        return self.values[row % len(self.values)]


def read_columns(file: str) -> list[HardColumn]:
    """The columns of one file. All its scalars are text: numbers keep their digits."""
    entries = yaml.load((FOLDER / f"{file}.yaml").read_text("utf-8"), yaml.BaseLoader)
    return [_column(entry) for entry in entries]


def _column(entry: dict[str, object]) -> HardColumn:
    kind, of, count = str(entry["column"]).partition(" of ")
    if of:
        kind = f"{kind}({', '.join(repr(f'label {number}') for number in range(int(count)))})"
    values = [*_texts(entry.get("values")), *(f"_binary X'{value}'" for value in _texts(entry.get("bytes")))]
    return HardColumn(kind, tuple(values) if "NOT NULL" in kind else (*values, "NULL"))


def _texts(values: object) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list) else []


class Key(Enum):
    """The primary key of a table of hard values."""

    NONE = "no key"
    NUMBER = "PRIMARY KEY (id)"
    ALL = "PRIMARY KEY (id, {columns})"


class HardTable(NamedTuple):
    """Columns beside a number."""

    name: str
    columns: list[HardColumn]
    key: Key

    @property
    def definition(self) -> str:
        """Its CREATE TABLE."""
        names = [f"c{index}" for index in range(len(self.columns))]
        types = [
            column.type if self.key is not Key.ALL else re.sub("(?<!NOT) NULL", "", column.type)
            for column in self.columns
        ]
        columns = ", ".join(map(" ".join, zip(names, types, strict=True)))
        key = "" if self.key is Key.NONE else ", " + self.key.value.format(columns=", ".join(names))
        return f"CREATE TABLE {self.name} (id INT, {columns}{key})"

    @property
    def height(self) -> int:
        """How many rows show every value."""
        return max(len(column.values) for column in self.columns)

    def inserts(self) -> Iterator[str]:
        """What writes each value."""
        for row in range(self.height):
            values = ", ".join(column.value(row) for column in self.columns)
            yield f"INSERT IGNORE INTO {self.name} VALUES ({row}, {values})"

    def updates(self) -> Iterator[str]:
        """What makes each value another: the next one of its column."""
        for row in range(self.height):
            sets = ", ".join(f"c{index} = {column.value(row + 1)}" for index, column in enumerate(self.columns))
            yield f"UPDATE IGNORE {self.name} SET {sets} WHERE id = {row}"
