"""The memory store: dictionaries under one lock, for one process.

It is bounded, in entries and in bytes, and never forgets what still counts. When all that it keeps
is live, further new keys share a few *overflow* records: they are limited together, while a key
that was drained before a flood of others stays drained. While an overflow record is live, a new key
starts from its count even if there is room again, so that nobody gains by having shared one. A log
that finds no room to grow merges its newest entries, at the later time.

There is no background thread. The clock is the wall clock when the store is made, advanced by the
monotonic one: steps of the system's clock have no effect.
"""

from __future__ import annotations

import os
import weakref
from threading import Lock
from time import monotonic_ns, time_ns

from noria.core.plan import checked_key
from noria.core.transition import current, give_back, transition, write
from noria.model.batch import Batch, Entry, Evidence, Row
from noria.stores.memory.tables import MAX_BYTES, MAX_ENTRIES, Kept, Table, Tables, bucket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from noria.algorithms.contract import State
    from noria.model.batch import Part
    from noria.model.contract import Answer, Clock
    from noria.model.limit import Rule


class MemoryStore:
    """States in this process, at most `max_entries` of them and about `max_bytes` bytes."""

    def __init__(self, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self.secret = os.urandom(32)
        self.lock = Lock()
        self.offset = (time_ns() - monotonic_ns()) // 1000
        self.overflowed = 0
        self.tables = Tables(max_entries, max_bytes)
        with _registry:
            _locks.add(self.lock)

    def space(self, namespace: str, clock: Clock | None) -> MemorySpace:
        """The store under a namespace, by its own clock or the one given."""
        with self.lock:
            tables = self.tables.of(namespace)
        return MemorySpace(self, namespace, tables, clock)

    def now(self) -> int:
        """Microseconds since the Unix epoch."""
        return monotonic_ns() // 1000 + self.offset

    def stats(self) -> dict[str, int]:
        """`entries` and `bytes` held, and how many decisions were `overflowed`."""
        tables = self.tables
        return {"entries": tables.entries, "bytes": tables.bytes, "overflowed": self.overflowed}

    def close(self) -> None:
        """Nothing to let go of."""


class MemorySpace:
    """The memory store under one namespace; see `noria.model.contract.Space`."""

    def __init__(
        self, store: MemoryStore, namespace: str, tables: dict[str, Table], clock: Clock | None
    ) -> None:
        self._store = store
        self._kept = store.tables
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
        grown, renew = self._kept.grown, self._kept.renew
        clock, offset = self._injected, self._store.offset

        def decide(key: str, rule: Rule, cost: int) -> Answer:
            acquire()
            try:
                now = monotonic_ns() // 1000 + offset if clock is None else clock()
                try:
                    slot = tables[rule.id][key]
                except (KeyError, TypeError):
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
                    fits, left, wait, now, key, rule, cost,
                    state, slot.birth, slot.charges, None, False,
                )  # fmt: skip
            finally:
                release()

        return decide

    def _decide_new(self, key: str, rule: Rule, cost: int, now: int) -> Answer:
        """`decide` where nothing is kept for the key; the lock is held."""
        checked_key(key)
        kept, tick = self._kept, rule.tick
        fits, state, expires, left, wait = rule.step(rule.numbers, None, now // tick, cost)
        if state is None:
            return fits, left, wait, now, key, rule, cost, None, 0, 0, None, False
        if kept.overflows() or not kept.has_room(key, now, 1):
            return self._decide_any(key, rule, cost, now)
        slot = kept.born(rule.shape)
        slot.state = state
        slot.expires = expires * tick
        slot.charges = 1
        kept.keep(self._table(rule.id), key, slot)
        if rule.grows:
            kept.grown(slot)
        return fits, left, wait, now, key, rule, cost, slot.state, slot.birth, 1, None, False

    def _decide_any(self, key: str, rule: Rule, cost: int, now: int) -> Answer:
        """`decide` where the state has to be converted, or the key may have to share a record."""
        batch = Batch([Entry(key, rule, cost, veto=True)], charge=True)
        return self._apply(batch, now)[0].answer(now)

    def apply(self, batch: Batch) -> Evidence:
        """See `Space.apply`."""
        with self._store.lock:
            now = self._clock()
            return Evidence(now, self._apply(batch, now))

    def _apply(self, batch: Batch, now: int) -> list[Row]:
        store = self._store
        kept, room = self._kept, True
        new = [entry.key for entry in batch.entries if not self._find(entry.key, entry.rule.id)]
        if new and batch.charge:
            room = kept.has_room(max(new, key=len), now, len(new))
        # Only now: making room drops what has run out, and a slot found before might be dropped.
        found = [self._find(entry.key, entry.rule.id) for entry in batch.entries]
        born: dict[tuple[str, int], Kept] = {}
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
                kept.renew(slot)
            write(move, slot)
            if row.overflow:
                kept.keep_shared(self._namespace, row.entry.rule, row.entry.key, slot, now)
                continue
            if old is None:
                kept.keep(self._table(row.entry.rule.id), row.entry.key, slot)
            if row.entry.rule.grows:
                kept.grown(slot)
                row.state = slot.state
        return [move.row for move in moves]

    def _table(self, rule_id: str) -> Table:
        tables = self._tables
        table = tables.get(rule_id)
        if table is None:
            if len(tables) % 1024 == 1023:  # noqa: PLR2004 - limits are made up at run time
                for name in [name for name, kept in tables.items() if not kept and not kept.queues]:
                    del tables[name]
            table = tables[rule_id] = Table()
        return table

    def _find(self, key: str, rule_id: str) -> Kept | None:
        table = self._tables.get(rule_id)
        return None if table is None else table.get(key)

    def _new(
        self, entry: Entry, now: int, born: dict[tuple[str, int], Kept], *, room: bool
    ) -> Kept:
        """A slot for a key that has none: its own, or the one it shares where there is no room.

        `born` are the shared ones that this batch has made.
        """
        kept, rule = self._kept, entry.rule
        if room and not kept.overflows():
            return kept.born(rule.shape)
        shared = kept.shared_by(self._namespace, rule.id, entry.key)
        if not room:
            return shared or born.setdefault((rule.id, bucket(entry.key)), kept.born(rule.shape))
        slot = kept.born(rule.shape)
        if shared is not None and shared.expires > now:
            slot.state = rule.kernel.copy(current(shared, rule, now))
            slot.expires = shared.expires
        return slot

    def refund(self, parts: list[Part]) -> bool:
        """See `Space.refund`."""
        with self._store.lock:
            now = self._clock()
            changed = [self._refund(part, now) for part in parts]
            return any(changed)

    def _refund(self, part: Part, now: int) -> bool:
        slot = self._find(part.key, part.rule_id)
        shared = self._kept.shared_by(self._namespace, part.rule_id, part.key)
        return any(kept is not None and give_back(kept, part, now) for kept in (slot, shared))

    def reset(self, key: str, rule_ids: list[str] | None) -> int:
        """See `Space.reset`."""
        with self._store.lock:
            now = self._clock()
            tables = self._tables
            names = list(tables) if rule_ids is None else rule_ids
            found = [(tables[name], tables[name].get(key)) for name in names if name in tables]
            return sum(
                self._kept.forget(table, key, slot, now)
                for table, slot in found
                if slot is not None
            )

    def states(self, key: str, rules: list[Rule]) -> tuple[int, list[State]]:
        """See `Space.states`."""
        with self._store.lock:
            now = self._clock()
            states: list[State] = []
            for rule in rules:
                state: State = current(self._find(key, rule.id), rule, now)
                states.append(None if state is None else rule.kernel.copy(state))
            return now, states


_registry = Lock()
"""Over the two below: one thread forks at a time, and none makes a store meanwhile."""
_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
_held: list[Lock] = []


def _before_fork() -> None:
    """Take every lock, so that the child does not inherit a store in the middle of a step."""
    _registry.acquire()
    _held.extend(_locks)
    for lock in _held:
        lock.acquire()


def _after_fork() -> None:
    while _held:
        _held.pop().release()
    _registry.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
