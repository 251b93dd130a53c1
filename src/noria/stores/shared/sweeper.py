"""Keeps the shared store's file from filling up: what has run out goes, room is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noria.stores.shared import pages, record
from noria.stores.shared.records import delete_pages, slots_of

if TYPE_CHECKING:
    from noria.stores.shared.file import SharedFile
    from noria.stores.shared.pages import Transaction

_FULL, _FULLEST = 0.8, 0.92
"""The share of the file that records may take; the rest is for LMDB's copies of pages."""
_FIRST = b"h"
"""Where records begin in the order of keys, behind the file's own."""


class Sweeper:
    """Keeps the file from filling up: what has run out goes, and room is told from no room.

    It looks at records in the order of their keys, a few with every eighth new one, from where it
    stopped before.
    """

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._hand = _FIRST
        self._new = 0
        self._crowded = False

    def crowd(self) -> None:
        """LMDB ran out of pages: be careful at once."""
        self._crowded = True

    def has_room(self, txn: Transaction, now: int) -> bool:
        """Whether another record may be made."""
        self._new += 1
        if self._crowded or self._new % 8 == 0:
            self._sweep(txn, now, 16)
            if self.is_crowded(txn):
                self._sweep(txn, now, 64)
                self._crowded = self.is_crowded(txn)
            else:
                self._crowded = False
        return not self._crowded

    def is_crowded(self, txn: Transaction) -> bool:
        """Whether live records fill the file.

        Where many have gone, pages are many but thin, and new records find room in them.
        """
        facts = txn.stat()
        leaves = facts["leaf_pages"]
        used = (leaves + facts["branch_pages"] + facts["overflow_pages"]) * facts["psize"]
        thin = facts["entries"] * record.SLOT.size < leaves * facts["psize"] * 0.4
        return used > self._file.size * (_FULLEST if thin else _FULL)

    def _sweep(self, txn: Transaction, now: int, most: int) -> None:
        """Look at up to `most` records from where the last look ended; drop what has run out."""
        cursor = txn.cursor()
        found = cursor.set_range(self._hand)
        gone: list[tuple[bytes, bytes]] = []
        for _ in range(most):
            if not found or cursor.key() >= pages.PREFIX:
                found = False
                break
            value = cursor.value()
            if record.runs_out(value) <= now:
                gone.append((cursor.key(), value))
            found = cursor.next()
        self._hand = cursor.key() if found else _FIRST
        for key, value in gone:
            for slot in slots_of(txn, value).values():
                delete_pages(slot)
            txn.delete(key)
