"""From a decision's seconds to the whole seconds of HTTP, rounded up.

A caller who comes back a moment early is refused again, so nothing is rounded down. Sums are made
in whole microseconds: the float 1700000000.3 + 59.7 lies above 1700000060 and would round up to 61.
"""

from __future__ import annotations

_SECOND = 1_000_000


def microseconds(seconds: float) -> int:
    """The whole microseconds that `seconds` stands for."""
    return round(seconds * _SECOND)


def seconds_up(*seconds: float) -> int:
    """The sum in whole seconds, rounded up."""
    return -(-sum(map(microseconds, seconds)) // _SECOND)


def retry_seconds(retry_after: float | None) -> int | None:
    """Retry-After (RFC 9110, 10.2.3): at least 1, since 0 would ask to be refused again."""
    return None if retry_after is None else max(1, seconds_up(retry_after))
