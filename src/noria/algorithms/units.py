"""Whole numbers only: how time is cut into ticks.

Inside Noria a time is an integer of microseconds since the Unix epoch, and a kernel sees only whole
*ticks* of it. A limit's tick is one microsecond unless a product of its arithmetic, largest cost
times period, would reach 2**53; then it is the smallest divisor of the period that keeps the
product below. 2**53 is where Lua's numbers, IEEE 754 doubles, stop being exact, and every mirror of
a kernel has to give the answers of the kernel to the last unit. A tick divides its period, so
windows never drift: with tick d, `t // d // (period // d)` is `t // period`.
"""

from __future__ import annotations

EXACT = 2**53
"""Products stay below this number."""

SECOND = 1_000_000
"""Microseconds in a second."""

MAX_COST = 2**31
"""The largest cost of one call."""


_NEAR = 64
_LARGE_PRIME = 100_000


def tick_for(units: int, period: int) -> int | None:
    """The tick, in microseconds, of a limit that counts up to `units` in `period` microseconds.

    None when no divisor of the period comes near what 2**53 asks for: its prime factors are large.
    """
    if units * period < EXACT:
        return 1
    most = (EXACT - 1) // units
    ticks = max(part for part in _divisors(period) if part <= most)
    return period // ticks if ticks * _NEAR >= most else None


def _divisors(number: int) -> list[int]:
    """All divisors of `number`, from its prime factors.

    A cofactor free of small ones counts as prime: periods that people write are made of small ones.
    """
    divisors = [1]
    prime = 2
    while number > 1:
        if prime > _LARGE_PRIME or prime * prime > number:
            prime = number
        powers = 0
        while number % prime == 0:
            number //= prime
            powers += 1
        if powers:
            divisors = [part * prime**power for part in divisors for power in range(powers + 1)]
        prime += 1 if prime == 2 else 2  # noqa: PLR2004
    return divisors
