"""Rate text: `100/minute`, `10/5m`, `1000 per hour`, `5 per 30 seconds`.

One strict grammar, `N/PERIOD` or `N per PERIOD` with PERIOD `[k]unit` or `[k] unit`. What does not
match is refused with the text and what was expected: a limit that silently does not limit is the
worst answer to a typing mistake.
"""

from __future__ import annotations

import re

from noria.algorithms.units import SECOND
from noria.model.errors import ConfigError

MOST_UNITS = 10**9
"""The largest N and the largest burst."""

LONGEST_PERIOD = 3653 * 86_400 * SECOND
"""Ten years with three leap days, in microseconds."""

_UNITS = {
    "ms": 1_000,
    **dict.fromkeys(("s", "sec", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60 * SECOND),
    **dict.fromkeys(("h", "hour", "hours"), 3_600 * SECOND),
    **dict.fromkeys(("d", "day", "days"), 86_400 * SECOND),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400 * SECOND),
}

_RATE = r"(?P<count>[0-9]{1,30})(?:/| +per +)(?:(?P<times>[0-9]{1,30}) *)?(?P<unit>[a-z]+)"

_EXPECTED = (
    'expected "N/PERIOD" or "N per PERIOD", such as "100/minute", "10/5m" or "5 per 30 seconds"; '
    "units are ms, s, m, h, d, w, or in words second, minute, hour, day, week"
)


def parse_rate(text: str) -> tuple[int, int]:
    """(N, period in microseconds) of a rate text; `ConfigError` for anything else."""
    match = re.fullmatch(_RATE, text, re.ASCII | re.IGNORECASE)
    unit = _UNITS.get(match["unit"].lower()) if match else None
    if match is None or unit is None:
        raise ConfigError(f"rate {shown(text)} is not understood: {_EXPECTED}")
    times = int(match["times"] or 1)
    if times < 1:
        raise ConfigError(f"rate {shown(text)} has an empty period: {_EXPECTED}")
    return int(match["count"]), times * unit


def format_rate(count: int, period: int) -> str:
    """The shortest rate text of N per `period` microseconds; the inverse of `parse_rate`."""
    for name, unit in (
        ("week", 7 * 86_400 * SECOND),
        ("day", 86_400 * SECOND),
        ("hour", 3_600 * SECOND),
        ("minute", 60 * SECOND),
        ("second", SECOND),
        ("ms", 1_000),
    ):
        if period % unit == 0:
            times = period // unit
            return (
                f"{count}/{name}" if times == 1 else f"{count}/{times} {name}s".replace("mss", "ms")
            )
    return f"{count}/{period}us"


def shown(value: object) -> str:
    """`value` as an error message shows it: quoted, and cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"  # noqa: PLR2004
