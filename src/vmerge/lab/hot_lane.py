"""One lane of the hot-key workload: the values and rows it moves between the shards, one business transaction a step.

Knows: who holds what in its lane, on every shard. Never knows: other lanes, the target or vmerge. Used by
``hot_keys.py``, which says what kind of histories these are. Owner: one thread.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from vmerge.lab.hot_commits import Committer, Statement, Work
from vmerge.lab.hot_tables import COLD_IDS_FROM

COLD_ROWS = 200
"""Of each lane and shard; more are deleted again."""

Place = tuple[str, int]
_Thing = TypeVar("_Thing")

_SET_CODE = "UPDATE seat SET code = %s WHERE id = %s"
_SET_PLACE = "UPDATE seat SET area = %s, number = %s WHERE id = %s"
_DELETE_BADGE = "DELETE FROM badge WHERE id = %s"
_INSERT_BADGE = "INSERT INTO badge (id, lane, serial, label, note) VALUES (%s, %s, %s, %s, %s)"


@dataclass
class _Seat:
    """A row that stays on its shard."""

    number: int
    shard: int
    code: str | None
    place: Place | None


@dataclass(frozen=True)
class _Badge:
    """A row that moves."""

    number: int
    serial: str
    label: str | None


class Lane:
    """Moves its values and rows; ``done`` counts what it committed, by kind."""

    def __init__(
        self, number: int, shards: Sequence[tuple[str, str]], *, first_cold_id: int, chance: random.Random
    ) -> None:
        self.done: Counter[str] = Counter()
        self._number = number
        self._shards = shards
        self._chance = chance
        self._next_cold_id = COLD_IDS_FROM + first_cold_id
        self._committer = Committer(number, shards, first_work=first_cold_id, chance=chance, done=self.done)
        self._seats: list[_Seat] = []
        self._badges: list[list[_Badge]] = [[] for _ in shards]
        self._cold: list[list[int]] = [[] for _ in shards]
        self._free_codes: list[str] = []
        self._free_places: list[Place] = []
        self._free_badges: list[_Badge] = []
        steps: dict[Callable[[], None], int] = {
            self._pass_code_on: 14,
            self._pass_place_on: 8,
            self._release: 6,
            self._claim: 8,
            self._swap_through_null: 6,
            self._exchange_codes: 4,
            self._exchange_badges: 3,
            self._rotate: 2,
            self._permute: 6,
            self._flicker: 6,
            self._move_badge: 10,
            self._park_badge: 4,
            self._rewrite_badge: 6,
            self._fill: 30,
        }
        self._steps, self._weights = tuple(steps), tuple(steps.values())

    def open(self) -> None:
        """Connect to every shard and learn who holds what."""
        self._committer.open()
        seats = "SELECT id, code, area, number FROM seat WHERE lane = %s AND id < %s ORDER BY id"
        badges = "SELECT id, serial, label FROM badge WHERE lane = %s ORDER BY id"
        for shard in range(len(self._shards)):
            for number, code, area, place in self._committer.query(shard, (seats, (self._number, COLD_IDS_FROM))):
                self._seats.append(_Seat(number, shard, code, None if area is None else (area, place)))
            found = self._committer.query(shard, (badges, (self._number,)))
            self._badges[shard] = [_Badge(*row) for row in found]
            self._committer.query(shard, ("COMMIT", ()))

    def close(self) -> None:
        """Disconnect."""
        self._committer.close()

    def step(self) -> None:
        """Do one piece of business, of one transaction or several."""
        (step,) = self._chance.choices(self._steps, self._weights)
        step()

    # One value after the other: released by one transaction, taken by a later one

    def _pass_code_on(self) -> None:
        """Codes go from seats of one shard to free seats of another."""
        givers = self._pick(self._holding_code(), self._chance.randint(1, 3), of_one_shard=True)
        takers = self._pick(self._without_code(), len(givers), of_one_shard=True)
        codes = [giver.code for giver in givers][: len(takers)]
        givers = givers[: len(takers)]
        if not codes:
            return
        self._set_codes([(giver, None) for giver in givers])
        self._set_codes(list(zip(takers, codes, strict=True)))
        self.done["codes passed on"] += len(codes)

    def _pass_place_on(self) -> None:
        givers = self._pick([seat for seat in self._seats if seat.place], 1)
        takers = self._pick([seat for seat in self._seats if not seat.place], 1)
        for giver, taker in zip(givers, takers, strict=False):
            place = giver.place
            self._set_place(giver, None)
            self._set_place(taker, place)
            self.done["places passed on"] += 1

    def _release(self) -> None:
        """A seat gives up all it holds; who takes it is decided later."""
        for seat in self._pick(self._holding_code(), 1):
            assert seat.code is not None
            work = Work(seat.shard, [(_SET_CODE, (None, seat.number))])
            if seat.place is not None:
                work.statements.append((_SET_PLACE, (None, None, seat.number)))
                self._free_places.append(seat.place)
            self._committer.commit(work)
            self._free_codes.append(seat.code)
            seat.code = seat.place = None
            self.done["seats released"] += 1

    def _claim(self) -> None:
        """A free seat takes what nobody holds, a code and a place at once if there are both."""
        for seat in self._pick([seat for seat in self._without_code() if not seat.place], 1):
            if not self._free_codes:
                return
            code = self._take_any(self._free_codes)
            place = self._take_any(self._free_places) if self._free_places else None
            work = Work(seat.shard, [(_SET_CODE, (code, seat.number))])
            if place is not None:
                work.statements.append((_SET_PLACE, (*place, seat.number)))
            self._committer.commit(work)
            seat.code, seat.place = code, place
            self.done["seats claimed"] += 1

    def _swap_through_null(self) -> None:
        """Two seats of two shards swap their codes, in three transactions, all of them legal."""
        pair = self._pick_pair()
        if pair is None:
            return
        one, other = pair
        first, second = one.code, other.code
        self._set_codes([(one, None)])
        self._set_codes([(other, first)])
        self._set_codes([(one, second)])
        self.done["codes swapped through NULL"] += 1

    # Several shards at one moment: no order of the transactions would be legal

    def _exchange_codes(self) -> None:
        pair = self._pick_pair()
        if pair is None:
            return
        one, other = pair
        self._rotate_codes([one, other])
        self.done["codes exchanged at one moment"] += 1

    def _rotate(self) -> None:
        """As many shards as can be pass a code to the next one."""
        holders = self._holding_code()
        ring = [self._chance.choice(seats) for shard in range(len(self._shards)) if (seats := _on(holders, shard))]
        if len(ring) < 2:
            return
        self._chance.shuffle(ring)
        self._rotate_codes(ring)
        self.done[f"codes of {len(ring)} shards rotated at one moment"] += 1

    def _rotate_codes(self, ring: Sequence[_Seat]) -> None:
        codes = [seat.code for seat in [*ring[1:], ring[0]]]
        works = [Work(seat.shard, [(_SET_CODE, (code, seat.number))]) for seat, code in zip(ring, codes, strict=True)]
        self._committer.commit(*works)
        for seat, code in zip(ring, codes, strict=True):
            seat.code = code

    def _exchange_badges(self) -> None:
        """Two rows change shards at one moment, each with its primary key and all of its values."""
        shards = [shard for shard, badges in enumerate(self._badges) if badges]
        if len(shards) < 2:
            return
        here, there = self._chance.sample(shards, 2)
        mine, theirs = self._pop_badge(here), self._pop_badge(there)
        self._committer.commit(
            Work(here, [_delete(mine), self._insert(theirs)]), Work(there, [_delete(theirs), self._insert(mine)])
        )
        self._badges[here].append(theirs)
        self._badges[there].append(mine)
        self.done["badges exchanged at one moment"] += 1

    # Rows that move

    def _move_badge(self) -> None:
        """A row is deleted on one shard and then inserted on another, perhaps with another label."""
        shards = [shard for shard, badges in enumerate(self._badges) if badges]
        if not shards:
            return
        here = self._chance.choice(shards)
        there = self._another(here)
        badge = self._pop_badge(here)
        self._committer.commit(Work(here, [_delete(badge)]))
        if self._chance.random() < 0.3:
            badge = _Badge(badge.number, badge.serial, None if badge.label else f"label {badge.number}")
        self._committer.commit(Work(there, [self._insert(badge)]))
        self._badges[there].append(badge)
        self.done["badges moved"] += 1

    def _park_badge(self) -> None:
        """A row is on no shard for a while, and comes back on any."""
        if self._free_badges:
            badge, shard = self._take_any(self._free_badges), self._chance.randrange(len(self._shards))
            self._committer.commit(Work(shard, [self._insert(badge)]))
            self._badges[shard].append(badge)
            self.done["badges inserted again"] += 1
            return
        shard = self._chance.randrange(len(self._shards))
        if self._badges[shard]:
            badge = self._pop_badge(shard)
            self._committer.commit(Work(shard, [_delete(badge)]))
            self._free_badges.append(badge)
            self.done["badges deleted"] += 1

    def _rewrite_badge(self) -> None:
        """A row is deleted and inserted again in one transaction."""
        shard = self._chance.randrange(len(self._shards))
        if not self._badges[shard]:
            return
        badge = self._chance.choice(self._badges[shard])
        self._committer.commit(Work(shard, [_delete(badge), self._insert(badge)]))
        self.done["badges rewritten"] += 1

    # On one shard

    def _permute(self) -> None:
        """Two seats of one shard swap their codes in one transaction."""
        seats = self._pick(self._holding_code(), 2, of_one_shard=True)
        if len(seats) < 2:
            return
        one, other = seats
        statements: list[Statement] = [
            (_SET_CODE, (None, one.number)),
            (_SET_CODE, (one.code, other.number)),
            (_SET_CODE, (other.code, one.number)),
        ]
        self._committer.commit(Work(one.shard, statements))
        one.code, other.code = other.code, one.code
        self.done["codes permuted"] += 1

    def _flicker(self) -> None:
        """A seat takes a free code and gives it back in one transaction: only the states between would conflict."""
        for seat in self._pick(self._without_code(), 1):
            if not self._free_codes:
                return
            code = self._chance.choice(self._free_codes)
            self._committer.commit(
                Work(seat.shard, [(_SET_CODE, (code, seat.number)), (_SET_CODE, (None, seat.number))])
            )
            self.done["codes taken for a moment"] += 1

    def _fill(self) -> None:
        """Rows that never meet another shard: most of what an application does."""
        shard = self._chance.randrange(len(self._shards))
        cold = self._cold[shard]
        if len(cold) > COLD_ROWS:
            numbers = [cold.pop(self._chance.randrange(len(cold))) for _ in range(5)]
            self._committer.commit(Work(shard, [("DELETE FROM seat WHERE id IN %s", (tuple(numbers),))]))
            self.done["cold rows deleted"] += len(numbers)
        elif cold and self._chance.random() < 0.5:
            text = "UPDATE seat SET note = REPEAT(%s, 10) WHERE id = %s"
            self._committer.commit(Work(shard, [(text, (f"note {self._chance.random()}", self._chance.choice(cold)))]))
            self.done["cold rows updated"] += 1
        else:
            numbers = [self._fresh_cold_id() for _ in range(self._chance.randint(1, 4))]
            text = "INSERT INTO seat (id, lane, note) VALUES (%s, %s, 'cold')"
            self._committer.commit(Work(shard, [(text, (number, self._number)) for number in numbers]))
            cold += numbers
            self.done["cold rows inserted"] += len(numbers)

    # Choices

    def _holding_code(self) -> list[_Seat]:
        return [seat for seat in self._seats if seat.code is not None]

    def _without_code(self) -> list[_Seat]:
        return [seat for seat in self._seats if seat.code is None]

    def _pick(self, seats: Sequence[_Seat], count: int, *, of_one_shard: bool = False) -> list[_Seat]:
        """Return so many different seats by chance, fewer where there are fewer."""
        if of_one_shard and seats:
            seats = _on(seats, self._chance.choice(seats).shard)
        return self._chance.sample(list(seats), min(count, len(seats)))

    def _pick_pair(self) -> tuple[_Seat, _Seat] | None:
        """Return two seats of two shards that both hold a code."""
        holders = self._holding_code()
        if not holders:
            return None
        one = self._chance.choice(holders)
        others = [seat for seat in holders if seat.shard != one.shard]
        return (one, self._chance.choice(others)) if others else None

    def _take_any(self, things: list[_Thing]) -> _Thing:
        return things.pop(self._chance.randrange(len(things)))

    def _pop_badge(self, shard: int) -> _Badge:
        return self._take_any(self._badges[shard])

    def _another(self, shard: int) -> int:
        return self._chance.choice([other for other in range(len(self._shards)) if other != shard])

    def _fresh_cold_id(self) -> int:
        number, self._next_cold_id = self._next_cold_id, self._next_cold_id + 1
        return number

    # Transactions

    def _set_codes(self, changes: Sequence[tuple[_Seat, str | None]]) -> None:
        """Change seats of one shard in one transaction."""
        self._committer.commit(Work(changes[0][0].shard, [(_SET_CODE, (code, seat.number)) for seat, code in changes]))
        for seat, code in changes:
            seat.code = code

    def _set_place(self, seat: _Seat, place: Place | None) -> None:
        self._committer.commit(Work(seat.shard, [(_SET_PLACE, (*(place or (None, None)), seat.number))]))
        seat.place = place

    def _insert(self, badge: _Badge) -> Statement:
        note = self._chance.choice((None, "moved " * self._chance.randrange(30)))
        return _INSERT_BADGE, (badge.number, self._number, badge.serial, badge.label, note)


def _on(seats: Sequence[_Seat], shard: int) -> list[_Seat]:
    return [seat for seat in seats if seat.shard == shard]


def _delete(badge: _Badge) -> Statement:
    return _DELETE_BADGE, (badge.number,)
