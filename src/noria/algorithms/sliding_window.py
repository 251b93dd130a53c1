"""Sliding window, by two counters: the window before weighs as much as is still inside.

At `offset` into the current window, the sliding window of one period still covers the last
`window - offset` ticks of the window before. Its calls are taken as spread evenly, so the use is
previous * (window - offset) / window + current, and a cost passes if and only if use + cost <= N,
exactly: the fraction is rounded up, not, as the usual description has it, down for the caller's
benefit, which would pass the bound.

Bound: N + N * d / W in any span d <= W, hence less than 2N in a full window and never 2N at once;
for traffic that is even within each window, N. It errs the other way too: a burst at the start of
a window weighs, fading, until the end of the next.
Cost: O(1) time, three integers.
Choose it when nothing speaks for another: no edge to double at, no memory that grows.
Source: Cloudflare, "How we built rate limiting capable of scaling to millions of domains" (2017).

State: (last, previous, current), the tick of the newest charge and the units charged in the window
before it and in its own.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from noria.algorithms.contract import Numbers, Rest, Shape, Step

    State: TypeAlias = tuple[int, int, int]


def step(numbers: Numbers, state: State | None, now: int, cost: int) -> Step:
    limit, window, _ = numbers
    t = now
    offset = now % window
    previous = current = 0
    kept = state
    if state is not None:
        last, previous, current = state
        start = now - offset
        if last < start:
            previous = current if last >= start - window else 0
            current = 0
        elif last > now:
            if last - now <= window:
                t = last
                offset = last % window
            else:
                kept = (now, previous, current)
    # The weight of what is previous, rounded up.
    used = current - -previous * (window - offset) // window if previous else current
    left = limit - used - cost
    if left >= 0 and cost:
        return True, (t, previous, current + cost), t - offset + window + window, left, 0
    end = t - offset + window
    room = max(limit - used, 0)
    if not cost:
        return True, state, end + window, room, 0
    if cost > limit:
        return False, kept, end + window, room, None
    return False, kept, end + window, room, _passes(numbers, previous, current, end, cost) - now


def _passes(numbers: Numbers, previous: int, current: int, end: int, cost: int) -> int:
    """The first tick at which a refused cost passes.

    In this window, or in the next, where what is current now is the previous.
    """
    limit, window, _ = numbers
    spare = limit - current - cost
    if spare >= 0:
        share = spare * window // previous
        return end - share
    return end + window - (limit - cost) * window // current


def rest(numbers: Numbers, state: State | None, now: int) -> Rest:
    _, window, _ = numbers
    t = now
    previous = current = 0
    if state is not None:
        last, previous, current = state
        if now < last <= now + window:
            t = last
        start = t - t % window
        if last < start:
            previous = current if last >= start - window else 0
            current = 0
    end = t - t % window + window - now
    return end + window if current else end if previous else 0, end


def refund(window: int, state: State, now: int, at: int, cost: int) -> State:
    last, previous, current = state
    start = last - last % window
    if current and start <= at <= last and now < start + 2 * window:
        return last, previous, max(current - cost, 0)
    if previous and start - window <= at < start and now < start + window:
        return last, max(previous - cost, 0), current
    return state


def convert(state: State, old: Shape, new: Shape) -> State:
    (old_period, old_tick), (period, tick) = old, new
    last, previous, current = state
    last *= old_tick
    # Units cannot be dated within their window, so they are taken to be as late as they can be: at
    # the newest charge, and at the end of the window before.
    apart = last // period - (last - last % old_period - 1) // period
    if apart == 0:
        return last // tick, 0, previous + current
    return last // tick, previous if apart == 1 else 0, current
