"""sysbench on one shard: its OLTP loads, with ids that no other shard has.

Knows: sysbench's tables, its command line and what it prints. Never knows: vmerge. Used by the soak.

sysbench counts ids from 1 on every server. A script of a few lines lets its own loads run with ids behind an offset,
so that several shards fit into one target. The tables are filled here and not by sysbench, which would count from 1.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from vmerge.errors import PreflightError
from vmerge.lab.processes import Program
from vmerge.lab.servers import Lab, Server

DATABASE = "sbtest"
LOADS = ("oltp_write_only", "oltp_read_write")
THREADS = 4

# The table of sysbench's oltp_common.lua.
TABLE = """
CREATE TABLE {database}.sbtest{number} (
  id INT NOT NULL PRIMARY KEY,
  k INT NOT NULL DEFAULT 0,
  c CHAR(120) NOT NULL DEFAULT '',
  pad CHAR(60) NOT NULL DEFAULT '',
  KEY k_{number} (k)
);
"""
ROWS = """
SET cte_max_recursion_depth = {rows};
INSERT INTO {database}.sbtest{number} (id, k, c, pad)
  WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows})
  SELECT {offset} + n, 1 + RAND() * {rows}, REPEAT(LPAD(FLOOR(RAND() * 1e11), 12, '-'), 9), SHA2(n, 224) FROM numbers;
"""
# Every load draws its ids by this function.
SCRIPT = """
require("{load}")
sysbench.cmdline.options.id_offset = {{"What the ids of rows begin behind", 0}}
local draw = sysbench.rand.default
sysbench.rand.default = function(first, last) return draw(first, last) + sysbench.opt.id_offset end
"""


@dataclass(frozen=True)
class Load:
    """What runs on one shard."""

    name: str
    """One of ``LOADS``."""
    tables: int
    rows: int
    """In each table."""
    offset: int
    """Ids are above it, and up to ``offset + rows``."""
    rate: float
    """Transactions a second."""
    seconds: float


def find_sysbench() -> str:
    """Return the path of the program.

    Raises:
        PreflightError: it is not installed.
    """
    path = shutil.which("sysbench")
    if path is None:
        raise PreflightError("sysbench is not on the PATH", hint="On Debian: apt-get install sysbench")
    return path


def create_tables(server: Server, tables: int) -> None:
    """Create sysbench's database with its empty tables."""
    server.execute_script(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
    for number in range(1, tables + 1):
        server.execute_script(TABLE.format(database=DATABASE, number=number))


def fill_tables(server: Server, load: Load) -> None:
    """Give every table its rows, one transaction a table."""
    for number in range(1, load.tables + 1):
        server.execute_script(ROWS.format(database=DATABASE, number=number, rows=load.rows, offset=load.offset))


class Sysbench(Program):
    """A load from its creation until its time is over, or ``end``."""

    def __init__(self, lab: Lab, server: Server, load: Load) -> None:
        script = lab.folder / f"shifted_{load.name}.lua"  # another name than its own: Lua looks here first
        script.write_text(SCRIPT.format(load=load.name))
        super().__init__(lab, f"sysbench-{server.name}", _command(find_sysbench(), script, server, load))

    def transactions(self) -> int:
        """Return how many it committed, after it has ended by itself.

        Raises:
            ProgramFailed: it failed.
        """
        counted = re.search(r"transactions: +(\d+)", self.output)
        if self.wait(0) != 0 or counted is None:
            raise self.failure()
        return int(counted[1])


def _command(program: str, script: Path, server: Server, load: Load) -> tuple[str, ...]:
    return (
        program,
        str(script),
        "--db-driver=mysql",
        f"--mysql-socket={server.socket_path}",
        "--mysql-user=root",
        f"--mysql-db={DATABASE}",
        f"--threads={THREADS}",
        f"--tables={load.tables}",
        f"--table-size={load.rows}",
        f"--id-offset={load.offset}",
        f"--rate={load.rate:g}",
        f"--time={max(1, round(load.seconds))}",
        "--events=0",
        "run",
    )
