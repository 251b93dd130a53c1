"""The shared store's clock: a steady clock of the machine plus one offset kept in the file.

Wall clocks step, and processes started on either side of a step would disagree about which window
it is. The machine's steady clock is the same in all its processes and never steps, but counts from
the boot; one offset, kept in the file, makes it a time. The offset changes only when no other
process has the file open or after a reboot, and only so that time goes forward.

The steady clock is the one that counts while the machine is suspended: with the plain monotonic
clock, which is 26 ns faster, a laptop's limits would be a night late every morning.
"""

from __future__ import annotations

import struct
import sys
import time
from binascii import crc32
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000

_ANCHOR = struct.Struct("<qq36s")


class Anchor(NamedTuple):
    """What the file says about time."""

    offset: int
    """Microseconds to add to the steady clock."""
    last: int
    """A store time that was reached; written about once a second."""
    boot: bytes
    """Which boot of which machine the steady clock counts from; empty if unknown."""

    def pack(self) -> bytes:
        """For the file."""
        return signed(_ANCHOR.pack(*self))

    @classmethod
    def unpack(cls, raw: bytes | None) -> Anchor | None:
        """From the file; None when it is missing or garbled."""
        body = checked(raw, _ANCHOR.size)
        if body is None:
            return None
        offset, last, boot = _ANCHOR.unpack(body)
        return cls(offset, last, boot.rstrip(b"\0"))


def signed(body: bytes) -> bytes:
    """`body` with its checksum."""
    return body + crc32(body).to_bytes(4, "little")


def checked(raw: bytes | None, length: int) -> bytes | None:
    """The body of `raw` if it has this length and its checksum is right."""
    if raw is None or len(raw) != length + 4 or signed(raw[:-4]) != raw:
        return None
    return raw[:-4]


def boot_id() -> bytes:
    """What is different after every boot; empty if the system does not say."""
    try:
        if sys.platform == "darwin":
            from ctypes import CDLL, byref, c_size_t, create_string_buffer

            text, size = create_string_buffer(64), c_size_t(64)
            CDLL(None).sysctlbyname(b"kern.bootsessionuuid", text, byref(size), None, c_size_t(0))
            return text.value[:36]
        else:  # noqa: RET505 - or mypy finds the rest unreachable
            return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36]
    except (OSError, AttributeError):
        return b""


def _steady() -> Callable[[], int]:
    # Both count on through a suspension.
    if sys.platform == "darwin":
        return partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW)
    else:  # noqa: RET505 - or mypy finds the rest unreachable
        return partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)


class Clocks(NamedTuple):
    """What is read of the machine; tests put their own."""

    wall: Callable[[], int] = time.time_ns
    steady: Callable[[], int] = _steady()
    boot: Callable[[], bytes] = boot_id

    def anchor(self, least: int) -> Anchor:
        """For a new file: the wall clock's time, but not before `least`."""
        steady, now = self.steady() // 1000, max(self.wall() // 1000, least)
        return Anchor(now - steady, now, self.boot())

    def reanchor(self, found: Anchor, *, alone: bool) -> Anchor:
        """What is to be in a file that had `found`; `alone`: no other process goes by that."""
        steady, wall, boot = self.steady() // 1000, self.wall() // 1000, self.boot()
        now = steady + found.offset
        if found.boot == boot and now >= found.last:
            # A wall clock that was set forward can be followed only where nobody would disagree.
            if not alone or wall - now <= SECOND:
                return found
            now = wall
        else:
            # Decisions may be up to a second younger than what was written last.
            now = max(wall, found.last + SECOND)
        return Anchor(now - steady, now, boot)
