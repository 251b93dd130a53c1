"""How a key's limits are kept in the file: one record, a short row of slots.

A slot is 112 bytes and eight more for each refund it has to remember: the digest of the rule's id,
period and tick, how many integers its state has and how many refunds there are, expires, birth,
charges, up to six integers of state, eight bytes each. All limits of a key stand in one value, so
one read and one write decide over them. A log's entries, which are many, are kept apart, in pages;
see `pages`.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING

from noria.model.batch import Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from noria.model.limit import Rule

SLOT = struct.Struct("<16s2qBB6x9q")
HEAD = struct.Struct("<16s2q")
"""What a slot begins with: which rule it is of, and in which shape."""
CORE = struct.Struct("<BB6x6q")
"""What follows, as far as the algorithms with up to three integers use it."""
USED = struct.Struct(f"<{HEAD.size}sBB6x6q")
"""Both, the head as it is."""
REFUND = struct.Struct("<q")
FARTHEST = 2**62
"""The latest moment that fits, in microseconds; what would run out later runs out then."""
LOG = 6
"""The count of a log's integers, which only a log has."""

_COUNTS = (2, 3, LOG)
_REFUNDS_AT = 33
LONGEST_KEY = 400
"""LMDB takes keys of up to 511 bytes; longer ones are digested."""


def digest_of(rule_id: str) -> bytes:
    """The rule's name in the file."""
    return blake2b(rule_id.encode(), digest_size=16).digest()


def head_of(rule: Rule) -> bytes:
    """What a slot of the rule begins with, while its shape is the rule's."""
    return HEAD.pack(digest_of(rule.id), *rule.shape)


def place(kind: bytes, namespace: str) -> bytes:
    """What the keys of a namespace begin with; its length keeps it apart from the key."""
    name = namespace.encode()
    return kind + len(name).to_bytes(4, "big") + name


def key_of(prefix: bytes, key: str) -> bytes:
    """The key of a record: readable where it is short, else a digest, which no short one equals."""
    raw = prefix + key.encode()
    if len(raw) <= LONGEST_KEY:
        return raw
    return b"h" + blake2b(raw, digest_size=32).digest()


def unpack(value: bytes, log_of: Callable[[int], object]) -> dict[bytes, Slot]:
    """The slots of a record by their rule's digest; `log_of` gives a log's entries by birth.

    Raises `struct.error` for bytes that are no record.
    """
    slots: dict[bytes, Slot] = {}
    at = 0
    while at < len(value):
        digest, period, tick, count, refunds, expires, birth, charges, *numbers = SLOT.unpack_from(
            value, at
        )
        if count not in _COUNTS or tick < 1 or period < tick or period % tick:
            raise struct.error("garbled")
        slot = Slot((period, tick), birth)
        slot.expires = expires
        slot.charges = charges
        if count == LOG:
            last, *rest = numbers
            slot.state = (last, log_of(birth), *rest)
        else:
            slot.state = tuple(numbers[:count])
        at += SLOT.size
        if refunds:
            slot.refunds = struct.unpack_from(f"<{refunds}q", value, at)
            at += refunds * REFUND.size
        slots[digest] = slot
    return slots


def pack(digest: bytes, slot: Slot) -> bytes:
    """One slot as it stands in a record."""
    state, refunds = slot.state, slot.refunds
    numbers = (state[0], *state[2:]) if len(state) > LOG else state  # but for a log's entries
    head = digest, *slot.shape, len(numbers), len(refunds)
    tail = min(slot.expires, FARTHEST), slot.birth, slot.charges, *(*numbers, 0, 0, 0, 0)[:LOG]
    return SLOT.pack(*head, *tail) + struct.pack(f"<{len(refunds)}q", *refunds)


def runs_out(value: bytes) -> int:
    """The moment from which no slot of a record counts; 0 for bytes that are no record."""
    at = latest = 0
    while at < len(value):
        if len(value) - at < SLOT.size:
            return 0
        latest = max(latest, SLOT.unpack_from(value, at)[5])
        at += SLOT.size + value[at + _REFUNDS_AT] * REFUND.size
    return latest
