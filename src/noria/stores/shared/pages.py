"""A log's entries in the file: pages of 64, each under a key of its own.

So a charge writes the last page and the record, whatever the length of the log, and a look for the
oldest entries reads only the pages it steps on. Writes are collected in memory and reach the
transaction by `flush`, once the batch is decided; what is thrown away was never written.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

from noria.algorithms.sliding_window_log import Entries

if TYPE_CHECKING:
    from typing import TypeAlias

    import lmdb

    from noria.algorithms.contract import Log

    Transaction: TypeAlias = lmdb.Transaction[bytes]

PREFIX = b"z"
"""What the keys of pages begin with: the last in the order of keys."""

_ENTRY = struct.Struct("<qq")
_BITS = 6
_SIZE = 1 << _BITS
_KEY = struct.Struct(">cQQ")


class Pages:
    """The entries of the slot with that birth; see `sliding_window_log.Log`."""

    __slots__ = ("_changed", "_seen", "_txn", "birth")

    def __init__(self, txn: Transaction, birth: int) -> None:
        self.birth = birth
        self._txn = txn
        self._seen: dict[int, bytes] = {}
        self._changed: dict[int, bytes] = {}

    def entry(self, at: int) -> tuple[int, int]:
        """See `Log.entry`."""
        number = at >> _BITS
        page = self._changed.get(number) or self._page(number)
        return _ENTRY.unpack_from(page, (at % _SIZE) * _ENTRY.size)

    def first_after(self, time: int, start: int, end: int) -> int:
        """See `Log.first_after`."""
        while start < end:
            middle = (start + end) // 2
            if self.entry(middle)[0] > time:
                end = middle
            else:
                start = middle + 1
        return start

    def first_reaching(self, units: int, start: int, end: int) -> int:
        """See `Log.first_reaching`."""
        while start < end:
            middle = (start + end) // 2
            if self.entry(middle)[1] >= units:
                end = middle
            else:
                start = middle + 1
        return start

    def append(self, at: int, time: int, before: int) -> None:
        """See `Log.append`."""
        number = at >> _BITS
        kept = (at % _SIZE) * _ENTRY.size
        page = self._changed.get(number) or (self._page(number) if kept else b"")
        if len(page) != kept:
            # What is cut off is forgotten; a page that is gone held nothing that is still read.
            page = page[:kept].ljust(kept, b"\0")
        self._changed[number] = page + _ENTRY.pack(time, before)

    def since(self, start: int) -> Pages:  # noqa: ARG002 - `flush` deletes what is before
        """See `Log.since`."""
        return self

    def until(self, end: int) -> Pages:  # noqa: ARG002 - what is behind is overwritten
        """See `Log.until`."""
        own = Pages(self._txn, self.birth)
        own._changed.update(self._changed)
        return own

    def flush(self, old_start: int, old_end: int, start: int, end: int) -> None:
        """Write what changed; delete the pages of the old positions that the new ones left."""
        for number, page in self._changed.items():
            self._txn.put(_KEY.pack(PREFIX, self.birth, number), page)
        if end > old_end and start >> _BITS == old_start >> _BITS:
            return  # the usual charge
        first, behind = _span(start, end)
        old_first, old_behind = _span(old_start, old_end)
        written = self._changed
        for number in (
            *range(old_first, min(first, old_behind)),
            *range(max(behind, old_first), old_behind),
            *(number for number in written if not first <= number < behind),
        ):
            self._txn.delete(self._key(number))

    def delete(self, start: int, end: int) -> None:
        """Delete the pages of those positions."""
        for number in range(*_span(start, end)):
            self._txn.delete(self._key(number))

    def _page(self, number: int) -> bytes:
        page = self._seen.get(number)
        if page is None:
            page = self._txn.get(_KEY.pack(PREFIX, self.birth, number), b"")
            self._seen[number] = page
        return page

    def _key(self, number: int) -> bytes:
        return _KEY.pack(PREFIX, self.birth, number)


def _span(start: int, end: int) -> tuple[int, int]:
    """The first page of those positions, and the one behind the last."""
    return start >> _BITS, ((end - 1) >> _BITS) + 1 if start < end else start >> _BITS


def opens_page(end: int) -> bool:
    """Whether the entry before `end` is the first of its page."""
    return (end - 1) % _SIZE == 0


def in_memory(log: Log, start: int, end: int) -> Entries:
    """A copy of those entries, at the same positions, that does not need the file."""
    found = [log.entry(at) for at in range(start, end)]
    times = array("q", (time for time, _ in found))
    return Entries(times, array("q", (before for _, before in found)), start)
