"""One shard of the workload: which transactions it writes, and what it gives to and takes from other shards.

Knows: the rows of its own shard as far as it wrote them. Never knows: other shards, except for the queues to them. Used
by ``workload.py``, which also says why the moves are as they are. Owner: one thread.

A lost connection leaves a transaction's outcome unknown. The writer then forgets the rows it concerned and offers
nothing of them: whichever way it ended, the history stays legal.
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from vmerge.lab.shop import CUSTOMER_COLUMNS, PURCHASE_COLUMNS, customer_values, random_note

RECONNECT_SECONDS = 120.0
"""How long a shard may be away, as when a test kills its server."""
RECONNECT_PAUSE_SECONDS = 0.1
BULK_ROWS = 400
FORGOTTEN_ERRORS = (1205, 1213)
"""Lock wait and deadlock: the server undid the transaction."""


@dataclass
class Tally:
    """What was committed."""

    transactions: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    moved_emails: int = 0
    moved_customers: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Tally)))


@dataclass(frozen=True)
class Offer:
    """What one shard released for good and another may take: e-mail addresses, or whole rows of both tables."""

    emails: tuple[str, ...] = ()
    customers: tuple[tuple[object, ...], ...] = ()
    purchases: tuple[tuple[object, ...], ...] = ()


@dataclass(frozen=True)
class _Movable:
    number: int
    email: str


class ShardWriter:
    """Writes one shard, one transaction a step."""

    def __init__(
        self,
        socket_path: str,
        database: str,
        *,
        first_id: int,
        id_step: int,
        inbox: queue.SimpleQueue[Offer],
        outboxes: Sequence[queue.SimpleQueue[Offer]],
        chance: random.Random,
        moves_again: bool,
    ) -> None:
        self.tally = Tally()
        self._socket_path = socket_path
        self._database = database
        self._next_id = first_id
        self._id_step = id_step
        self._inbox = inbox
        self._outboxes = outboxes
        self._chance = chance
        self._moves_again = moves_again
        self._connection: Connection[Cursor] | None = None
        self._movable: list[_Movable] = []
        self._residents: list[int] = []
        self._burst = 0
        self._steps = (self._insert, self._update, self._delete, self._order, self._move, self._bulk)
        self._weights = (30, 40, 10, 14, 6, 0.4)

    def open(self, stop: threading.Event) -> None:
        """Connect and learn which rows may move."""
        self._connect(stop)
        rows = self._execute("SELECT id, email FROM customer WHERE may_move ORDER BY id")
        self._movable = [_Movable(number, email) for number, email in rows]
        self._chance.shuffle(self._movable)

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            with contextlib.suppress(pymysql.Error):
                self._connection.close()
        self._connection = None

    def step(self, stop: threading.Event) -> None:
        """Write one transaction. What another shard released comes first, so that moves are quick."""
        try:
            self._write_one()
            self.tally.transactions += 1
        except (pymysql.OperationalError, pymysql.InterfaceError) as error:
            if error.args[0] not in FORGOTTEN_ERRORS:
                self._connect(stop)

    def _write_one(self) -> None:
        with contextlib.suppress(queue.Empty):
            self._take(self._inbox.get_nowait())
            return
        if self._burst:
            self._burst -= 1
            self._move()
            return
        (write,) = self._chance.choices(self._steps, self._weights)
        write()

    # What an application does on its own shard

    def _insert(self) -> None:
        number = self._fresh_id()
        self._commit([_insert_customers([(*customer_values(number, self._chance), False)])])
        self._residents.append(number)
        self.tally.inserted += 1

    def _update(self) -> None:
        number = self._any_customer()
        if number is None:
            self._insert()
            return
        text = "UPDATE customer SET note = %s, balance = balance + %s, score = %s WHERE id = %s"
        values = (random_note(self._chance), self._chance.randrange(100), self._chance.random(), number)
        self._commit([(text, values)])
        self.tally.updated += 1

    def _delete(self) -> None:
        if len(self._residents) < 20:
            self._insert()
            return
        number = self._pop_resident()
        self._commit(
            [
                ("DELETE FROM purchase WHERE customer_id = %s", (number,)),
                ("DELETE FROM customer WHERE id = %s", (number,)),
            ]
        )
        self.tally.deleted += 1

    def _order(self) -> None:
        """Several rows of two tables in one transaction."""
        if not self._residents:
            self._insert()
            return
        number = self._chance.choice(self._residents)
        ids = [self._fresh_id() for _ in range(self._chance.randint(1, 4))]
        rows = [(order, number, f"R{order}", self._chance.randrange(100_000) / 100) for order in ids]
        change = "UPDATE customer SET balance = balance - %s WHERE id = %s"
        self._commit([_insert_purchases(rows), (change, (sum(row[3] for row in rows), number))])
        self.tally.inserted += len(rows)

    def _bulk(self) -> None:
        """A large transaction, and moves right behind it: its stream lags for a moment, and siblings run ahead."""
        text = "UPDATE customer SET note = CONCAT('reviewed ', %s) ORDER BY id DESC LIMIT %s"
        self._commit([(text, (self._fresh_id(), BULK_ROWS))])
        self.tally.updated += BULK_ROWS
        self._burst = 5

    # Moves

    def _move(self) -> None:
        if not self._movable or not self._outboxes:
            self._update()
        elif self._chance.random() < 0.5:
            self._release_emails()
        else:
            self._release_customer()

    def _release_emails(self) -> None:
        count = min(self._chance.randint(1, 3), len(self._movable))
        moving = [self._movable.pop() for _ in range(count)]
        text = "UPDATE customer SET email = %s, may_move = FALSE WHERE id = %s"
        self._commit([(text, (f"renamed{self._fresh_id()}@example.com", row.number)) for row in moving])
        self._residents += [row.number for row in moving]
        self.tally.updated += count
        self._offer(Offer(emails=tuple(row.email for row in moving)))

    def _release_customer(self) -> None:
        number = self._movable.pop().number
        customers = self._execute(f"SELECT {CUSTOMER_COLUMNS} FROM customer WHERE id = %s", number)
        purchases = self._execute(f"SELECT {PURCHASE_COLUMNS} FROM purchase WHERE customer_id = %s", number)
        self._commit(
            [
                ("DELETE FROM purchase WHERE customer_id = %s", (number,)),
                ("DELETE FROM customer WHERE id = %s", (number,)),
            ]
        )
        self.tally.deleted += len(customers) + len(purchases)
        self._offer(Offer(customers=tuple(customers), purchases=tuple(purchases)))

    def _offer(self, offer: Offer) -> None:
        self._chance.choice(self._outboxes).put(offer)

    def _take(self, offer: Offer) -> None:
        statements: list[tuple[str, Sequence[object]]] = []
        taken: list[_Movable] = []
        for email in offer.emails:
            if self._residents and self._chance.random() < 0.5:
                number = self._pop_resident()
                statements.append(("UPDATE customer SET email = %s WHERE id = %s", (email, number)))
            else:
                number = self._fresh_id()
                values = customer_values(number, self._chance, email)
                statements.append(_insert_customers([(*values, self._moves_again)]))
            taken.append(_Movable(number, email))
        if offer.customers:
            statements.append(_insert_customers([(*row[:-1], self._moves_again) for row in offer.customers]))
            taken += [_Movable(int(str(row[0])), str(row[1])) for row in offer.customers]
        if offer.purchases:
            statements.append(_insert_purchases(offer.purchases))
        self._commit(statements)
        self.tally.moved_emails += len(offer.emails)
        self.tally.moved_customers += len(offer.customers)
        if self._moves_again:
            self._movable += taken
        else:
            self._residents += [row.number for row in taken]

    # Rows and statements

    def _fresh_id(self) -> int:
        number, self._next_id = self._next_id, self._next_id + self._id_step
        return number

    def _any_customer(self) -> int | None:
        if self._residents and self._chance.random() < 0.7:
            return self._chance.choice(self._residents)
        return self._chance.choice(self._movable).number if self._movable else None

    def _pop_resident(self) -> int:
        index = self._chance.randrange(len(self._residents))
        self._residents[index], self._residents[-1] = self._residents[-1], self._residents[index]
        return self._residents.pop()

    def _commit(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        connection = self._opened()
        connection.begin()
        try:
            with connection.cursor() as cursor:
                for text, values in statements:
                    cursor.execute(text, values)
            connection.commit()
        except pymysql.OperationalError as error:
            if error.args[0] in FORGOTTEN_ERRORS:
                connection.rollback()  # a lock wait undoes only its statement
            raise

    def _execute(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with self._opened().cursor() as cursor:
            cursor.execute(text, values or None)
            return list(cursor.fetchall())

    def _opened(self) -> Connection[Cursor]:
        if self._connection is None:
            raise pymysql.InterfaceError(0, "not connected")
        return self._connection

    def _connect(self, stop: threading.Event) -> None:
        """Connect, anew if need be; give up when told to stop, or after a while."""
        self.close()
        give_up_at = time.monotonic() + RECONNECT_SECONDS
        while not stop.is_set():
            try:
                self._connection = pymysql.connect(
                    unix_socket=self._socket_path,
                    user="root",
                    database=self._database,
                    charset="utf8mb4",
                    autocommit=True,
                    read_timeout=60,
                )
                return
            except pymysql.OperationalError:
                if time.monotonic() > give_up_at:
                    raise
                stop.wait(RECONNECT_PAUSE_SECONDS)


def _insert_customers(rows: Sequence[tuple[object, ...]]) -> tuple[str, Sequence[object]]:
    return _insert_rows("customer", CUSTOMER_COLUMNS, rows)


def _insert_purchases(rows: Sequence[tuple[object, ...]]) -> tuple[str, Sequence[object]]:
    return _insert_rows("purchase", PURCHASE_COLUMNS, rows)


def _insert_rows(table: str, columns: str, rows: Sequence[tuple[object, ...]]) -> tuple[str, Sequence[object]]:
    one = f"({', '.join(['%s'] * len(columns.split(',')))})"
    return f"INSERT INTO {table} ({columns}) VALUES {', '.join([one] * len(rows))}", [v for row in rows for v in row]
