"""The command line: parse, call, map errors to exit codes. The only importer of click.

A process begins in `entry`; `main` has the commands.
"""
