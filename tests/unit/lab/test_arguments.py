"""What the lab's programs take as numbers."""

from __future__ import annotations

import pytest

from vmerge.lab import demo, soak
from vmerge.lab.arguments import above_zero, count


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "", "x", "1m"])
@pytest.mark.parametrize(
    ("main", "option"), [(demo.main, "--seconds"), (soak.main, "--minutes"), (soak.main, "--rows")]
)
def test_what_is_no_length_is_refused(main: object, option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A time or a count that is no number above zero ends a program with one line and code 2, before it begins."""
    assert callable(main)
    with pytest.raises(SystemExit) as ended:
        main([f"{option}={text}"])
    assert ended.value.code == 2
    assert f"{text} is not a number above 0" in capsys.readouterr().err


def test_numbers_are_read() -> None:
    """Fractions are numbers, and whole ones are counts."""
    assert above_zero("0.5") == 0.5
    assert count("20000") == 20_000
