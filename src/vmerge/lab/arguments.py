"""Kinds of arguments that the lab's programs take.

Knows: numbers. Never knows: a program. Used by the demo and the soak.
"""

from __future__ import annotations

import argparse
import math


def above_zero(text: str) -> float:
    """Return the number that a text says; argparse tells of a text that says none, or none above zero.

    Raises:
        argparse.ArgumentTypeError: it is not a finite number above zero.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def count(text: str) -> int:
    """Return a whole number above zero, as ``above_zero`` does."""
    number = above_zero(text)
    if number != int(number):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number")
    return int(number)
