"""What a failed check says: the promise that was broken, and the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noria.testing.model import Rates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noria.model.limit import Limit

ALGORITHMS = ("sliding-window", "sliding-window-log", "fixed-window", "token-bucket")


def must(holds: object, promise: str, **facts: object) -> None:
    """`AssertionError` with the promise and the facts, unless it holds."""
    if not holds:
        listed = "".join(f"\n  {name} = {value!r}" for name, value in facts.items())
        raise AssertionError(promise + listed)


def must_raise(error: type[Exception], call: Callable[[], object], promise: str) -> None:
    """`AssertionError` unless the call raises that error."""
    try:
        answer = call()
    except error:
        return
    raise AssertionError(f"{promise}\n  it answered {answer!r}, not {error.__name__}")


def lookback(limit: Limit) -> int:
    """Microseconds after which nothing charged weighs any more (C2's R)."""
    rates = Rates.of(limit)
    if limit.algorithm == "token-bucket":
        return -(-rates.burst * rates.window // max(rates.limit, 1)) * rates.tick
    return rates.window * rates.tick * (2 if limit.algorithm == "sliding-window" else 1)


def must_be_bounded(limit: Limit, admitted: Sequence[tuple[int, int]]) -> None:
    """C1: no span of time holds more than the bound. `admitted` is (tick, units), sorted.

    Every span that begins and ends with a charge is looked at: those are the fullest.
    """
    rates = Rates.of(limit)
    most, window = rates.limit, rates.window
    for first, (start, _) in enumerate(admitted):
        total = 0
        for end, units in admitted[first:]:
            total += units
            span = end - start
            same = start // window == end // window
            bounds = {
                "sliding-window-log": most if span < window else None,
                "fixed-window": most if same else 2 * most if span < window else None,
                "sliding-window": most + most * span / window if span <= window else None,
                "token-bucket": rates.burst + span * most // window,
            }
            bound = bounds[limit.algorithm]
            must(
                bound is None or total <= bound,
                f"C1: no span of time admits more than the bound of a {limit.algorithm}",
                limit=limit,
                start=start,
                end=end,
                admitted=total,
                bound=bound,
            )
