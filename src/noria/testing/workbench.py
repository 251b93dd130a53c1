"""What every check of the contract starts from: a limiter on an injected clock, and Hypothesis."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noria.model.limit import Limit
from noria.testing.driver import Driver, says
from noria.testing.model import Rates
from noria.testing.promises import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from noria.testing.clock import Clock
    from noria.testing.driver import AnyLimiter, Says

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


class Workbench:
    """The part of the contract that a subclass fills in."""

    effort = 0.25
    """The share of the Hypothesis profile's `max_examples` that each search gets."""

    across_processes = False
    """Whether forked processes that use one limiter must be limited together."""

    def make(self, clock: Clock) -> AnyLimiter:
        """A limiter whose store is empty and takes its time from `clock`."""
        raise NotImplementedError

    def make_clients(self, clock: Clock, skews: Sequence[int]) -> list[AnyLimiter]:
        """Limiters on one empty store, whose time is `clock`, in clients whose own clocks are off.

        By `skews`, in microseconds. An embedded store has no client beside it: one limiter serves.
        """
        return [self.make(clock)] * len(skews)

    @contextmanager
    def limiter(self, clock: Clock) -> Generator[Driver, None, None]:
        """A driver of `make`'s limiter, closed at the end."""
        driver = Driver(self.make(clock))
        try:
            yield driver
        finally:
            driver.close()

    @contextmanager
    def twins(self, clock: Clock) -> Generator[tuple[Driver, Driver], None, None]:
        """Two limiters that know nothing of each other, on one clock."""
        with self.limiter(clock) as one, self.limiter(clock) as other:
            yield one, other

    def profile(self) -> settings:
        """What Hypothesis runs with: the loaded profile, `effort` of it."""
        examples = max(5, int(settings().max_examples * self.effort))
        return settings(max_examples=examples, deadline=None, suppress_health_check=SLOW)

    def explore(self, check: Callable[..., None], **strategies: st.SearchStrategy[Any]) -> None:
        """Run a check on what Hypothesis thinks of."""
        self.profile()(given(**strategies)(check))()


def tiny(algorithm: str, count: int, period: int, burst: int | None = None, **more: Any) -> Limit:
    """A limit by its numbers, the period in microseconds; `burst` only counts for a bucket."""
    if algorithm == "token-bucket":
        more["burst"] = burst
    return Limit(count, period / 1_000_000, algorithm=algorithm, **more)


def each(count: int, period: int, **more: Any) -> list[Limit]:
    """The same numbers as a limit of each algorithm."""
    return [tiny(algorithm, count, period, **more) for algorithm in ALGORITHMS]


def a_limit(least: int = 1) -> st.SearchStrategy[Limit]:
    """Tiny limits, and now and then rates that people write, and ones with coarse ticks."""
    small = st.builds(
        tiny,
        st.sampled_from(ALGORITHMS),
        st.integers(least, 5),
        st.integers(1, 20),
        st.one_of(st.none(), st.integers(1, 7)),
    )
    written = st.builds(
        tiny,
        st.sampled_from(ALGORITHMS),
        st.sampled_from([1, 3, 7, 30, 1_000]),
        st.sampled_from([1_000_000, 60_000_000, 600_000_000, 86_400_000_000]),
        st.sampled_from([None, 1, 10]),
    )
    coarse = st.builds(
        tiny,
        st.sampled_from([name for name in ALGORITHMS if name != "sliding-window-log"]),
        st.sampled_from([10**9, 999_999_937]),
        st.sampled_from([86_400_000_000, 3_650 * 86_400_000_000]),
        st.sampled_from([None, 1, 10**9]),
    )
    return st.one_of(small, small, written, coarse)


def a_trace(most: int = 12) -> st.SearchStrategy[list[tuple[float, float]]]:
    """Calls: how long after the one before, in periods, and how much, in capacities."""
    gap = st.one_of(st.just(0.0), st.floats(0, 1.2))
    return st.lists(st.tuples(gap, st.floats(0, 1.1)), max_size=most)


def call_of(limit: Limit, gap: float, share: float) -> tuple[int, int]:
    """(microseconds, cost) of a trace's call under a limit; costs are 1 and more."""
    rates = Rates.of(limit)
    return int(gap * rates.window * rates.tick), max(1, round(share * rates.capacity))


def seen(driver: Driver, key: str, *limits: Limit, cost: int = 0) -> Says:
    """What a peek says."""
    return says(driver.peek(key, *limits, cost=cost))
