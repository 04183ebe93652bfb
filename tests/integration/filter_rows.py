"""Three tables of hard values, and predicates about them, for the tests of row filters against a server."""

from __future__ import annotations

from hypothesis import strategies as st

NUMBERS = {
    "tiny": ("TINYINT", ["-128", "-1", "0", "1", "127"]),
    "utiny": ("TINYINT UNSIGNED", ["0", "1", "128", "255"]),
    "small": ("SMALLINT", ["-32768", "7", "32767"]),
    "medium": ("MEDIUMINT", ["-8388608", "-3", "8388607"]),
    "umedium": ("MEDIUMINT UNSIGNED", ["0", "8388608", "16777215"]),
    "i": ("INT", ["-2147483648", "-7", "0", "5", "2147483647"]),
    "ui": ("INT UNSIGNED", ["0", "5", "2147483648", "4294967295"]),
    "big": ("BIGINT", ["-9223372036854775808", "-1", "0", "9007199254740993", "9223372036854775807"]),
    "ubig": ("BIGINT UNSIGNED", ["0", "9223372036854775807", "9223372036854775808", "18446744073709551615"]),
    "money": ("DECIMAL(10, 2)", ["-99999999.99", "-0.01", "0", "0.10", "1.50", "5", "99999999.99"]),
    "huge": (
        "DECIMAL(65, 30)",
        ["-0.000000000000000000000000000001", "9007199254740993", "99999999999999999999999999999999999.999", "0.5"],
    ),
    "whole": ("DECIMAL(20, 0) UNSIGNED", ["0", "18446744073709551615", "99999999999999999999"]),
    "bits": ("BIT(9)", ["b'0'", "b'1'", "b'101'", "b'111111111'"]),
    "bits64": ("BIT(64)", ["b'0'", "9223372036854775808", "18446744073709551615"]),
    "y": ("YEAR", ["'0000'", "1901", "1999", "2000", "2155"]),
}
TEXTS = {
    "padded": ("VARCHAR(20) COLLATE utf8mb4_bin", ["''", "' '", "'a'", "'a '", "'A'", "'a\\t'", "'ä'", "'b'", "'😀'"]),
    "unpadded": ("VARCHAR(20) COLLATE utf8mb4_0900_bin", ["''", "' '", "'a'", "'a '", "'A'", "'a\\t'", "'ä'", "'😀'"]),
    "fixed": ("CHAR(5) COLLATE utf8mb4_bin", ["''", "'a'", "'a  '", "'a\\t'", "'ä'", "'b'"]),
    "fixed0900": ("CHAR(5) COLLATE utf8mb4_0900_bin", ["''", "'a'", "'a  '", "'a\\t'", "'ä'"]),
    "three": ("VARCHAR(20) COLLATE utf8mb3_bin", ["''", "'a'", "'a '", "'ä'", "'€'"]),
    "one": ("VARCHAR(300) COLLATE latin1_bin", ["''", "'a'", "'a '", "'ä'", "REPEAT('a', 260)"]),
    "ascii": ("VARCHAR(20) COLLATE ascii_bin", ["''", "'a'", "'b '", "'\\0'"]),
    "essay": ("TEXT COLLATE utf8mb4_bin", ["''", "'a '", "'a'", "REPEAT('ä', 400)"]),
    "loose": ("VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", ["''", "'a'", "'A'", "'a '", "'ä'", "'b'"]),
    "wide": ("VARCHAR(20) COLLATE utf16_bin", ["''", "'a'", "'ä'"]),
    "octets": ("VARBINARY(20)", ["''", "'a'", "'a '", "'A'", "X'00FF'", "X'6100'", "'ä'"]),
    "filled": ("BINARY(5)", ["''", "'a'", "'a '", "X'6100000000'", "X'FF'"]),
    "lump": ("BLOB", ["''", "'a'", "'a '", "X'00FF'"]),
    "label": ("ENUM('new', 'Paid', 'übrig')", ["'new'", "'Paid'", "'übrig'", "'wrong'"]),
    "hollow": ("ENUM('a', '') COLLATE utf8mb4_bin", ["'a'", "''", "'wrong'"]),
}
TIMES = {
    "day": ("DATE", ["'0000-00-00'", "'2020-00-00'", "'2020-02-31'", "'2020-02-29'", "'2024-12-31'", "'0001-01-01'"]),
    "must": ("DATE NOT NULL", ["'0000-00-00'", "'2024-12-31'", "'9999-12-31'"]),
    "at": (
        "DATETIME",
        ["'0000-00-00 00:00:00'", "'2020-01-00 00:00:00'", "'2024-12-31 00:00:00'", "'2024-12-31 23:59:59'"],
    ),
    "precise": (
        "DATETIME(6)",
        ["'0000-00-00'", "'2024-12-31 23:59:59.999999'", "'2024-12-31 23:59:59.5'", "'2024-12-31 23:59:59'"],
    ),
    "tenth": ("DATETIME(1)", ["'2024-12-31 23:59:59.5'", "'2024-12-31 23:59:59'", "'0001-01-01 00:00:00.1'"]),
    "stamp": (
        "TIMESTAMP NULL",
        ["'0000-00-00'", "'1970-01-01 00:00:01'", "'2024-03-31 01:30:00'", "'2038-01-19 03:14:07'"],
    ),
    "stamp3": ("TIMESTAMP(3) NULL", ["'0000-00-00'", "'1970-01-01 00:00:01.001'", "'2024-03-31 01:30:00.5'"]),
    "stamp6": (
        "TIMESTAMP(6) NULL",
        ["'2024-03-31 01:30:00.000001'", "'2024-03-31 01:30:00'", "'2038-01-19 03:14:07.999999'"],
    ),
}
OTHERS = {
    "f": ("FLOAT", ["0.1", "-0"]),
    "doc": ("JSON", ["'null'", "'{}'"]),
    "members": ("SET('x', 'y')", ["''", "'x,y'"]),
    "clock": ("TIME(2)", ["'-00:00:00.5'", "'838:59:59'"]),
    "place": ("POINT", ["ST_GeomFromText('POINT(1 2)')"]),
}
COLUMNS = {**NUMBERS, **TEXTS, **TIMES, **OTHERS}
_INDEXED = (
    "tiny",
    "ui",
    "big",
    "money",
    "y",
    "bits",
    "padded",
    "fixed",
    "octets",
    "label",
    "day",
    "at",
    "stamp",
    "must",
)


def table_definition() -> str:
    """The columns and indexes of the table."""
    columns = [f"`{name}` {kind}" for name, (kind, _) in COLUMNS.items()]
    keys = [f"KEY (`{name}`)" for name in _INDEXED]
    return ", ".join(["id INT PRIMARY KEY", *columns, *keys])


def row_values() -> list[str]:
    """Rows that have every value of every column, NULL among them, each with different neighbours."""
    count = max(len(values) for _, values in COLUMNS.values()) + 1
    rows = []
    for turn in range(4 * count):
        row = [str(turn)]
        for at, (kind, values) in enumerate(COLUMNS.values()):
            place = (turn + at * (turn // count)) % (len(values) + 1)
            null = values[0] if "NOT NULL" in kind else "NULL"
            row.append(values[place] if place < len(values) else null)
        rows.append(f"({', '.join(row)})")
    return rows


_NUMBERS = st.sampled_from(["0", "1", "-1", "5", "-7", "127", "128", "255", "2147483648", "-9223372036854775808"])
_LARGE = st.sampled_from(
    ["18446744073709551615", "9223372036854775808", "99999999999999999999", "0.5", "1.50", "-0.01"]
)
_WHOLE = st.sampled_from([name for name, (kind, _) in NUMBERS.items() if "DECIMAL" not in kind and kind != "YEAR"])
_SHORT_TEXTS = st.sampled_from(["''", "' '", "'a'", "'a '", "'A'", "'b'", "'ä'", "'a\t'", "'😀'"])
_BYTES = st.sampled_from(["X''", "X'61'", "0x6100", "X'00FF'", "X'6100000000'", "'a'", "'a '"])
_DAYS = st.sampled_from(["'2024-12-31'", "'2020-02-29'", "'0001-01-01'", "'9999-12-31'", "'2020-01-01'"])
_MOMENTS = st.sampled_from(
    ["'2024-12-31 23:59:59'", "'2024-12-31'", "'2024-12-31 23:59:59.5'", "'2020-01-01 00:00:00.000001'"]
)
_STAMPS = st.sampled_from(["'2024-03-31 01:30:00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'"])
_ORDERS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
_EQUALITIES = st.sampled_from(["=", "<>", "<=>"])


def _computed(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "%", "MOD", "DIV"])
    return st.builds("({} {} {})".format, parts, operators, parts) | st.builds("(-{})".format, parts)


def _family(columns: st.SearchStrategy[str], literals: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Conditions on one kind of values."""
    values = columns | literals
    lists = st.lists(literals | st.just("NULL"), min_size=1, max_size=4).map(", ".join)
    negation = st.sampled_from(["", "NOT "])
    return (
        st.builds("{} {} {}".format, columns, _ORDERS, values | st.just("NULL"))
        | st.builds("{} {} {}".format, literals, _ORDERS, columns)
        | st.builds("{} {}IN ({})".format, columns, negation, lists)
        | st.builds("{} {}BETWEEN {} AND {}".format, columns, negation, values, values)
        | st.builds("{} IS {}NULL".format, columns, negation)
    )


def _labels(column: str, *labels: str) -> st.SearchStrategy[str]:
    some = st.sampled_from([*labels, "NULL"])
    return st.builds(f"{column} {{}} {{}}".format, _EQUALITIES, some) | st.builds(
        f"{column} {{}}IN ({{}}, {{}})".format, st.sampled_from(["", "NOT "]), some, some
    )


def _columns(*names: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"`{name}`" if name in ("at", "y") else name for name in names])


_WHOLE_VALUES = st.recursive(_WHOLE | _NUMBERS, _computed, max_leaves=4)
_CONDITIONS = st.one_of(
    _family(_WHOLE_VALUES | _columns("money", "huge", "whole"), _NUMBERS | _LARGE),
    _family(_columns("y"), st.sampled_from(["1901", "1999", "2000", "2155"])),
    *(_family(_columns(name), _SHORT_TEXTS) for name in TEXTS if name not in ("label", "hollow", "wide", "loose")),
    _family(_columns("octets", "filled", "lump"), _BYTES),
    _family(
        st.sampled_from(["CAST(loose AS BINARY)", "BINARY fixed", "CAST(padded AS BINARY)"]), _SHORT_TEXTS | _BYTES
    ),
    _labels("label", "'new'", "'Paid'", "'übrig'"),
    _labels("hollow", "'a'", "''"),
    _family(_columns("day"), _DAYS),
    _family(_columns("at", "precise", "tenth"), _MOMENTS),
    _family(_columns("stamp", "stamp3", "stamp6"), _STAMPS),
    _WHOLE,
    st.sampled_from(["TRUE", "FALSE", "NULL", "1", "0", "f IS NULL", "doc IS NOT NULL", "members IS NULL"]),
)


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Conditions of conditions: some with all their parentheses, some with as few as there can be."""
    tests = st.sampled_from(["TRUE", "FALSE", "NULL", "UNKNOWN", "NOT TRUE", "NOT FALSE", "NOT NULL"])
    return (
        st.builds("{} {} {}".format, parts, st.sampled_from(["AND", "OR", "XOR", "&&"]), parts)
        | st.builds("({})".format, parts)
        | st.builds("NOT {}".format, parts)
        | st.builds("({}) IS {}".format, parts, tests)
        | st.builds("({}) {} ({})".format, parts, _EQUALITIES, parts)
    )


predicates = st.recursive(_CONDITIONS, _joined, max_leaves=5)
"""Texts of predicates; some are refused for what they compute."""
