"""Token bucket: a burst at once, then a steady rate, nothing lost in between.

Also known as GCRA and as the leaky bucket used as a meter: the three decide alike, call by call.
The usual forms drift. Storing tokens rounded down forgets the fraction at every call; an emission
interval of period // N is too short for 3 per second, and one rounded up too long. Here the
bucket's *debt* is kept in units of 1/window of a call: a call of cost c adds c * window, a tick
pours N back. Both are integers, so 3 per second and 7 per 10 minutes are as exact as 1 per minute.

Bound: any closed span d admits at most B + floor(d * N / W); a bucket that is asked often enough
never to refill to the brim gives at least B + d * N / W - 1.
Cost: O(1) time, two integers.
Choose it where short bursts are normal and the long-term rate is what matters (SDKs, queues), or
where calls should be spread: with burst 1 they are W / N apart.
Source: J. S. Turner, "New directions in communications", IEEE Communications Magazine 24(10), 1986
(the leaky bucket); ITU-T I.371 (GCRA).

State: (last, debt), the tick of the newest charge and the debt at it. In GCRA's words, the
theoretical arrival time is last + debt / N and the emission interval window / N.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from noria.algorithms.contract import Numbers, Rest, Shape, Step

    State: TypeAlias = tuple[int, int]


def step(numbers: Numbers, state: State | None, now: int, cost: int) -> Step:
    limit, window, burst = numbers
    brim = burst * window
    t = now
    debt = 0
    kept = state
    if state is not None:
        last, debt = state
        if debt > brim:  # noqa: PLR1730 - a call of min costs more than all of this
            debt = brim  # it was a larger limit's: no debt is deeper than the bucket
        if last <= now:
            debt -= limit * (now - last)
            if debt < 0:  # noqa: PLR1730 - likewise
                debt = 0
        elif last - now <= window:
            t = last
        else:
            kept = (now, debt)
    room = brim - debt
    left = room - cost * window
    if left >= 0 and cost:
        debt += cost * window
        return True, (t, debt), t - -debt // limit, left // window, 0
    full = t - -debt // limit if limit else t + window
    units = room // window
    if not cost:
        return True, state, full, units, 0
    return False, kept, full, units, t - left // limit - now if cost <= burst else None


def rest(numbers: Numbers, state: State | None, now: int) -> Rest:
    limit, window, burst = numbers
    if state is None or not limit:
        return 0, None
    last, debt = state
    debt = min(debt, burst * window)
    t = last if now < last <= now + window else now
    debt = max(debt - limit * max(now - last, 0), 0)
    return t - -debt // limit - now if debt else 0, None


def refund(window: int, state: State, now: int, at: int, cost: int) -> State:
    last, debt = state
    if not debt or not now - window < at <= last:
        return state
    return last, max(debt - cost * window, 0)


def convert(state: State, old: Shape, new: Shape) -> State:
    (old_period, old_tick), (period, tick) = old, new
    last, debt = state
    return -(-last * old_tick // tick), -(-debt * (period // tick) // (old_period // old_tick))
