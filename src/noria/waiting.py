"""Waiting lines: those who wait for one key are served first come first served, in this process.

Only the head of a line asks the store; the others sleep until they are the head, so a caller with a
large cost is not overtaken by small ones, and those who wait for one key never hold up another.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from threading import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from noria.model.limit import Rule


class Waiter:
    """One caller in a line: what it asks for, and how it is woken when it becomes the head."""

    __slots__ = ("cost", "rules", "wake")

    def __init__(self, rules: list[Rule], cost: int, wake: Callable[[], None]) -> None:
        self.rules = rules
        self.cost = cost
        self.wake = wake


class Lines:
    """The lines of one limiter, by key; safe for threads, empty in a forked child."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lines: dict[str, deque[Waiter]] = {}
        _all.add(self)

    def join(self, key: str, waiter: Waiter) -> list[Waiter]:
        """Stand at the end of the key's line; the waiters ahead, none when it is the head."""
        with self._lock:
            line = self._lines.setdefault(key, deque())
            ahead = list(line)
            line.append(waiter)
            return ahead

    def leave(self, key: str, waiter: Waiter) -> None:
        """Step out, served or not; who becomes the head by that is woken."""
        with self._lock:
            line = self._lines.get(key)
            if line is None or waiter not in line:
                return
            was_head = line[0] is waiter
            line.remove(waiter)
            if not line:
                del self._lines[key]
                return
            head = line[0]
        if was_head:
            head.wake()

    def clear(self) -> None:
        """Forget everybody: in a forked child their threads do not exist."""
        self._lock = Lock()
        self._lines = {}


_all: weakref.WeakSet[Lines] = weakref.WeakSet()


def _after_fork() -> None:
    for lines in list(_all):
        lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
