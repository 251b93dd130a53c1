"""`decide` for one limit on one key, which is most of what is asked: no object in between.

It says what `SharedSpace.apply` says, by the same step of the same kernel; the general way is
taken where a state must be converted, where a key may have to share a record, and where refunds
have to be forgotten.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import lmdb

from noria.core.plan import checked_key
from noria.core.settle import figures
from noria.model.batch import Slot
from noria.stores.shared import pages, record

if TYPE_CHECKING:
    from collections.abc import Callable

    from noria.model.contract import Answer, Figures
    from noria.model.limit import Rule
    from noria.stores.shared.pages import Transaction
    from noria.stores.shared.store import SharedSpace

_KINDS = _TWO, _THREE = 2, 3
"""The counts of integers of the states that are only that: three for the sliding window."""


def quick(space: SharedSpace) -> Callable[[str, Rule, int], Answer]:  # noqa: C901, PLR0915
    """`decide` for a slot that exists, which most do: long, since a call in it costs its time."""
    file, clock, prefix = space.file, space.clock, space.prefix
    enter, leave, steady, injected = file.enter, file.leave, file.steady, space.injected
    heads, longest, head_size = space.heads, record.LONGEST_KEY, record.HEAD.size
    farthest = record.FARTHEST
    unpack, pack, used = record.CORE.unpack_from, record.USED.pack, record.USED.size

    def decide(key: str, rule: Rule, cost: int) -> Answer:  # noqa: C901, PLR0912, PLR0915
        head = heads.get(rule)
        try:
            raw = prefix + key.encode()
        except (AttributeError, TypeError, UnicodeEncodeError):
            return space.decide_any(key, rule, cost)  # which says what is wrong with the key
        if head is None or len(raw) > longest:
            return space.decide_any(key, rule, cost)
        answer: Answer | None = None
        enter(None)
        try:
            txn = file.begin()
            try:
                now = clock() if injected else steady() // 1000 + file.offset
                ticked = (now >= file.due or injected) and space.tick(txn)
                value = txn.get(raw, b"")
                at = value.find(head)
                if at < 0:
                    answer, written = _new(space, txn, raw, value, key, rule, cost, now)
                else:
                    kind, gone, ends, birth, number, a, b, c = unpack(value, at + head_size)
                    before = (a, b) if kind == _TWO else (a, b, c) if kind == _THREE else None
                    if ends <= now:
                        before = None
                    if before is None and (gone or kind not in _KINDS):
                        answer, written = _rare(space, txn, raw, value, at, key, rule, cost, now)
                    else:
                        tick = rule.tick
                        t = now if tick == 1 else now // tick
                        fits, state, ends, left, wait = rule.step(rule.numbers, before, t, cost)
                        written = state is not before
                        if written:
                            if before is None:  # what has run out begins another life
                                birth = txn.id() << 10 ^ file.salt
                                number = 0
                            number += fits
                            if kind == _THREE:
                                a, b, c = state
                            else:
                                a, b = state
                            if tick != 1:
                                ends *= tick
                            if ends > farthest:  # noqa: PLR1730 - quicker than a call of min
                                ends = farthest
                            slot = pack(head, kind, gone, ends, birth, number, a, b, c)
                            slot += value[at + used :]
                            txn.put(raw, value[:at] + slot if at else slot)
                        answer = (
                            fits, left, wait, now, key, rule, cost,
                            state, birth, number, None, False,
                        )  # fmt: skip
                if written or ticked:
                    txn.commit()
                else:
                    txn.abort()
            except BaseException:
                txn.abort()
                raise
        except lmdb.MapFullError:
            space.sweeper.crowd()
            answer = None
        except struct.error:  # a garbled record, with which the general way can deal
            answer = None
        except lmdb.Error as error:
            raise file.failed(error) from error
        finally:
            leave()
        if answer is None:
            answer = space.decide_any(key, rule, cost)
        return answer

    return decide


def _new(  # noqa: PLR0913
    space: SharedSpace,
    txn: Transaction,
    raw: bytes,
    value: bytes,
    key: str,
    rule: Rule,
    cost: int,
    now: int,
) -> tuple[Answer, bool]:
    """`decide` where the key has no slot of that rule yet, and may have others."""
    checked_key(key)
    if value.find(space.digest(rule.id)) >= 0:
        return space.decide_in(txn, key, rule, cost, now)  # the state has another shape
    fits, state, ends, left, wait = rule.step(rule.numbers, None, now // rule.tick, cost)
    head = fits, left, wait, now, key, rule, cost
    if state is None:
        return (*head, None, 0, 0, None, False), False
    if (
        len(value) > 8 * record.SLOT.size
        or txn.get(space.shared_key(key)) is not None
        or not space.sweeper.has_room(txn, now)
    ):
        return space.decide_in(txn, key, rule, cost, now)
    slot = Slot(rule.shape, txn.id() << 10 ^ space.file.salt)
    slot.state = state
    slot.expires = ends * rule.tick
    slot.charges = 1
    known = None
    if rule.grows:
        first = pages.Pages(txn, slot.birth)
        first.append(0, state[0], 0)
        first.flush(0, 0, 0, 1)
        known = ends - now // rule.tick, None, ends - now // rule.tick
    txn.put(raw, value + record.pack(space.digest(rule.id), slot))
    return (*head, state if known is None else state[:1], slot.birth, 1, known, False), True


def _rare(  # noqa: PLR0913
    space: SharedSpace,
    txn: Transaction,
    raw: bytes,
    value: bytes,
    at: int,
    key: str,
    rule: Rule,
    cost: int,
    now: int,
) -> tuple[Answer, bool]:
    """`decide` for a log; and where refunds have to be forgotten, or a record is garbled."""
    if rule.grows and value[at + record.HEAD.size] == record.LOG:
        return _log(space, txn, raw, value, at, key, rule, cost, now)
    return space.decide_in(txn, key, rule, cost, now)


def _log(  # noqa: PLR0913
    space: SharedSpace,
    txn: Transaction,
    raw: bytes,
    value: bytes,
    at: int,
    key: str,
    rule: Rule,
    cost: int,
    now: int,
) -> tuple[Answer, bool]:
    """`decide` for a log that exists."""
    slot = record.SLOT.unpack_from(value, at)
    head = slot[:5]
    _, _, tick, _, _, ends, birth, number, last, start, end, *tail = slot
    if ends <= now:
        return space.decide_in(txn, key, rule, cost, now)
    log = pages.Pages(txn, birth)
    before = (last, log, start, end, *tail)
    t = now // tick
    window = rule.numbers[1]
    fits, state, ends, left, wait = rule.step(rule.numbers, before, t, cost)
    written = state is not before
    oldest = 0
    known: Figures
    if written:
        last, kept, first, behind, total, oldest, units = state
        if kept is not log or (pages.opens_page(behind) and space.sweeper.is_crowded(txn)):
            return space.decide_in(txn, key, rule, cost, now)
        log.flush(start, end, first, behind)
        number += fits
        tail = [birth, number, last, first, behind, total, oldest, units]
        changed = record.SLOT.pack(*head, ends * tick, *tail)
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
