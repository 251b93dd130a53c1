"""Fixed window: count the calls of each window of the calendar, forget them when it ends.

Windows are aligned to the Unix epoch in UTC, so all processes agree on them without talking, and
the end of a window is one constant for all callers.

Bound: at most N in each window; therefore up to 2N in a span that straddles an edge (N at the end
of one window, N at the beginning of the next), and at most N * (ceil(d / W) + 1) in any span d.
Cost: O(1) time, two integers.
Choose it for quotas that people read on a bill ("1,000 a day, renewed at midnight"), or where
another limiter's windows must be matched. Where a burst of 2N would hurt, choose another.
Source: the oldest scheme in use; Kong, "How to design a scalable rate limiting algorithm" (2017),
describes it and its edge.

State: (last, count), the tick of the newest charge and the units charged in its window. The tick
is kept, rather than the window's index, because it tells how far a clock has stepped back.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from noria.algorithms.contract import Numbers, Rest, Shape, Step

    State: TypeAlias = tuple[int, int]


def step(numbers: Numbers, state: State | None, now: int, cost: int) -> Step:
    limit, window, _ = numbers
    t = now
    start = now - now % window
    count = 0
    kept = state
    if state is not None:
        last, count = state
        if last < start:
            count = 0
        elif last > now:
            if last - now <= window:
                t = last
                start = last - last % window
            else:
                kept = (now, count)
    left = limit - count - cost
    if left >= 0 and cost:
        return True, (t, count + cost), start + window, left, 0
    end = start + window
    room = max(limit - count, 0)
    if not cost:
        return True, state, end, room, 0
    return False, kept, end, room, end - now if cost <= limit else None


def rest(numbers: Numbers, state: State | None, now: int) -> Rest:
    _, window, _ = numbers
    t = now
    if state is not None and now < state[0] <= now + window:
        t = state[0]
    start = t - t % window
    counted = state is not None and state[0] >= start and state[1] > 0
    end = start + window - now
    return end if counted else 0, end


def refund(window: int, state: State, now: int, at: int, cost: int) -> State:
    last, count = state
    start = last - last % window
    if not count or not start <= at <= last or now >= start + window:
        return state
    return last, max(count - cost, 0)


def convert(state: State, old: Shape, new: Shape) -> State:
    # Units cannot be dated within their window; at its newest charge is as late as they can be.
    last, count = state
    return last * old[1] // new[1], count
