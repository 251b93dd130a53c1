"""The model is trusted, so it is checked against something slower still: asking tick by tick."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.testing import Clock, Model
from noria.testing.model import Rates, coarseness, first
from noria.testing.promises import ALGORITHMS
from noria.testing.workbench import tiny


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_search_finds_the_first(turn, begin):
    assert first(lambda number: number >= turn, begin) == max(turn, begin)


@given(
    algorithm=st.sampled_from(ALGORITHMS),
    numbers=st.tuples(st.integers(1, 5), st.integers(1, 12), st.integers(1, 6)),
    calls=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=12),
    cost=st.integers(1, 5),
)
def test_waits_and_counts_are_what_asking_at_every_tick_finds(algorithm, numbers, calls, cost):
    limit = tiny(algorithm, *numbers)
    clock = Clock(10_000)
    model = Model(clock)
    for gap, units in calls:
        clock.advance(gap)
        model.consume("k", limit, cost=units)
    told = model.peek("k", limit, cost=cost).outcomes[0]
    history = model.read(model.place("k", limit), Rates.of(limit), clock.now)
    capacity = numbers[2] if algorithm == "token-bucket" else numbers[0]
    passes = [units for units in range(1, 8) if history.admits(units, clock.now)]
    assert passes == list(range(1, told.remaining + 1))
    later = range(clock.now, clock.now + 200)
    if cost <= capacity:
        wait = next(now for now in later if history.admits(cost, now)) - clock.now
        assert round((told.retry_after or 0) * 1_000_000) == wait
    empty = next(now for now in later if not history.weight(now)) - clock.now
    assert round(told.reset_after * 1_000_000) == empty


@pytest.mark.parametrize(
    ("units", "period", "tick"),
    [
        (1, 86_400_000_000, 1),
        (1_000_000, 86_400_000_000, 10),
        (2**53 - 1, 1, 1),
        (2**26, 2**27, 2),
        (10**9, 3_650 * 86_400_000_000, 35_040_000),
    ],
)
def test_a_tick_is_the_least_divisor_that_keeps_products_exact(units, period, tick):
    assert coarseness(units, period) == tick
