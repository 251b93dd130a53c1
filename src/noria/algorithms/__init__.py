"""The kernels: the one definition of each algorithm.

A kernel is arithmetic on integers and nothing else: no clock, no store, no limit object. All stores
run these very functions, or are checked against them. Times are whole ticks (see `units`), costs
and counts whole units.

    step(numbers, state, now, cost) -> (allowed, state, expires, remaining, wait)

`numbers` is (limit, window, capacity): N, the period in ticks, and the most that can pass at once
(the burst of a bucket, N for the others). `state` is what is stored for a key, None where nothing
is. The answer says whether `cost` units may pass now, the state to store, the tick from which that
state equals no state at all, how many units are left after this call, and how many ticks to wait
until the cost would pass: 0 when it passes, None when it never will. A cost of 0 looks: it is
always allowed and returns the state it was given. A refusal returns that state too (the same
object), with one exception: a clock that stepped back further than a period, where what was counted
moves to now, so that it locks nobody out for longer than the algorithm looks back.

Every state begins with `last`, the tick of its newest charge. When the clock is behind it by up to
a period, time stands still at `last`: a clock that steps back frees nothing.

    rest(numbers, state, now) -> (reset, window_end)

Ticks until no charge weighs any more; ticks to the end of the window, None without windows.

    refund(window, state, now, at, cost) -> state

The state without `cost` of the units that were charged at tick `at`, never below nothing; the state
itself where that charge weighs no more.

    convert(state, old, new) -> state

The state for another period or tick, `old` and `new` being (period, tick) in microseconds; what
cannot be kept exactly is rounded against the caller.

    copy(state) -> state

A state of its own, that may be stepped without touching the one given.
"""

from __future__ import annotations

from noria.algorithms import fixed_window, sliding_window, sliding_window_log, token_bucket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from noria.algorithms.contract import Numbers, Rest, Shape, State, Step


class Kernel:
    """One algorithm as its functions; see the module for what each takes and gives.

    `grows` tells that its states take more room with each charge, and are not plain integers.
    """

    __slots__ = ("convert", "copy", "grows", "name", "refund", "rest", "step")

    def __init__(  # noqa: PLR0913
        self,
        name: str,
        step: Callable[[Numbers, State, int, int], Step],
        rest: Callable[[Numbers, State, int], Rest],
        refund: Callable[[int, State, int, int, int], State],
        convert: Callable[[State, Shape, Shape], State],
        copy: Callable[[State], State] | None = None,
    ) -> None:
        self.name = name
        self.step = step
        self.rest = rest
        self.refund = refund
        self.convert = convert
        self.copy = copy or _same
        self.grows = copy is not None


def _same(state: State) -> State:
    return state


_slide, _log, _fixed, _bucket = sliding_window, sliding_window_log, fixed_window, token_bucket
KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("sliding-window", _slide.step, _slide.rest, _slide.refund, _slide.convert),
        Kernel("sliding-window-log", _log.step, _log.rest, _log.refund, _log.convert, _log.copy),
        Kernel("fixed-window", _fixed.step, _fixed.rest, _fixed.refund, _fixed.convert),
        Kernel("token-bucket", _bucket.step, _bucket.rest, _bucket.refund, _bucket.convert),
    )
}
"""The kernels by the name of their algorithm; the first is the default."""

ALIASES = {
    "sliding-window-counter": "sliding-window",
    "gcra": "token-bucket",
    "leaky-bucket": "token-bucket",
}
"""Other names that the field uses for the same decisions."""
