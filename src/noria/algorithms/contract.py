"""What kernels take and give, as types; read by type checkers alone, never imported at run time."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

Numbers: TypeAlias = tuple[int, int, int]
"""(limit, window, capacity): N, the period in ticks, and the most that passes at once."""
Shape: TypeAlias = tuple[int, int]
"""(period, tick) in microseconds."""
State: TypeAlias = Any
"""What is stored for a key: each kernel says what its own is. None where nothing is stored."""
Step: TypeAlias = tuple[bool, State, int, int, int | None]
"""(allowed, state, expires, remaining, wait)."""
Rest: TypeAlias = tuple[int, int | None]
"""(reset, window_end)."""


class Log(Protocol):
    """What a store must keep for the log; positions are absolute and never reused."""

    def entry(self, at: int, /) -> tuple[int, int]:
        """Entry `at`: its tick, and the units charged before it."""
        ...

    def first_after(self, time: int, start: int, end: int, /) -> int:
        """The first position of [start, end) whose tick is later, or `end`."""
        ...

    def first_reaching(self, units: int, start: int, end: int, /) -> int:
        """The first position of [start, end) with as many units before it, or `end`."""
        ...

    def append(self, at: int, time: int, before: int, /) -> None:
        """Write entry `at`, in place of whatever stood there and behind."""
        ...

    def since(self, start: int, /) -> Log:
        """The same log, where entries before `start` need not be kept."""
        ...

    def until(self, end: int, /) -> Log:
        """A log with the entries before `end`, of its own: writing to it leaves this alone."""
        ...
