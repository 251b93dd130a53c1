"""The memory store: dictionaries under one lock, for one process.

It is bounded, in entries and in bytes, and never forgets what still counts. Only an entry that
equals no entry, because all its charges have run out or because it was reset, may go to make room.
When all are live, further new keys share a few *overflow* records: they are limited together, while
a key that was drained before a flood of others stays drained. While an overflow record is live, a
new key starts from its count even if there is room again, so that nobody gains by having shared one.
A log that finds no room to grow merges its newest entries, at the later time.

There is no background thread. Entries that may have run out stand in queues, one for each second
or so, and each new entry looks at a few that are due.

The clock is the wall clock when the store is made, advanced by the monotonic one: steps of the
system's clock have no effect.
"""

from __future__ import annotations

import os
import sys
import weakref
from heapq import heappop, heappush
from itertools import count
from threading import Lock
from time import monotonic_ns, time_ns

from noria.algorithms.sliding_window_log import coarsen
from noria.core.transition import current, give_back, transition, write
from noria.model.batch import Batch, Entry, Evidence, Row, Slot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from noria.algorithms import Shape, State
    from noria.model.batch import Answer, Clock, Part
    from noria.model.limit import Rule

MAX_ENTRIES = 1_000_000
MAX_BYTES = 512 << 20

_ENTRY_BYTES = 420
"""What an entry takes beside its key, with its share of tables that are half full."""

_CALL_BYTES = 18
"""What a call takes in a log."""

_SHARED = 64
"""Overflow records of one limit."""

_QUEUE_BITS = 20
"""A queue holds what may run out within 2**20 us, about a second."""


class _Kept(Slot):
    """A slot in a table: `due` is the queue it stands in, `size` the bytes it is counted with."""

    __slots__ = ("due", "size")

    def __init__(self, shape: Shape, birth: int) -> None:
        super().__init__(shape, birth)
        self.due = 0
        self.size = 0


class _Table(dict[str, _Kept]):
    """The slots of one limit by key, and by second the keys whose slots may have run out."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[int, list[str]] = {}


class MemoryStore:
    """States in this process, at most `max_entries` of them and about `max_bytes` bytes."""

    def __init__(self, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self.secret = os.urandom(32)
        self.lock = Lock()
        self.offset = time_ns() - monotonic_ns()
        self.overflowed = 0
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries = 0
        self._bytes = 0
        self._births = count(1)
        self._namespaces: dict[str, dict[str, _Table]] = {}
        self._overflow: dict[tuple[str, str, int], _Kept] = {}
        self._vacant: dict[tuple[int, str], _Table] = {}
        self._queued: list[tuple[int, int, _Table]] = []
        self._queue_numbers = count()
        self._reclaimed = 0
        _stores.add(self)

    def space(self, namespace: str, clock: Clock | None) -> MemorySpace:
        """The store under a namespace, by its own clock or the one given."""
        with self.lock:
            tables = self._namespaces.setdefault(namespace, {})
        return MemorySpace(self, namespace, tables, clock or self.now)

    def now(self) -> int:
        """Microseconds since the Unix epoch."""
        return (monotonic_ns() + self.offset) // 1000

    def stats(self) -> dict[str, int]:
        """`entries` and `bytes` held, and how many decisions were `overflowed`."""
        return {"entries": self._entries, "bytes": self._bytes, "overflowed": self.overflowed}

    def close(self) -> None:
        """Nothing to let go of."""

    # What follows is called with the lock held.

    def born(self, shape: Shape) -> _Kept:
        """A slot that is in no table yet."""
        return _Kept(shape, next(self._births))

    def shared(self, namespace: str, rule: Rule, key: str) -> _Kept:
        """The overflow record that `key` would share, which may be new and unused."""
        return self.shared_by(namespace, rule.id, key) or self.born(rule.shape)

    def shared_by(self, namespace: str, rule_id: str, key: str) -> _Kept | None:
        """The overflow record of a key, if there is one."""
        return self._overflow.get((namespace, rule_id, hash(key) % _SHARED))

    def overflows(self) -> bool:
        """Whether any key shares a record."""
        return bool(self._overflow)

    def keep_shared(self, namespace: str, rule: Rule, key: str, slot: _Kept, now: int) -> None:
        """Keep an overflow record, and drop those that have run out."""
        if len(self._overflow) >= 16 * _SHARED:
            live = {place: slot for place, slot in self._overflow.items() if slot.expires > now}
            self._overflow = live
        self._overflow[namespace, rule.id, hash(key) % _SHARED] = slot

    def has_room(self, key: str, now: int, entries: int) -> bool:
        """Whether `entries` more can be kept, once what has run out is gone."""
        size = entries * (sys.getsizeof(key) + _ENTRY_BYTES)

        def fits() -> bool:
            return self._entries + entries <= self._max_entries and self._bytes + size <= self._max_bytes

        self._sweep(now, 4)
        while not fits():
            if not self._vacate() and not self._reclaim(now):
                return fits()
        return True

    def keep(self, table: _Table, key: str, slot: _Kept) -> None:
        """Put a new slot into its table; its expiry is known by now."""
        table[key] = slot
        slot.size = sys.getsizeof(key) + _ENTRY_BYTES
        self._entries += 1
        self._bytes += slot.size
        self._queue(table, key, slot)

    def grown(self, slot: _Kept) -> None:
        """Count what a log has grown by, having merged its newest entries where there is no room."""
        log = slot.state[1]
        size = sys.getsizeof(log) + _CALL_BYTES * len(log.times)
        if self._bytes + size - slot.size > self._max_bytes:
            slot.state = coarsen(slot.state)
            return
        self._bytes += size - slot.size
        slot.size = size

    def forget(self, table: _Table, key: str, slot: _Kept, now: int) -> bool:
        """Reset a slot; whether it was live. It goes when room is wanted, or its turn comes."""
        live = slot.state is not None and slot.expires > now
        slot.state = None
        slot.refunds = ()
        slot.birth = next(self._births)
        slot.charges = 0
        slot.expires = 0
        self._vacant[id(table), key] = table
        return live

    def _vacate(self) -> bool:
        """Drop one slot that was reset and not used since; false when there is none."""
        while self._vacant:
            (_, key), table = self._vacant.popitem()
            slot = table.get(key)
            if slot is not None and slot.state is None:
                self._drop(table, key, slot)
                return True
        return False

    def _sweep(self, now: int, most: int) -> None:
        """Look at up to `most` slots of queues that are over; drop those that have run out."""
        queued = self._queued
        for _ in range(most):
            if not queued or queued[0][0] >= now >> _QUEUE_BITS:
                return
            due, _, table = queued[0]
            keys = table.queues[due]
            if keys:
                self._visit(table, keys.pop(), due, now)
            else:
                del table.queues[due]
                heappop(queued)

    def _reclaim(self, now: int) -> bool:
        """Look for room in earnest, in the queue of this second too; whether it was worth another try.

        Where nothing was over, once in 50 ms is often enough: a flood of new keys must stay cheap.
        """
        queued = self._queued
        if not queued or queued[0][0] > now >> _QUEUE_BITS:
            return False
        if queued[0][0] == now >> _QUEUE_BITS and 0 <= now - self._reclaimed < 50_000:
            return False
        self._reclaimed = now
        due, _, table = heappop(queued)
        keys = table.queues.pop(due)
        if keys[:-1024]:
            table.queues[due] = keys[:-1024]
            heappush(queued, (due, next(self._queue_numbers), table))
        entries = self._entries
        for key in keys[-1024:]:
            self._visit(table, key, due, now)
        return self._entries < entries

    def _visit(self, table: _Table, key: str, due: int, now: int) -> None:
        slot = table.get(key)
        if slot is None or slot.due != due:
            return
        if slot.expires <= now:
            self._drop(table, key, slot)
        else:
            self._queue(table, key, slot)

    def _queue(self, table: _Table, key: str, slot: _Kept) -> None:
        due = slot.due = slot.expires >> _QUEUE_BITS
        keys = table.queues.get(due)
        if keys is None:
            keys = table.queues[due] = []
            heappush(self._queued, (due, next(self._queue_numbers), table))
        keys.append(key)

    def _drop(self, table: _Table, key: str, slot: _Kept) -> None:
        del table[key]
        self._vacant.pop((id(table), key), None)
        self._entries -= 1
        self._bytes -= slot.size


class MemorySpace:
    """The memory store under one namespace; see `noria.model.batch.Space`."""

    decide: Callable[[str, Rule, int], Answer]

    def __init__(
        self, store: MemoryStore, namespace: str, tables: dict[str, _Table], clock: Clock
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._tables = tables
        self._clock = clock
        self.decide = self._quick()

    def _quick(self) -> Callable[[str, Rule, int], Answer]:
        """`decide` as a closure, for a slot that exists: the path that has to cost nothing."""
        acquire, release = self._store.lock.acquire, self._store.lock.release
        tables, clock, grown, new = self._tables, self._clock, self._store.grown, self._decide_new

        def decide(key: str, rule: Rule, cost: int) -> Answer:
            acquire()
            try:
                now = clock()
                try:
                    slot = tables[rule.id][key]
                except KeyError:
                    return new(key, rule, cost, now)
                before = slot.state
                if slot.shape is not rule.shape and slot.shape != rule.shape:
                    before = current(slot, rule, now)
                tick = rule.tick
                fits, state, expires, remaining, wait = rule.step(
                    rule.numbers, before, now // tick, cost
                )
                if state is not before:
                    slot.state = state
                    slot.shape = rule.shape
                    slot.expires = expires * tick
                    if fits:
                        slot.charges += 1
                        if rule.grows:
                            grown(slot)
                            state = slot.state
                return fits, remaining, wait, now, state, None, slot.birth, slot.charges, False
            finally:
                release()

        return decide

    def _decide_new(self, key: str, rule: Rule, cost: int, now: int) -> Answer:
        """`decide` where nothing is kept for the key; the lock is held."""
        row = self._apply(Batch([Entry(key, rule, cost, veto=True)], charge=True), now)[0]
        return (
            row.fits,
            row.remaining,
            row.wait,
            now,
            row.state,
            None,
            row.birth,
            row.number,
            row.overflow,
        )

    def apply(self, batch: Batch) -> Evidence:
        with self._store.lock:
            now = self._clock()
            return Evidence(now, self._apply(batch, now))

    def _apply(self, batch: Batch, now: int) -> list[Row]:
        store = self._store
        found = [self._find(entry.key, entry.rule.id) for entry in batch.entries]
        new = [entry.key for entry, slot in zip(batch.entries, found, strict=True) if slot is None]
        room = not new or not batch.charge or store.has_room(max(new, key=len), now, len(new))
        slots = [
            self._new(entry, now, room=room) if slot is None else slot
            for entry, slot in zip(batch.entries, found, strict=True)
        ]
        moves = transition(batch, slots, now)
        for move, slot, old in zip(moves, slots, found, strict=True):
            row = move.row
            row.overflow = old is None and not room
            if row.overflow and row.entry.cost:
                store.overflowed += 1
            if not move.kept:
                continue
            write(move, slot)
            if row.overflow:
                store.keep_shared(self._namespace, row.entry.rule, row.entry.key, slot, now)
                continue
            if old is None:
                store.keep(self._table(row.entry.rule.id), row.entry.key, slot)
            if row.entry.rule.grows:
                store.grown(slot)
                row.state = slot.state
        return [move.row for move in moves]

    def _table(self, rule_id: str) -> _Table:
        table = self._tables.get(rule_id)
        if table is None:
            table = self._tables[rule_id] = _Table()
        return table

    def _find(self, key: str, rule_id: str) -> _Kept | None:
        table = self._tables.get(rule_id)
        return None if table is None else table.get(key)

    def _new(self, entry: Entry, now: int, *, room: bool) -> _Kept:
        """A slot for a key that has none: its own, or the one it shares where there is no room."""
        store, rule = self._store, entry.rule
        if room and not store.overflows():
            return store.born(rule.shape)
        shared = store.shared(self._namespace, rule, entry.key)
        if not room:
            return shared
        slot = store.born(rule.shape)
        if shared.expires > now:
            slot.state = rule.kernel.copy(current(shared, rule, now))
        return slot

    def refund(self, parts: list[Part]) -> bool:
        with self._store.lock:
            now = self._clock()
            return any([self._refund(part, now) for part in parts])

    def _refund(self, part: Part, now: int) -> bool:
        slot = self._find(part.key, part.rule_id)
        shared = self._store.shared_by(self._namespace, part.rule_id, part.key)
        return any(kept is not None and give_back(kept, part, now) for kept in (slot, shared))

    def reset(self, key: str, rule_ids: list[str] | None) -> int:
        with self._store.lock:
            now = self._clock()
            tables = self._tables
            names = list(tables) if rule_ids is None else rule_ids
            found = [(tables[name], tables[name].get(key)) for name in names if name in tables]
            return sum(
                self._store.forget(table, key, slot, now) for table, slot in found if slot is not None
            )

    def states(self, key: str, rules: list[Rule]) -> tuple[int, list[State]]:
        with self._store.lock:
            now = self._clock()
            found = [current(self._find(key, rule.id), rule, now) for rule in rules]
            return now, [
                state if state is None else rule.kernel.copy(state)
                for rule, state in zip(rules, found, strict=True)
            ]


_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()
_held: list[MemoryStore] = []


def _before_fork() -> None:
    """Take every lock, so that the child does not inherit a store in the middle of a step."""
    _held.extend(_stores)
    for store in _held:
        store.lock.acquire()


def _after_fork() -> None:
    while _held:
        _held.pop().lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
