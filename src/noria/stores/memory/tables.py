"""What the memory store keeps, and how it finds room: bounded tables of slots.

Only a slot that equals no slot may go to make room, because all its charges have run out or because
it was reset. Slots that may have run out stand in queues, one for each second or so, and each new
slot looks at a few that are due. All of it is called with the store's lock held.
"""

from __future__ import annotations

import sys
from heapq import heappop, heappush
from itertools import count

from noria.algorithms.sliding_window_log import coarsen
from noria.model.batch import Slot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from noria.algorithms.contract import Shape, State
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

_PAUSE = 50_000
"""Microseconds between two looks into the queue of the present second."""

_QUEUE_BITS = 20
"""A queue holds what may run out within 2**20 us, about a second."""


def bucket(key: str) -> int:
    """Which of a limit's overflow records a key shares."""
    return hash(key) % _SHARED


class Kept(Slot):
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


class Table(dict[str, Kept]):
    """The slots of one limit by key, and by second the keys whose slots may have run out."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[int, list[str]] = {}


class Tables:
    """At most `max_entries` slots and about `max_bytes` bytes, by namespace, rule and key."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.entries = 0
        self.bytes = 0
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._births = count(1)
        self._namespaces: dict[str, dict[str, Table]] = {}
        self._overflow: dict[tuple[str, str, int], Kept] = {}
        self._vacant: dict[tuple[int, str], Table] = {}
        self._queued: list[tuple[int, int, Table]] = []
        self._queue_numbers = count()
        self._names = 0
        self._reclaimed = 0

    def of(self, namespace: str) -> dict[str, Table]:
        """The tables of a namespace, by rule."""
        return self._namespaces.setdefault(namespace, {})

    def born(self, shape: Shape) -> Kept:
        """A slot that is in no table yet."""
        return Kept(shape, next(self._births))

    def shared_by(self, namespace: str, rule_id: str, key: str) -> Kept | None:
        """The overflow record of a key, if there is one."""
        return self._overflow.get((namespace, rule_id, bucket(key)))

    def overflows(self) -> bool:
        """Whether any key shares a record."""
        return bool(self._overflow)

    def keep_shared(self, namespace: str, rule: Rule, key: str, slot: Kept, now: int) -> None:
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
        while self.entries > most or self.bytes > most_bytes:
            if not self._vacate() and not self._reclaim(now):
                return self.entries <= most and self.bytes <= most_bytes
        return True

    def keep(self, table: Table, key: str, slot: Kept) -> None:
        """Put a new slot into its table; its expiry is known by now."""
        table[key] = slot
        slot.size = size = sys.getsizeof(key) + _ENTRY_BYTES
        self.entries += 1
        self.bytes += size
        self._queue(table, key, slot)

    def renew(self, slot: Slot) -> None:
        """Give a slot that has run out, and so equals no slot, another life."""
        slot.birth = next(self._births)
        slot.charges = 0
        slot.refunds = ()

    def grown(self, slot: Kept) -> None:
        """Count what a log has grown by; where there is no room its newest entries are merged."""
        calls = len(slot.state[1].times)
        more = (calls - slot.calls) * _CALL_BYTES
        if not slot.calls:
            slot.size += _LOG_BYTES
            self.bytes += _LOG_BYTES
        if more > 0 and self.bytes + more > self._max_bytes:
            slot.state = coarsen(slot.state)
            calls = len(slot.state[1].times)
            more = (calls - slot.calls) * _CALL_BYTES
        self.bytes += more
        slot.calls = calls

    def forget(self, table: Table, key: str, slot: Kept, now: int) -> bool:
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
        """Look for room in earnest, in the queue of this second too; whether some was found.

        That one only now and then: a flood of new keys must stay cheap.
        """
        queued = self._queued
        if not queued or queued[0][0] > now >> _QUEUE_BITS:
            return False
        if queued[0][0] == now >> _QUEUE_BITS and 0 <= now - self._reclaimed < _PAUSE:
            return False
        self._reclaimed = now
        due, _, table = heappop(queued)
        keys = table.queues.pop(due)
        if keys[:-1024]:
            table.queues[due] = keys[:-1024]
            heappush(queued, (due, next(self._queue_numbers), table))
        entries = self.entries
        self._names -= len(keys[-1024:])
        for key in keys[-1024:]:
            self._visit(table, key, due, now)
        return self.entries < entries

    def _visit(self, table: Table, key: str, due: int, now: int) -> None:
        slot = table.get(key)
        if slot is None or slot.due != due:
            return
        if slot.expires <= now:
            self._drop(table, key, slot)
        else:
            self._queue(table, key, slot)

    def _queue(self, table: Table, key: str, slot: Kept) -> None:
        due = slot.due = slot.expires >> _QUEUE_BITS
        keys = table.queues.get(due)
        if keys is None:
            keys = table.queues[due] = []
            heappush(self._queued, (due, next(self._queue_numbers), table))
        keys.append(key)
        self._names += 1
        if self._names > 2 * self.entries + 4096:
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

    def _drop(self, table: Table, key: str, slot: Kept) -> None:
        del table[key]
        self._vacant.pop((id(table), key), None)
        self.entries -= 1
        self.bytes -= slot.size + slot.calls * _CALL_BYTES
