"""The records that one transaction reads and writes, decoded."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from noria.model.batch import Slot
from noria.model.errors import UsageError
from noria.stores.shared import pages, record

if TYPE_CHECKING:
    from noria.model.limit import Rule
    from noria.stores.shared.pages import Transaction

OVERFLOW = b"o"
"""What the keys of overflow records begin with."""
MOST_SLOTS = 64
"""The most limits of one key that can be live at once."""


class Records:
    """The records that one transaction reads and writes, each once."""

    def __init__(self, txn: Transaction, now: int, salt: int) -> None:
        self.txn = txn
        self._salt = salt
        self.now = now
        self.room: bool | None = None  # whether there is any for something new, once it was asked
        self._slots: dict[bytes, dict[bytes, Slot]] = {}
        self._fresh: dict[tuple[bytes, bytes], Slot] = {}
        self._born = 0
        self._changed: dict[bytes, set[bytes]] = {}

    def fresh(self, raw: bytes, digest: bytes, rule: Rule) -> Slot:
        """A slot for a record that has none of that rule, the same each time it is asked for."""
        slot = self._fresh.get((raw, digest))
        if slot is None:
            slot = self._fresh[raw, digest] = Slot(rule.shape, self._birth())
        return slot

    def renew(self, slot: Slot) -> None:
        """Give a slot that has run out, and so equals no slot, another life."""
        delete_pages(slot)
        slot.state = None
        slot.birth = self._birth()
        slot.charges = 0
        slot.refunds = ()

    def _birth(self) -> int:
        """A number that no other slot of the file has, as a batch has at most 1,000 entries."""
        self._born += 1
        return (self.txn.id() << 10 | self._born) ^ self._salt

    def get(self, raw: bytes) -> dict[bytes, Slot]:
        """The slots of a record, by their rule's digest."""
        slots = self._slots.get(raw)
        if slots is None:
            slots = self._slots[raw] = slots_of(self.txn, self.txn.get(raw, b""))
        return slots

    def put(self, raw: bytes, digest: bytes, slot: Slot) -> None:
        """Have a slot written."""
        self._slots[raw][digest] = slot
        self._changed.setdefault(raw, set()).add(digest)

    def remove(self, raw: bytes, digest: bytes) -> None:
        """Have a slot deleted."""
        delete_pages(self._slots[raw].pop(digest))
        self._changed.setdefault(raw, set())

    def flush(self, slot: Slot, old: tuple[int, int]) -> None:
        """Write a log's pages; `old` are the positions that were kept before."""
        last, log, start, end, *tail = slot.state
        if not isinstance(log, pages.Pages) or log.birth != slot.birth:
            own = pages.Pages(self.txn, slot.birth)
            for at in range(start, end):
                own.append(at, *log.entry(at))
            log = own
            slot.state = (last, log, start, end, *tail)
        log.flush(*old, start, end)

    def write(self) -> None:
        """Write what changed; slots that have run out go along the way."""
        for raw, changed in self._changed.items():
            slots = self._slots[raw]
            for digest in [name for name in slots if name not in changed]:
                if slots[digest].expires <= self.now:
                    delete_pages(slots.pop(digest))
            if len(slots) > MOST_SLOTS and raw.startswith(OVERFLOW):
                # Nobody's own: the limit that would be over first gives way, whoever shared it.
                first = min(slots.keys() - changed, key=lambda name: slots[name].expires)
                delete_pages(slots.pop(first))
            elif len(slots) > MOST_SLOTS:
                raise UsageError(
                    f"more than {MOST_SLOTS} different limits are live on one key; give limits a "
                    "name, so that changed numbers do not make another limit"
                )
            if slots:
                self.txn.put(raw, b"".join(record.pack(name, slot) for name, slot in slots.items()))
            else:
                self.txn.delete(raw)


def slots_of(txn: Transaction, value: bytes) -> dict[bytes, Slot]:
    """The slots of a record; none where its bytes are garbled, which is said in the log.

    LMDB's verifier sees a damaged tree, but not damaged values in it.
    """
    try:
        return record.unpack(value, lambda birth: pages.Pages(txn, birth))
    except struct.error:
        log = logging.getLogger("noria")
        log.error("a record of the shared store was garbled: it starts anew")  # noqa: TRY400
        return {}


def delete_pages(slot: Slot) -> None:
    """Delete the pages of a log that is about to go."""
    if len(slot.state) > record.LOG:
        _, log, start, end, *_ = slot.state
        log.delete(start, end)
