"""The shared store: one LMDB file for every process of a machine, no server.

A decision is one write transaction: read the key's record, step its slots, write the record.
LMDB's lock makes it exact over all processes and threads, survives the death of whoever holds it,
and gives each the state that the last one committed. A refusal writes nothing: it is given up, not
committed.

The file has a fixed size and is kept from filling up as the memory store is: new keys look at a few
records further on and drop those that have run out; and when the file is nearly full of live ones,
further new keys share overflow records. What only a *stopped* process could do is hold up the
others, by holding LMDB's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import lmdb

from noria.algorithms.sliding_window_log import coarsen
from noria.core.plan import checked_key
from noria.core.settle import figures
from noria.core.transition import current, give_back, transition, write
from noria.model.batch import Batch, Entry, Evidence, Slot
from noria.stores.shared import pages, record
from noria.stores.shared.file import SharedFile
from noria.stores.shared.quick import quick
from noria.stores.shared.records import OVERFLOW, Records
from noria.stores.shared.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from noria.algorithms.contract import State
    from noria.core.transition import Move
    from noria.model.batch import Part, Row
    from noria.model.contract import Answer, Clock
    from noria.model.limit import Rule
    from noria.stores.shared.pages import Transaction

    T = TypeVar("T")

SIZE = 32 << 20

_MOST_RULES = 4096
"""Rules whose names are remembered; more are made up at run time."""
_SHARED = 64
"""Overflow records of one namespace."""


class SharedStore:
    """States in `directory` (the user's runtime directory where None), for all processes.

    A new file takes `size` bytes. Raises `ConfigError` where it cannot be made or opened.
    """

    def __init__(self, directory: str | None = None, size: int = SIZE) -> None:
        self._file = SharedFile.acquire(directory, size)
        self._open = True
        self._sweeper = Sweeper(self._file)
        self.overflowed = 0

    @property
    def secret(self) -> bytes:
        """Seals charges: kept in the file."""
        return self._file.secret

    @property
    def directory(self) -> str:
        """Where the file is."""
        return self._file.path

    def space(self, namespace: str, clock: Clock | None) -> SharedSpace:
        """The store under a namespace; `clock` takes the place of the file's."""
        return SharedSpace(self, self._file, self._sweeper, namespace, clock)

    def stats(self) -> dict[str, int]:
        """`entries` (records, pages) and `bytes` in use; decisions `overflowed` by this process."""
        facts = _run(self._file, lambda txn: (txn.stat(), False), lambda _: False)
        used = facts["branch_pages"] + facts["leaf_pages"] + facts["overflow_pages"]
        return {
            "entries": facts["entries"],
            "bytes": used * facts["psize"],
            "overflowed": self.overflowed,
        }

    def close(self) -> None:
        """Let go of the file; the last user of this process closes it."""
        if self._open:
            self._open = False
            self._file.release()


class SharedSpace:
    """The shared store under one namespace; see `noria.model.contract.Space`.

    What has no underscore but is no method of `Space` is for `quick`.
    """

    def __init__(
        self,
        store: SharedStore,
        file: SharedFile,
        sweeper: Sweeper,
        namespace: str,
        clock: Clock | None,
    ) -> None:
        self._store = store
        self.file = file
        self.sweeper = sweeper
        self.clock = clock or file.now
        self.injected = clock is not None
        self.prefix = record.place(b"r", namespace)
        self._shared_prefix = record.place(OVERFLOW, namespace)
        self.heads: dict[Rule, bytes] = {}
        self._digests: dict[str, bytes] = {}
        self._decide = quick(self)

    @property
    def decide(self) -> Callable[[str, Rule, int], Answer]:
        """See `Space.decide`."""
        return self._decide

    def tick(self, txn: Transaction) -> bool:
        """The file's once-a-second errand, where a second is over; whether it was run."""
        now = self.file.now()
        if now < self.file.due:
            return False
        self.file.tick(txn, now)
        return True

    def decide_any(self, key: str, rule: Rule, cost: int) -> Answer:
        """`decide` for any rule and key."""
        checked_key(key)
        if rule not in self.heads:
            if len(self.heads) >= _MOST_RULES:
                self.heads.clear()
            self.heads[rule] = record.head_of(rule)
            return self.decide(key, rule, cost)
        return self._run(lambda txn: self.decide_in(txn, key, rule, cost, self.clock()))

    def decide_in(
        self, txn: Transaction, key: str, rule: Rule, cost: int, now: int
    ) -> tuple[Answer, bool]:
        """`decide` within a transaction; whether it has to be committed."""
        batch = Batch([Entry(key, rule, cost, veto=True)], charge=True)
        rows, written = self._apply_in(txn, batch, now)
        return rows[0].answer(now), written

    def apply(self, batch: Batch) -> Evidence:
        """See `Space.apply`."""

        def work(txn: Transaction) -> tuple[Evidence, bool]:
            now = self.clock()
            rows, written = self._apply_in(txn, batch, now)
            return Evidence(now, rows), written

        return self._run(work)

    def _apply_in(self, txn: Transaction, batch: Batch, now: int) -> tuple[list[Row], bool]:
        records = Records(txn, now, self.file.salt)
        places = [self._place(records, entry, charge=batch.charge) for entry in batch.entries]
        moves = transition(batch, [place.slot for place in places], now)
        written = False
        for move, place in zip(moves, places, strict=True):
            row = move.row
            row.overflow = place.shared
            if place.shared and row.entry.cost:
                self._store.overflowed += 1
            if move.kept:
                written = True
                self._keep(records, place, move)
            if row.entry.rule.grows:
                # The entries are read while the transaction lasts.
                row.figures = figures(row.entry.rule, row.state, now, row.remaining)
                row.state = row.state and row.state[:1]
        records.write()
        return [move.row for move in moves], written

    def _place(self, records: Records, entry: Entry, *, charge: bool) -> _Place:
        """Where the entry's state is or would be: its own slot, or one that it shares."""
        digest = self.digest(entry.rule.id)
        raw = record.key_of(self.prefix, entry.key)
        slots = records.get(raw)
        slot = slots.get(digest)
        if slot is not None or not charge or not entry.cost:
            return _Place(raw, digest, slot or Slot(entry.rule.shape, 0), shared=False)
        shared = self.shared_key(entry.key)
        common = records.get(shared).get(digest)
        if records.room is None:
            records.room = self.sweeper.has_room(records.txn, records.now)
        if not records.room:
            common = common or records.fresh(shared, digest, entry.rule)
            return _Place(shared, digest, common, shared=True)
        fresh = records.fresh(raw, digest, entry.rule)
        if common is not None and common.expires > records.now:
            # Whoever shared a record starts from its count.
            fresh.state = entry.rule.kernel.copy(current(common, entry.rule, records.now))
            fresh.expires = common.expires
        return _Place(raw, digest, fresh, shared=False)

    def _keep(self, records: Records, place: _Place, move: Move) -> None:
        slot, rule = place.slot, move.row.entry.rule
        if slot.expires <= records.now and slot.state is not None:
            records.renew(slot)
        old = slot.state[2:4] if rule.grows and slot.state is not None else (0, 0)
        write(move, slot)
        if rule.grows:
            state: Any = move.row.state
            if pages.opens_page(state[3]) and self.sweeper.is_crowded(records.txn):
                slot.state = coarsen(state)
            records.flush(slot, old)
            move.row.state = slot.state
        records.put(place.raw, place.digest, slot)

    def refund(self, parts: list[Part]) -> bool:
        """See `Space.refund`."""

        def work(txn: Transaction) -> tuple[bool, bool]:
            records = Records(txn, self.clock(), self.file.salt)
            changed = [self._refund_in(records, part) for part in parts]
            records.write()
            return any(changed), any(changed)

        return self._run(work)

    def _refund_in(self, records: Records, part: Part) -> bool:
        digest = self.digest(part.rule_id)
        for raw in (record.key_of(self.prefix, part.key), self.shared_key(part.key)):
            slot = records.get(raw).get(digest)
            if slot is None:
                continue
            old = slot.state
            if give_back(slot, part, records.now):
                if isinstance(old[1], pages.Pages):
                    records.flush(slot, old[2:4])
                records.put(raw, digest, slot)
                return True
        return False

    def reset(self, key: str, rule_ids: list[str] | None) -> int:
        """See `Space.reset`."""

        def work(txn: Transaction) -> tuple[int, bool]:
            records = Records(txn, self.clock(), self.file.salt)
            raw = record.key_of(self.prefix, key)
            slots = records.get(raw)
            asked = list(slots) if rule_ids is None else [self.digest(name) for name in rule_ids]
            gone = [digest for digest in asked if digest in slots]
            live = sum(slots[digest].expires > records.now for digest in gone)
            for digest in gone:
                records.remove(raw, digest)
            records.write()
            return live, bool(gone)

        return self._run(work)

    def states(self, key: str, rules: list[Rule]) -> tuple[int, list[State]]:
        """See `Space.states`."""

        def work(txn: Transaction) -> tuple[tuple[int, list[State]], bool]:
            now = self.clock()
            slots = Records(txn, now, self.file.salt).get(record.key_of(self.prefix, key))
            found = [(rule, slots.get(self.digest(rule.id))) for rule in rules]
            return (now, [_copied(rule, current(slot, rule, now)) for rule, slot in found]), False

        return self._run(work)

    def _run(self, work: Callable[[Transaction], tuple[T, bool]]) -> T:
        try:
            return _run(self.file, work, self.tick)
        except lmdb.MapFullError:
            self.sweeper.crowd()
        try:
            return _run(self.file, work, self.tick)
        except lmdb.MapFullError as error:
            raise self.file.failed(error) from error

    def digest(self, rule_id: str) -> bytes:
        """The rule's name in the file."""
        digest = self._digests.get(rule_id)
        if digest is None:
            if len(self._digests) >= _MOST_RULES:
                self._digests.clear()
            digest = self._digests[rule_id] = record.digest_of(rule_id)
        return digest

    def shared_key(self, key: str) -> bytes:
        """Where the overflow record is that `key` would share."""
        return self._shared_prefix + bytes([crc32(key.encode()) % _SHARED])


class _Place:
    """A slot, and the record it is in or will be."""

    __slots__ = ("digest", "raw", "shared", "slot")

    def __init__(self, raw: bytes, digest: bytes, slot: Slot, *, shared: bool) -> None:
        self.raw = raw
        self.digest = digest
        self.slot = slot
        self.shared = shared


def _copied(rule: Rule, state: State) -> State:
    """A state to step freely when the transaction is over."""
    if state is None or not rule.grows:
        return state
    last, log, start, end, *tail = state
    return (last, pages.in_memory(log, start, end), start, end, *tail)


def _run(
    file: SharedFile,
    work: Callable[[Transaction], tuple[T, bool]],
    tick: Callable[[Transaction], bool],
) -> T:
    """`work` in a transaction, which is committed if it says that it has written."""
    file.enter(None)
    try:
        txn = file.begin()
        try:
            ticked = tick(txn)
            result, written = work(txn)
            if written or ticked:
                txn.commit()
            else:
                txn.abort()
        except BaseException:
            txn.abort()
            raise
    except lmdb.MapFullError:
        raise
    except lmdb.Error as error:
        raise file.failed(error) from error
    finally:
        file.leave()
    return result
