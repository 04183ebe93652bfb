"""GTID sets against a model: plain Python sets of (source, tag, number)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmerge.core.position import LAST_NUMBER, Gtid, GtidSet

SOURCE_A = bytes.fromhex("3e11fa4771ca11e19e33c80aa9429562")
SOURCE_B = bytes.fromhex("4e11fa4771ca11e19e33c80aa9429562")
A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"

gtids = st.builds(Gtid, st.sampled_from([SOURCE_A, SOURCE_B]), st.sampled_from(["", "blue", "_2"]), st.integers(1, 25))
models = st.sets(gtids, max_size=40)


def from_model(model: set[Gtid]) -> GtidSet:
    """Build the set by the plainest way: the text of every single GTID."""
    return GtidSet.parse(",".join(str(gtid) for gtid in model))


def little_endian(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)


@given(models)
def test_texts_and_bytes_lead_back_to_the_same_value(model: set[Gtid]) -> None:
    """Printing and parsing, and encoding and decoding, give an equal set with the model's size."""
    value = from_model(model)
    assert GtidSet.parse(str(value)) == value
    assert GtidSet.decode(value.encode()) == value
    assert value.count() == len(model)
    assert value.is_empty() == (not value) == (not model)


@given(models, models)
def test_equality_is_that_of_the_members(left: set[Gtid], right: set[Gtid]) -> None:
    """Values, texts, encodings and hashes agree exactly as the members do."""
    first, second = from_model(left), from_model(right)
    assert (first == second) == (left == right)
    assert (str(first) == str(second)) == (left == right)
    assert (first.encode() == second.encode()) == (left == right)
    if left == right:
        assert hash(first) == hash(second)


@given(models, models)
def test_set_operations_agree_with_python_sets(left: set[Gtid], right: set[Gtid]) -> None:
    """Union, difference and inclusion give what Python's sets give, in canonical form."""
    first, second = from_model(left), from_model(right)
    assert first.union(second) == from_model(left | right)
    assert first.subtract(second) == from_model(left - right)
    assert first.includes(second) == (right <= left)
    assert first.union(second).includes(first)
    assert not first.subtract(first)


@given(models, gtids)
def test_contains_agrees_with_python_sets(model: set[Gtid], gtid: Gtid) -> None:
    """A GTID is contained exactly if it is a member."""
    assert from_model(model).contains(gtid) == (gtid in model)


@given(models, st.lists(gtids, max_size=30))
def test_advanced_adds_new_gtids_and_refuses_others(model: set[Gtid], added: list[Gtid]) -> None:
    """Advancing in any order is adding, and a GTID that is there already is an error, never a no-op."""
    value = from_model(model)
    if len(set(added)) < len(added) or model & set(added):
        with pytest.raises(ValueError, match="sent twice"):
            value.advanced(added)
    else:
        assert value.advanced(added) == from_model(model | set(added))
    assert value == from_model(model)


@given(st.integers(1, 1000), st.integers(1, 300), st.sampled_from(["", "blue"]))
def test_advanced_extends_the_last_interval(last: int, length: int, tag: str) -> None:
    """Consecutive numbers after the last interval lengthen it and leave the gaps before it alone."""
    prefix = f"{A}:{tag}:" if tag else f"{A}:"
    value = GtidSet.parse(f"{prefix}1-{last}:{last + 5}-{last + 9}")
    run = [Gtid(SOURCE_A, tag, last + 10 + step) for step in range(length)]
    assert value.advanced(run) == GtidSet.parse(f"{prefix}1-{last}:{last + 5}-{last + 9 + length}")


@pytest.mark.parametrize("number", [0, -1, LAST_NUMBER + 1])
def test_advanced_refuses_numbers_out_of_range(number: int) -> None:
    """A number that no MySQL server hands out is an error."""
    with pytest.raises(ValueError, match="out of range"):
        GtidSet().advanced([Gtid(SOURCE_A, "", number)])


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" \n ", ""),
        (" , ,\n,", ""),
        (A, ""),
        (f"{A}:blue", ""),
        (f"{A}:7", f"{A}:7"),
        (f"{A}:1-5,\n{B}:1", f"{A}:1-5,{B}:1"),
        (f",{B}:1,,\r\n{A}:1,", f"{A}:1,{B}:1"),
        (A.upper() + ":1-3", f"{A}:1-3"),
        (f"{{{A}}} :1", f"{A}:1"),
        (A.replace("-", "") + ":1", f"{A}:1"),
        (f"\t{A} : 1 - 3 : 5\v", f"{A}:1-3:5"),
        (f"{A}:6-10:1-5", f"{A}:1-10"),
        (f"{A}:1-5,{A}:4-9,{A}:11", f"{A}:1-9:11"),
        (f"{A}:3-3", f"{A}:3"),
        (f"{A}:Blue:1-3:7:_o9:5", f"{A}:_o9:5:blue:1-3:7"),
        (f"{A}:blue:1,{A}:2", f"{A}:2:blue:1"),
        (f"{A}:{'t' * 32}:1", f"{A}:{'t' * 32}:1"),
        (f"{A}:1-{LAST_NUMBER}", f"{A}:1-{LAST_NUMBER}"),
    ],
)
def test_parse_accepts_what_mysql_accepts(text: str, canonical: str) -> None:
    """Texts that MySQL accepts are read to the same set, and printed in canonical form."""
    assert str(GtidSet.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("garbage", "garbage"),
        ("ANONYMOUS", "ANONYMOUS"),
        (f"+{A}:1", f"\\+{A}"),
        (f"{{{A}:1", "uuid"),
        (f"{A}}}:1", "uuid"),
        ("{" + A.replace("-", "") + "}:1", "uuid"),
        (A.replace("-", "", 1) + ":1", "uuid"),
        ("0-71-3511", "0-71-3511"),
        (f"{A}:1 {B}:1", "'1 4e11fa47'"),
        (f"{A}:", "''"),
        (f"{A}::1", "''"),
        (f"{A}:0", "'0'"),
        (f"{A}:0-3", "'0'"),
        (f"{A}:-3", "''"),
        (f"{A}:5-3", "'5-3' ends before"),
        (f"{A}:1-", "''"),
        (f"{A}:1-2-3", "'2-3'"),
        (f"{A}:010", "'010'"),
        (f"{A}:0x10", "'0x10'"),
        (f"{A}:1 2", "'1 2'"),
        (f"{A}:\u0661", "\u0661"),
        (f"{A}:\u212aelvin:1", "elvin"),
        (f"{A}:1\u00a0", "1"),
        (f"{A}:{LAST_NUMBER + 1}", str(LAST_NUMBER + 1)),
        (f"{A}:1-{'9' * 5000}", "999"),
        (f"{A}:2tag:1", "'2tag'"),
        (f"{A}:{'t' * 33}:1", "ttt"),
        (f"{A}:a-b:1", "'a'"),
    ],
)
def test_parse_names_the_bad_piece(text: str, piece: str) -> None:
    """A text that MySQL refuses, or would silently read as something else, is an error naming the piece."""
    with pytest.raises(ValueError, match=piece) as caught:
        GtidSet.parse(text)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(("text", "tag"), [(f"{A}:7", ""), (f"{A}:blue:7", "blue")])
def test_one_gtid_prints_and_parses(text: str, tag: str) -> None:
    """A single GTID has one canonical text, in lower case, whatever case and blanks it came in."""
    assert Gtid.parse(text) == Gtid(SOURCE_A, tag, 7)
    assert Gtid.parse(f" {text.upper()}\n") == Gtid(SOURCE_A, tag, 7)
    assert str(Gtid(SOURCE_A, tag, 7)) == text


@pytest.mark.parametrize("text", ["", A, f"{A}:1-2", f"{A}:0", f"{A}:2x:1", f"{A}::1", f"{A}:a:b:1", f"{A}:a"])
def test_one_gtid_refuses_other_texts(text: str) -> None:
    """Whatever is not exactly one GTID is an error."""
    with pytest.raises(ValueError, match="GTID"):
        Gtid.parse(text)


def test_untagged_encoding_is_the_classic_one() -> None:
    """Without tags the bytes are count, uuid, interval count, start and exclusive end."""
    expected = little_endian(2) + SOURCE_A + little_endian(2, 1, 4, 5, 6) + SOURCE_B + little_endian(1, 9, 10)
    assert GtidSet.parse(f"{B}:9,{A}:1-3:5").encode() == expected


def test_tagged_encoding_marks_both_ends_of_its_header() -> None:
    """With a tag anywhere, every pair carries its tag, an empty one too, and the header says so twice."""
    header = b"\x01\x03\x00\x00\x00\x00\x00\x01"
    pairs = (
        SOURCE_A + b"\x00" + little_endian(1, 1, 4),
        SOURCE_A + b"\x08blue" + little_endian(1, 7, 8),
        SOURCE_B + b"\x00" + little_endian(1, 9, 10),
    )
    assert GtidSet.parse(f"{A}:1-3:blue:7,{B}:9").encode() == header + b"".join(pairs)


def test_decode_reads_the_tagged_format_without_tags() -> None:
    """A server whose other sets hold tags writes untagged ones in the tagged format too."""
    encoded = b"\x01\x01\x00\x00\x00\x00\x00\x01" + SOURCE_A + b"\x00" + little_endian(1, 1, 4)
    assert GtidSet.decode(encoded) == GtidSet.parse(f"{A}:1-3")
    assert GtidSet.decode(b"\x01" + bytes(6) + b"\x01") == GtidSet() == GtidSet.decode(bytes(8))


TAGGED_HEADER = b"\x01\x01\x00\x00\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "8 bytes expected"),
        (b"\x02" + bytes(6) + b"\x02", "unknown format 2"),
        (bytes(7) + b"\x01", "unknown format 1 in header"),
        (bytes(9), "after its end"),
        (little_endian(1), "16 bytes expected"),
        (little_endian(2**40), "16 bytes expected"),
        (little_endian(1) + SOURCE_A, "8 bytes expected"),
        (little_endian(1) + SOURCE_A + little_endian(2**60), "bytes expected"),
        (little_endian(1) + SOURCE_A + little_endian(1, 3, 3), "interval"),
        (little_endian(1) + SOURCE_A + little_endian(1, 0, 3), "interval"),
        (little_endian(1) + SOURCE_A + little_endian(2, 1, 3, 3, 4), "interval"),
        (little_endian(1) + SOURCE_A + little_endian(1, 1, 2**63), "interval"),
        (TAGGED_HEADER + SOURCE_A, "1 bytes expected"),
        (TAGGED_HEADER + SOURCE_A + b"\x08blu", "4 bytes expected"),
        (TAGGED_HEADER + SOURCE_A + b"\x01\x01", "longer than 32"),
        (TAGGED_HEADER + SOURCE_A + b"\x42" + b"t" * 33 + little_endian(1, 1, 2), "longer than 32"),
        (TAGGED_HEADER + SOURCE_A + b"\x042x" + little_endian(1, 1, 2), "not a tag"),
        (TAGGED_HEADER + SOURCE_A + b"\x02\xff" + little_endian(1, 1, 2), "not a tag"),
    ],
)
def test_decode_refuses_damaged_bytes(encoded: bytes, reason: str) -> None:
    """Every shape that MySQL calls a malformed encoding is an error."""
    with pytest.raises(ValueError, match=reason):
        GtidSet.decode(encoded)


@given(models, st.data())
def test_decode_refuses_every_truncation(model: set[Gtid], data: st.DataObject) -> None:
    """No proper prefix of an encoding is an encoding."""
    encoded = from_model(model).encode()
    with pytest.raises(ValueError, match="bytes expected"):
        GtidSet.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def test_a_set_cannot_be_changed() -> None:
    """A set is a value: no attribute can be set, and it can be a key."""
    value = GtidSet.parse(f"{A}:1")
    with pytest.raises(AttributeError):
        value._intervals = {}  # type: ignore[misc]
    assert {value: 1}[GtidSet.parse(f"{A}:1")] == 1
    assert repr(value) == f"GtidSet.parse('{A}:1')"
