"""The pure zone: values, binlog bytes, positions and the conflict machine. Standard library only, no I/O."""
