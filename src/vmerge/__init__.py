"""vmerge merges several live MySQL shards into one MySQL, exactly once."""

__version__ = "0.1.0"
