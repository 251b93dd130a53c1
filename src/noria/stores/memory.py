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

_LOG_BYTES = 230
"""What a log takes beside its calls."""

_CALL_BYTES = 18
"""What a call takes in a log."""

_SHARED = 64
"""Overflow records of one limit."""

_QUEUE_BITS = 20
"""A queue holds what may run out within 2**20 us, about a second."""


def bucket(key: str) -> int:
    """Which of a limit's overflow records a key shares."""
    return hash(key) % _SHARED


class _Kept(Slot):
    """A slot in a table: the queue it stands in, the bytes and the calls it is counted with."""

    __slots__ = ("calls", "due", "size")

    def __init__(self, shape: Shape, birth: int) -> None:
        self.state: State = None
        self.shape = shape
        self.expires = 0
        self.birth = birth
        self.charges = 0
        self.refunds: tuple[int, ...] = ()
        self.due = 0
        self.size = 0
        self.calls = 0


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
        self.offset = (time_ns() - monotonic_ns()) // 1000
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
        self._names = 0
        self._reclaimed = 0
        _stores.add(self)

    def space(self, namespace: str, clock: Clock | None) -> MemorySpace:
        """The store under a namespace, by its own clock or the one given."""
        with self.lock:
            tables = self._namespaces.setdefault(namespace, {})
        return MemorySpace(self, namespace, tables, clock)

    def now(self) -> int:
        """Microseconds since the Unix epoch."""
        return monotonic_ns() // 1000 + self.offset

    def stats(self) -> dict[str, int]:
        """`entries` and `bytes` held, and how many decisions were `overflowed`."""
        return {"entries": self._entries, "bytes": self._bytes, "overflowed": self.overflowed}

    def close(self) -> None:
        """Nothing to let go of."""

    # What follows is called with the lock held.

    def born(self, shape: Shape) -> _Kept:
        """A slot that is in no table yet."""
        return _Kept(shape, next(self._births))

    def shared_by(self, namespace: str, rule_id: str, key: str) -> _Kept | None:
        """The overflow record of a key, if there is one."""
        return self._overflow.get((namespace, rule_id, bucket(key)))

    def overflows(self) -> bool:
        """Whether any key shares a record."""
        return bool(self._overflow)

    def keep_shared(self, namespace: str, rule: Rule, key: str, slot: _Kept, now: int) -> None:
        """Keep an overflow record, and drop those that have run out."""
        if len(self._overflow) >= 16 * _SHARED:
            live = {place: slot for place, slot in self._overflow.items() if slot.expires > now}
            self._overflow = live
        self._overflow[namespace, rule.id, bucket(key)] = slot

    def has_room(self, key: str, now: int, entries: int) -> bool:
        """Whether `entries` more can be kept, once what has run out is gone."""
        if self._queued and self._queued[0][0] < now >> _QUEUE_BITS:
            self._sweep(now, 4)
        most = self._max_entries - entries
        most_bytes = self._max_bytes - entries * (sys.getsizeof(key) + _ENTRY_BYTES)
        while self._entries > most or self._bytes > most_bytes:
            if not self._vacate() and not self._reclaim(now):
                return self._entries <= most and self._bytes <= most_bytes
        return True

    def keep(self, table: _Table, key: str, slot: _Kept) -> None:
        """Put a new slot into its table; its expiry is known by now."""
        table[key] = slot
        slot.size = size = sys.getsizeof(key) + _ENTRY_BYTES
        self._entries += 1
        self._bytes += size
        self._queue(table, key, slot)

    def renew(self, slot: Slot) -> None:
        """Give a slot that has run out, and so equals no slot, another life."""
        slot.birth = next(self._births)
        slot.charges = 0
        slot.refunds = ()

    def grown(self, slot: _Kept) -> None:
        """Count what a log has grown by, having merged its newest entries where there is no room."""
        calls = len(slot.state[1].times)
        more = (calls - slot.calls) * _CALL_BYTES
        if not slot.calls:
            slot.size += _LOG_BYTES
            self._bytes += _LOG_BYTES
        if more > 0 and self._bytes + more > self._max_bytes:
            slot.state = coarsen(slot.state)
            calls = len(slot.state[1].times)
            more = (calls - slot.calls) * _CALL_BYTES
        self._bytes += more
        slot.calls = calls

    def forget(self, table: _Table, key: str, slot: _Kept, now: int) -> bool:
        """Reset a slot; whether it was live. It goes when room is wanted, or its turn comes."""
        live = slot.state is not None and slot.expires > now
        slot.state = None
        slot.expires = 0
        self.renew(slot)
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
        for _ in range(most):
            queued = self._queued  # which may be made anew on the way
            if not queued or queued[0][0] >= now >> _QUEUE_BITS:
                return
            due, _, table = queued[0]
            keys = table.queues[due]
            if keys:
                self._names -= 1
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
        self._names -= len(keys[-1024:])
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
        self._names += 1
        if self._names > 2 * self._entries + 4096:
            self._requeue()

    def _requeue(self) -> None:
        """Make the queues anew: most of their names are of slots that went before their turn."""
        tables = [table for tables in self._namespaces.values() for table in tables.values()]
        self._queued = []
        self._names = 0
        for table in tables:
            table.queues.clear()
        for table in tables:
            for key, slot in table.items():
                self._queue(table, key, slot)

    def _drop(self, table: _Table, key: str, slot: _Kept) -> None:
        del table[key]
        self._vacant.pop((id(table), key), None)
        self._entries -= 1
        self._bytes -= slot.size + slot.calls * _CALL_BYTES


class MemorySpace:
    """The memory store under one namespace; see `noria.model.batch.Space`."""

    def __init__(
        self, store: MemoryStore, namespace: str, tables: dict[str, _Table], clock: Clock | None
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._tables = tables
        self._injected = clock
        self._clock = clock or store.now
        self._decide = self._quick()

    @property
    def decide(self) -> Callable[[str, Rule, int], Answer]:
        """See `Space.decide`."""
        return self._decide

    def _quick(self) -> Callable[[str, Rule, int], Answer]:
        """`decide` as a closure, for a slot that exists: the path that has to cost nothing."""
        acquire, release = self._store.lock.acquire, self._store.lock.release
        tables, new, general = self._tables, self._decide_new, self._decide_any
        grown, renew = self._store.grown, self._store.renew
        clock, offset = self._injected, self._store.offset

        def decide(key: str, rule: Rule, cost: int) -> Answer:
            acquire()
            try:
                now = monotonic_ns() // 1000 + offset if clock is None else clock()
                try:
                    slot = tables[rule.id][key]
                except KeyError:
                    return new(key, rule, cost, now)
                if slot.shape is not rule.shape and slot.shape != rule.shape:
                    return general(key, rule, cost, now)
                before = slot.state if slot.expires > now else None
                tick = rule.tick
                t = now if tick == 1 else now // tick
                fits, state, expires, left, wait = rule.step(rule.numbers, before, t, cost)
                if state is not before:
                    if before is None:
                        renew(slot)
                    slot.state = state
                    slot.expires = expires if tick == 1 else expires * tick
                    if fits:
                        slot.charges += 1
                        if rule.grows:
                            grown(slot)
                            state = slot.state
                return (
                    fits,
                    left,
                    wait,
                    now,
                    key,
                    rule,
                    cost,
                    state,
                    slot.birth,
                    slot.charges,
                    None,
                    False,
                )
            finally:
                release()

        return decide

    def _decide_new(self, key: str, rule: Rule, cost: int, now: int) -> Answer:
        """`decide` where nothing is kept for the key; the lock is held."""
        store, tick = self._store, rule.tick
        fits, state, expires, left, wait = rule.step(rule.numbers, None, now // tick, cost)
        if state is None:
            return fits, left, wait, now, key, rule, cost, None, 0, 0, None, False
        if store.overflows() or not store.has_room(key, now, 1):
            return self._decide_any(key, rule, cost, now)
        slot = store.born(rule.shape)
        slot.state = state
        slot.expires = expires * tick
        slot.charges = 1
        store.keep(self._table(rule.id), key, slot)
        if rule.grows:
            store.grown(slot)
        return fits, left, wait, now, key, rule, cost, slot.state, slot.birth, 1, None, False

    def _decide_any(self, key: str, rule: Rule, cost: int, now: int) -> Answer:
        """`decide` where the state has to be converted, or the key may have to share a record."""
        batch = Batch([Entry(key, rule, cost, veto=True)], charge=True)
        return self._apply(batch, now)[0].answer(now)

    def apply(self, batch: Batch) -> Evidence:
        with self._store.lock:
            now = self._clock()
            return Evidence(now, self._apply(batch, now))

    def _apply(self, batch: Batch, now: int) -> list[Row]:
        store = self._store
        found = [self._find(entry.key, entry.rule.id) for entry in batch.entries]
        new = [entry.key for entry, slot in zip(batch.entries, found, strict=True) if slot is None]
        room = not new or not batch.charge or store.has_room(max(new, key=len), now, len(new))
        born: dict[tuple[str, int], _Kept] = {}
        slots = [
            self._new(entry, now, born, room=room) if slot is None else slot
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
            if slot.expires <= now:
                store.renew(slot)
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

    def _new(
        self, entry: Entry, now: int, born: dict[tuple[str, int], _Kept], *, room: bool
    ) -> _Kept:
        """A slot for a key that has none: its own, or the one it shares where there is no room.

        `born` are the shared ones that this batch has made.
        """
        store, rule = self._store, entry.rule
        if room and not store.overflows():
            return store.born(rule.shape)
        shared = store.shared_by(self._namespace, rule.id, entry.key)
        if not room:
            return shared or born.setdefault((rule.id, bucket(entry.key)), store.born(rule.shape))
        slot = store.born(rule.shape)
        if shared is not None and shared.expires > now:
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
                self._store.forget(table, key, slot, now)
                for table, slot in found
                if slot is not None
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
