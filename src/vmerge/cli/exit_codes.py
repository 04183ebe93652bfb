"""The exit codes of commands, as their help tells them.

Knows: numbers and words; those of errors stand in `vmerge.errors`. Never knows: a library, for `entry` must be quick to
load. Users: the modules of this package.
"""

INTERRUPTED = 130
"""As shells number an end by Ctrl-C."""

MEANINGS = {
    0: "done",
    1: "internal error",
    2: "the file or the command is wrong",
    3: "servers, accounts or schemas do not fit",
    4: "a key stayed held for too long",
    5: "a stop did not end within its bound",
    6: "no daemon, one too many, an unknown workflow or stream, or an order that does not fit",
    7: "a source failed",
    8: "the target failed",
    9: "a comparison found a difference",
    10: "the temporary file of a large transaction failed",
    INTERRUPTED: "interrupted by Ctrl-C; what a check printed until then is not all there is",
}
"""Every exit code there is. docs/commands.md has them from here."""

EXIT_CODES = "\b\nExit codes:\n" + "".join(f"{code:4}  {meaning}\n" for code, meaning in MEANINGS.items())
"""As click shows it below a help text; the first line keeps it from joining the lines."""
