"""Sliding-window log: remember when each call was, count those of the last period.

Bound: never more than N in any half-open window (t - W, t]; a call exactly W old no longer counts.
It is the only one of the four that keeps the sentence "N per period" to the letter.
Cost: memory for each admitted call of the last period, at most N entries of 16 bytes; time
O(log N), since the entries are in order and carry running totals: nothing is shifted or summed.
Choose it for small N where exactness counts (log-ins, one-time codes, payments). N is capped at
100,000.
Source: the exact counter to which the other schemes are approximations; Figma, "An alternative
approach to rate limiting" (2017), compares them.

State: (last, entries, start, end, total, oldest, before). `entries` only grows, and a state is a
view of its positions [start, end): a step that is thrown away, because another limit refused, has
cost nothing and is overwritten by the next. Entry i is (tick, units charged before it); `last` is
the tick of the newest, (oldest, before) is entry `start`, and `total` is all units up to `end`. A
call is one entry, whatever it cost. Refused calls leave none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from noria.algorithms.contract import Log, Numbers, Rest, Shape, Step

    State: TypeAlias = tuple[int, Log, int, int, int, int, int]


class Entries:
    """A log in memory: two arrays, of ticks and of running totals."""

    __slots__ = ("base", "times", "totals")

    def __init__(self, times: array[int], totals: array[int], base: int) -> None:
        self.times = times
        self.totals = totals
        self.base = base

    def entry(self, at: int) -> tuple[int, int]:
        at -= self.base
        return self.times[at], self.totals[at]

    def first_after(self, time: int, start: int, end: int) -> int:
        return bisect_right(self.times, time, start - self.base, end - self.base) + self.base

    def first_reaching(self, units: int, start: int, end: int) -> int:
        return bisect_left(self.totals, units, start - self.base, end - self.base) + self.base

    def append(self, at: int, time: int, before: int) -> None:
        times = self.times
        at -= self.base
        if at != len(times):
            del times[at:]
            del self.totals[at:]
        times.append(time)
        self.totals.append(before)

    def since(self, start: int) -> Entries:
        # A copy, so that decisions not yet read keep their view; seldom enough to cost O(1) a call.
        dead = start - self.base
        if dead < 32 or dead * 2 < len(self.times):  # noqa: PLR2004
            return self
        return Entries(self.times[dead:], self.totals[dead:], start)

    def until(self, end: int) -> Entries:
        kept = end - self.base
        return Entries(self.times[:kept], self.totals[:kept], self.base)


def step(numbers: Numbers, state: State | None, now: int, cost: int) -> Step:
    limit, window, _ = numbers
    if state is None:
        left = limit - cost
        if left >= 0 and cost:
            log = Entries(array("q", (now,)), array("q", (0,)), 0)
            return True, (now, log, 0, 1, cost, now, 0), now + window, left, 0
        return not cost, None, now, limit, 0 if not cost else None
    last, entries, start, end, total, oldest, before = state
    t = now
    kept = state
    if last > now:
        if last - now <= window:
            t = last
        else:
            kept = last, entries, start, end, total, oldest, before = _clamp(state, now)
    if oldest <= t - window:
        start = entries.first_after(t - window, start, end)
        entries = entries.since(start)
        oldest, before = entries.entry(start) if start < end else (t, total)
    left = limit - total + before - cost
    if left >= 0 and cost:
        entries.append(end, t, total)
        after = (t, entries, start, end + 1, total + cost, oldest, before)
        return True, after, t + window, left, 0
    room = max(left + cost, 0)
    if not cost:
        return True, state, last + window, room, 0
    if cost > limit:
        return False, kept, last + window, room, None
    # The entry with which enough units have left, as a rule the oldest: the last before which not
    # enough others stand.
    enough = total + cost - limit
    if end - start > 1 and entries.entry(start + 1)[1] < enough:
        oldest = entries.entry(entries.first_reaching(enough, start + 2, end) - 1)[0]
    return False, kept, last + window, room, oldest + window - now


def rest(numbers: Numbers, state: State | None, now: int) -> Rest:
    if state is None or state[2] == state[3]:
        return 0, None
    window = numbers[1]
    last = state[0] if state[0] <= now + window else now
    return max(last + window - now, 0), None


def refund(window: int, state: State, now: int, at: int, cost: int) -> State:
    last, entries, start, end, total, _, _ = state
    if at <= now - window:
        return state
    first = entries.first_after(at - 1, start, end)
    behind = entries.first_after(at, first, end)
    if first == behind:
        return state
    before = entries.entry(first)[1]
    units = (entries.entry(behind)[1] if behind < end else total) - before
    later = _pairs(entries, behind, end, total)
    if units > cost:
        later.insert(0, (at, units - cost))
    if later:
        last = later[-1][0]
    elif start < first:
        last = entries.entry(first - 1)[0]
    return (last, *_rewritten(entries, start, first, before, later))


def convert(state: State, old: Shape, new: Shape) -> State:
    (_, old_tick), (_, tick) = old, new
    if old_tick == tick:
        return state
    last, entries, start, end, total, _, _ = state
    pairs = [(-(-t * old_tick // tick), units) for t, units in _pairs(entries, start, end, total)]
    total -= sum(units for _, units in pairs)
    return (-(-last * old_tick // tick), *_rewritten(entries, start, start, total, pairs))


def copy(state: State) -> State:
    """A state of its own, that may be stepped without touching the one given."""
    last, entries, start, end, total, oldest, before = state
    return last, entries.until(end), start, end, total, oldest, before


def coarsen(state: State) -> State:
    """The state with its two newest entries as one, at the later tick: less memory, and strict."""
    last, entries, start, end, total, _, _ = state
    if end - start < 2:  # noqa: PLR2004
        return state
    before = entries.entry(end - 2)[1]
    return (last, *_rewritten(entries, start, end - 2, before, [(last, total - before)]))


def _clamp(state: State, now: int) -> State:
    """The state with every entry later than `now` moved to now."""
    _, entries, start, end, total, _, _ = state
    first = entries.first_after(now, start, end)
    if first == end:
        return (now, *state[1:])
    before = entries.entry(first)[1]
    return (now, *_rewritten(entries, start, first, before, [(now, total - before)]))


def _pairs(entries: Log, first: int, end: int, total: int) -> list[tuple[int, int]]:
    """(tick, units) of each entry of [first, end)."""
    found = [entries.entry(at) for at in range(first, end)]
    totals = [*(before for _, before in found), total]
    return [(time, totals[at + 1] - before) for at, (time, before) in enumerate(found)]


def _rewritten(
    entries: Log, start: int, first: int, total: int, pairs: list[tuple[int, int]]
) -> tuple[Log, int, int, int, int, int]:
    """A state but for `last`: `pairs` from position `first` on, which `total` units precede."""
    fresh = entries.until(first)
    at = first
    for time, units in pairs:
        fresh.append(at, time, total)
        at += 1
        total += units
    oldest, before = fresh.entry(start) if start < at else (0, total)
    return fresh, start, at, total, oldest, before
