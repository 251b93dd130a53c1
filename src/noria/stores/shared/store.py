"""The shared store: one LMDB file for every process of a machine, no server.

A decision is one write transaction: read the key's record, step its slots, write the record. LMDB's
lock makes it exact over all processes and threads, survives the death of whoever holds it, and gives
each the state that the last one committed. A refusal writes nothing and is given up, not committed.

The file has a fixed size and is kept from filling up as the memory store is: each new key looks at a
few records further on and drops those that have run out; and when the file is nearly full of live
ones, further new keys share overflow records. What only a *stopped* process could do is hold up the
others, by holding LMDB's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import lmdb

from noria.algorithms.sliding_window_log import coarsen
from noria.core.settle import figures
from noria.core.transition import current, give_back, transition, write
from noria.model.batch import Batch, Entry, Evidence, Slot
from noria.stores.shared import pages, record
from noria.stores.shared.file import SharedFile
from noria.stores.shared.records import Records
from noria.stores.shared.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from noria.algorithms import State
    from noria.core.transition import Move
    from noria.model.batch import Answer, Clock, Part, Row
    from noria.model.limit import Rule
    from noria.stores.shared.pages import Transaction

    T = TypeVar("T")

SIZE = 32 << 20

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
        """`entries` (records and pages) and `bytes` in use, `overflowed` decisions by this process."""
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
    """The shared store under one namespace; see `noria.model.batch.Space`."""

    def __init__(
        self,
        store: SharedStore,
        file: SharedFile,
        sweeper: Sweeper,
        namespace: str,
        clock: Clock | None,
    ) -> None:
        self._store = store
        self._file = file
        self._sweeper = sweeper
        self._clock = clock or file.now
        self._injected = clock is not None
        self._prefix = record.place(b"r", namespace)
        self._shared_prefix = record.place(b"o", namespace)
        self._digests: dict[str, bytes] = {}
        self._decide = self._quick()

    @property
    def decide(self) -> Callable[[str, Rule, int], Answer]:
        """See `Space.decide`."""
        return self._decide

    def _quick(self) -> Callable[[str, Rule, int], Answer]:  # noqa: C901 - one path, unrolled
        """`decide` for a slot that exists, which most do: no object in between."""
        file, clock, prefix = self._file, self._clock, self._prefix
        enter, leave, injected = file.enter, file.leave, self._injected
        unpack, pack, size = record.SLOT.unpack_from, record.SLOT.pack, record.SLOT.size
        digests, longest = self._digests, record.LONGEST_KEY
        general, tick_file = self._decide_in, self._tick

        def decide(key: str, rule: Rule, cost: int) -> Answer:
            digest = digests.get(rule.id)
            raw = prefix + key.encode()
            if digest is None or len(raw) > longest:
                return self._decide_any(key, rule, cost)
            answer: Answer | None = None
            enter(None)
            try:
                txn = file.begin()
                try:
                    now = clock()
                    ticked = (now >= file.due or injected) and tick_file(txn)
                    value = txn.get(raw, b"")
                    at = value.find(digest)
                    if at < 0:
                        answer, written = self._decide_new(txn, raw, value, key, rule, cost, now)
                    else:
                        head = unpack(value, at)
                        _, kind, gone, period, tick, ends, birth, number, a, b, c, *_ = head
                        if (period, tick) != rule.shape or (ends <= now and gone):
                            answer, written = general(txn, key, rule, cost, now)
                        elif kind == record.LOG:
                            answer, written = self._decide_log(
                                txn, raw, value, at, head, key, rule, cost, now
                            )
                        else:
                            before = None if ends <= now else (a, b, c) if kind == 3 else (a, b)
                            fits, state, ends, left, wait = rule.step(
                                rule.numbers, before, now // tick, cost
                            )
                            written = state is not before
                            if written:
                                if before is None:  # what has run out begins another life
                                    birth = txn.id() << 10
                                    number = 0
                                number += fits
                                if kind == 3:
                                    a, b, c = state
                                else:
                                    a, b = state
                                ends *= tick
                                head = (
                                    digest,
                                    kind,
                                    gone,
                                    period,
                                    tick,
                                    ends,
                                    birth,
                                    number,
                                    a,
                                    b,
                                    c,
                                    0,
                                    0,
                                    0,
                                )
                                txn.put(raw, value[:at] + pack(*head) + value[at + size :])
                            head = fits, left, wait, now, key, rule, cost
                            answer = *head, state, birth, number, None, False
                    if written or ticked:
                        txn.commit()
                    else:
                        txn.abort()
                except BaseException:
                    txn.abort()
                    raise
            except lmdb.MapFullError:
                answer = None
            except lmdb.Error as error:
                raise file.failed(error) from error
            finally:
                leave()
            if answer is None:
                self._sweeper.crowd()
                answer = self._decide_any(key, rule, cost)
            return answer

        return decide

    def _decide_new(  # noqa: PLR0913
        self, txn: Transaction, raw: bytes, value: bytes, key: str, rule: Rule, cost: int, now: int
    ) -> tuple[Answer, bool]:
        """`decide` where the key has no slot of that rule yet, and may have others."""
        fits, state, ends, left, wait = rule.step(rule.numbers, None, now // rule.tick, cost)
        head = fits, left, wait, now, key, rule, cost
        if state is None:
            return (*head, None, 0, 0, None, False), False
        if (
            len(value) > 8 * record.SLOT.size
            or txn.get(self._shared_key(key)) is not None
            or not (value or self._sweeper.has_room(txn, now))
        ):
            return self._decide_in(txn, key, rule, cost, now)
        slot = Slot(rule.shape, txn.id() << 10)
        slot.state = state
        slot.expires = ends * rule.tick
        slot.charges = 1
        known = None
        if rule.grows:
            first = pages.Pages(txn, slot.birth)
            first.append(0, state[0], 0)
            first.flush(0, 0, 0, 1)
            known = ends - now // rule.tick, None, ends - now // rule.tick
        txn.put(raw, value + record.pack(self._digest(rule.id), slot))
        return (*head, state if known is None else state[:1], slot.birth, 1, known, False), True

    def _decide_log(  # noqa: PLR0913
        self,
        txn: Transaction,
        raw: bytes,
        value: bytes,
        at: int,
        slot: tuple[Any, ...],
        key: str,
        rule: Rule,
        cost: int,
        now: int,
    ) -> tuple[Answer, bool]:
        """`decide` for a log that exists."""
        head = slot[:3]
        _, _, _, period, tick, ends, birth, number, last, start, end, *tail = slot
        if ends <= now:
            return self._decide_in(txn, key, rule, cost, now)
        log = pages.Pages(txn, birth)
        before = (last, log, start, end, *tail)
        t = now // tick
        window = rule.numbers[1]
        fits, state, ends, left, wait = rule.step(rule.numbers, before, t, cost)
        written = state is not before
        oldest = known = None
        if written:
            last, kept, first, behind, total, oldest, units = state
            if kept is not log or (pages.opens_page(behind) and self._sweeper.is_crowded(txn)):
                return self._decide_in(txn, key, rule, cost, now)
            log.flush(start, end, first, behind)
            number += fits
            tail = [birth, number, last, first, behind, total, oldest, units]
            changed = record.SLOT.pack(*head, period, tick, ends * tick, *tail)
            txn.put(raw, value[:at] + changed + value[at + record.SLOT.size :])
            start = first
        # What `figures` says, as far as it is at hand.
        if written and fits:
            known = last + window - t, None, oldest + window - t
        elif start < end and not written and cost == left + 1 and wait is not None:
            known = last + window - t, None, wait
        else:
            known = figures(rule, state, now, left)
        asked = fits, left, wait, now, key, rule, cost
        return (*asked, (last,), birth, number, known, False), written

    def _tick(self, txn: Transaction) -> bool:
        """The file's once-a-second errand, where a second is over; whether it was run."""
        now = self._file.now()
        if now < self._file.due:
            return False
        self._file.tick(txn, now)
        return True

    def _decide_any(self, key: str, rule: Rule, cost: int) -> Answer:
        """`decide` for any rule and key."""
        if rule.id not in self._digests:
            self._digest(rule.id)
            return self.decide(key, rule, cost)
        return self._run(lambda txn: self._decide_in(txn, key, rule, cost, self._clock()))

    def _decide_in(
        self, txn: Transaction, key: str, rule: Rule, cost: int, now: int
    ) -> tuple[Answer, bool]:
        batch = Batch([Entry(key, rule, cost, veto=True)], charge=True)
        rows, written = self._apply_in(txn, batch, now)
        return rows[0].answer(now), written

    def apply(self, batch: Batch) -> Evidence:
        def work(txn: Transaction) -> tuple[Evidence, bool]:
            now = self._clock()
            rows, written = self._apply_in(txn, batch, now)
            return Evidence(now, rows), written

        return self._run(work)

    def _apply_in(self, txn: Transaction, batch: Batch, now: int) -> tuple[list[Row], bool]:
        records = Records(txn, now)
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
        digest = self._digest(entry.rule.id)
        raw = record.key_of(self._prefix, entry.key)
        slots = records.get(raw)
        slot = slots.get(digest)
        if slot is not None or not charge or not entry.cost:
            return _Place(raw, digest, slot or Slot(entry.rule.shape, 0), shared=False)
        shared = self._shared_key(entry.key)
        common = records.get(shared).get(digest)
        if not slots and not self._sweeper.has_room(records.txn, records.now):
            common = common or records.fresh(shared, digest, entry.rule)
            return _Place(shared, digest, common, shared=True)
        fresh = records.fresh(raw, digest, entry.rule)
        if common is not None and common.expires > records.now:
            # Whoever shared a record starts from its count.
            fresh.state = entry.rule.kernel.copy(current(common, entry.rule, records.now))
        return _Place(raw, digest, fresh, shared=False)

    def _keep(self, records: Records, place: _Place, move: Move) -> None:
        slot, rule = place.slot, move.row.entry.rule
        if slot.expires <= records.now and slot.state is not None:
            records.renew(slot)
        old = slot.state[2:4] if rule.grows and slot.state is not None else (0, 0)
        write(move, slot)
        if rule.grows:
            state: Any = move.row.state
            if pages.opens_page(state[3]) and self._sweeper.is_crowded(records.txn):
                slot.state = coarsen(state)
            records.flush(slot, old)
            move.row.state = slot.state
        records.put(place.raw, place.digest, slot)

    def refund(self, parts: list[Part]) -> bool:
        def work(txn: Transaction) -> tuple[bool, bool]:
            records = Records(txn, self._clock())
            changed = any([self._refund_in(records, part) for part in parts])
            records.write()
            return changed, changed

        return self._run(work)

    def _refund_in(self, records: Records, part: Part) -> bool:
        digest = self._digest(part.rule_id)
        for raw in (record.key_of(self._prefix, part.key), self._shared_key(part.key)):
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
        def work(txn: Transaction) -> tuple[int, bool]:
            records = Records(txn, self._clock())
            raw = record.key_of(self._prefix, key)
            slots = records.get(raw)
            asked = list(slots) if rule_ids is None else [self._digest(name) for name in rule_ids]
            gone = [digest for digest in asked if digest in slots]
            live = sum(slots[digest].expires > records.now for digest in gone)
            for digest in gone:
                records.remove(raw, digest)
            records.write()
            return live, bool(gone)

        return self._run(work)

    def states(self, key: str, rules: list[Rule]) -> tuple[int, list[State]]:
        def work(txn: Transaction) -> tuple[tuple[int, list[State]], bool]:
            now = self._clock()
            slots = Records(txn, now).get(record.key_of(self._prefix, key))
            found = [(rule, slots.get(self._digest(rule.id))) for rule in rules]
            return (now, [_copied(rule, current(slot, rule, now)) for rule, slot in found]), False

        return self._run(work)

    def _run(self, work: Callable[[Transaction], tuple[T, bool]]) -> T:
        try:
            return _run(self._file, work, self._tick)
        except lmdb.MapFullError:
            self._sweeper.crowd()
        try:
            return _run(self._file, work, self._tick)
        except lmdb.MapFullError as error:
            raise self._file.failed(error) from error

    def _digest(self, rule_id: str) -> bytes:
        digest = self._digests.get(rule_id)
        if digest is None:
            if len(self._digests) >= 4096:  # noqa: PLR2004 - limits made up at run time
                self._digests.clear()
            digest = self._digests[rule_id] = record.digest_of(rule_id)
        return digest

    def _shared_key(self, key: str) -> bytes:
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
