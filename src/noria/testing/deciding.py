"""The contract, first part: single decisions, and what they say (C1 to C8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from noria.model.errors import UsageError
from noria.testing.clock import Clock
from noria.testing.driver import says
from noria.testing.model import Rates
from noria.testing.promises import ALGORITHMS, lookback, must, must_be_bounded, must_raise
from noria.testing.workbench import Workbench, a_limit, a_trace, call_of, each, seen, tiny

if TYPE_CHECKING:
    from noria.model.limit import Limit

SECOND = 1_000_000
WRONG_COSTS = (-1, -100, True, 1.0, 0.5, float("nan"), float("inf"), "1", None, 2**31 + 1, [1])


class Deciding(Workbench):
    """C1 to C8."""

    # C1 Safety bounds

    def test_no_span_of_time_admits_more_than_the_bound(self) -> None:
        """C1: what is admitted in any span of time stays within the algorithm's bound."""

        def check(limit: Limit, calls: list[tuple[int, int]]) -> None:
            clock = Clock()
            admitted: list[tuple[int, int]] = []
            with self.limiter(clock) as driver:
                for gap, cost in calls:
                    clock.advance(gap)
                    if driver.consume("k", limit, cost=cost):
                        admitted.append((clock.now, cost))
            must_be_bounded(limit, admitted)

        limits = st.builds(
            tiny,
            st.sampled_from(ALGORITHMS),
            st.integers(1, 5),
            st.integers(1, 20),
            st.integers(1, 7),
        )
        calls = st.lists(
            st.tuples(st.integers(0, 6), st.sampled_from([1, 1, 1, 2, 3])), max_size=40
        )
        self.explore(check, limit=limits, calls=calls)

    def test_a_bucket_gives_all_that_its_rate_pours(self) -> None:
        """C1, from below: asked often enough never to be full, a bucket gives B + d * N / W - 1."""
        for count, period, burst, gap in (
            (30, 60 * SECOND, 30, SECOND),
            (3, SECOND, 3, 70_001),
            (7, 600 * SECOND, 7, 17 * SECOND),
            (1_000, SECOND, 1, 1_000),
            (7, 11, 3, 1),
        ):
            limit = tiny("token-bucket", count, period, burst)
            clock = Clock()
            begin = clock.now
            given = 0
            with self.limiter(clock) as driver:
                while clock.now - begin < 120 * gap:
                    asked = 0
                    while asked < 50 and driver.consume("k", limit):
                        asked += 1
                    given += asked
                    clock.advance(gap)
            poured = (119 * gap) * count / period
            must(
                given > burst + poured - 1,
                "C1: a bucket loses nothing of what its rate pours in",
                limit=limit,
                given=given,
                burst=burst,
                poured=poured,
            )

    # C2 Liveness

    def test_full_capacity_is_back_after_the_lookback(self) -> None:
        """C2: after a quiet of W (sliding window 2W, bucket B * W / N) all is there."""

        def check(limit: Limit, offset: float, retries: int) -> None:
            clock = Clock()
            rates = Rates.of(limit)
            clock.advance(int(offset * rates.window) * rates.tick)
            with self.limiter(clock) as driver:
                whole = rates.capacity
                must(
                    driver.consume("k", limit, cost=whole),
                    "C2: an unused key has its capacity",
                    limit=limit,
                )
                back = lookback(limit) // rates.tick
                for part in range(retries, 0, -1):
                    clock.advance(back // (part + 1) * rates.tick)
                    back -= back // (part + 1)
                    if driver.consume("k", limit, cost=whole):
                        back = lookback(limit) // rates.tick
                clock.advance(back * rates.tick)
                last = driver.consume("k", limit, cost=whole)
                must(
                    last,
                    "C2: after the look-back the whole capacity is there",
                    limit=limit,
                    says=says(last),
                )

        self.explore(check, limit=a_limit(), offset=st.floats(0, 2), retries=st.integers(0, 3))

    def test_a_full_burst_is_back_after_exactly_one_period(self) -> None:
        """C2: a bucket of burst N is full after W, and not a tick before, whatever N / W is."""
        for count, period in (
            (3, SECOND),
            (7, 600 * SECOND),
            (30, 60 * SECOND),
            (7, 10),
            (999, 1_000),
        ):
            limit = tiny("token-bucket", count, period)
            clock = Clock()
            with self.limiter(clock) as driver:
                driver.consume("k", limit, cost=count)
                clock.advance(period - 1)
                early = seen(driver, "k", limit, cost=count)
                clock.advance(1)
                full = seen(driver, "k", limit, cost=count)
                must(
                    full.allowed and not early.allowed,
                    "C2: a full burst is back after exactly one period",
                    limit=limit,
                    early=early,
                    full=full,
                )

    # C3 Retry-after

    def test_the_same_call_passes_at_retry_after_and_not_a_tick_earlier(self) -> None:
        """C3: `retry_after` is enough, and the least that is."""

        def check(limit: Limit, trace: list[tuple[float, float]], share: float) -> None:
            clock = Clock()
            rates = Rates.of(limit)
            with self.limiter(clock) as driver:
                for gap, size in trace:
                    time, cost = call_of(limit, gap, size)
                    clock.advance(time)
                    driver.consume("k", limit, cost=cost)
                cost = max(1, min(round(share * rates.capacity), rates.capacity))
                for _ in range(8):
                    denied = says(driver.consume("k", limit, cost=cost))
                    if not denied.allowed:
                        break
                else:
                    return
                retry = denied.retry_after or 0
                facts = {"limit": limit, "cost": cost, "denied": denied}
                must(0 < retry <= lookback(limit), "C3: a denial says when to come back", **facts)
                clock.advance(retry - rates.tick)
                early = says(driver.consume("k", limit, cost=cost))
                must(not early.allowed, "C3: one tick before `retry_after` is too early", **facts)
                clock.advance(rates.tick)
                late = says(driver.consume("k", limit, cost=cost))
                must(late.allowed, "C3: the same call passes at `retry_after`", **facts, late=late)

        self.explore(check, limit=a_limit(), trace=a_trace(), share=st.floats(0, 1))

    def test_a_cost_above_capacity_never_passes_and_takes_nothing(self) -> None:
        """C3: a cost that can never pass says so, and takes nothing."""
        for limit in [*each(3, 10), tiny("token-bucket", 10, 10, 3), *each(0, 10)]:
            clock = Clock()
            with self.limiter(clock) as driver:
                capacity = Rates.of(limit).capacity
                for _ in range(3):
                    denied = says(driver.consume("k", limit, cost=capacity + 1))
                    must(
                        (denied.allowed, denied.retry_after, denied.reason)
                        == (False, None, "never"),
                        "C3: a cost above capacity is denied for ever",
                        limit=limit,
                        denied=denied,
                    )
                    clock.advance(25)
                if capacity:
                    must(
                        driver.consume("k", limit, cost=capacity),
                        "C4: and it takes nothing",
                        limit=limit,
                    )

    # C4 Denials are free

    def test_denied_calls_change_nothing(self) -> None:
        """C4: without its denied calls a history goes the same way."""

        def check(limit: Limit, trace: list[tuple[float, float]]) -> None:
            clock = Clock()
            with self.twins(clock) as (all_calls, admitted):
                for gap, size in trace:
                    time, cost = call_of(limit, gap, size)
                    clock.advance(time)
                    one = says(all_calls.consume("k", limit, cost=cost))
                    if one.allowed:
                        other = says(admitted.consume("k", limit, cost=cost))
                    else:
                        one = seen(all_calls, "k", limit)
                        other = seen(admitted, "k", limit)
                    must(
                        one == other,
                        "C4: a denied call changes nothing",
                        limit=limit,
                        cost=cost,
                        with_denials=one,
                        without=other,
                    )

        self.explore(check, limit=a_limit(), trace=a_trace(20))

    # C5 Peek

    def test_a_peek_says_what_a_call_would_and_changes_nothing(self) -> None:
        """C5: `allowed` and `retry_after` are those of a call now; looking leaves no trace."""

        def check(limit: Limit, trace: list[tuple[float, float]]) -> None:
            clock = Clock()
            with self.twins(clock) as (looking, blind):
                for gap, size in trace:
                    time, cost = call_of(limit, gap, size)
                    clock.advance(time)
                    look = seen(looking, "k", limit, cost=cost)
                    one = says(looking.consume("k", limit, cost=cost))
                    other = says(blind.consume("k", limit, cost=cost))
                    facts = {"limit": limit, "cost": cost, "look": look}
                    must(one == other, "C5: looking changes nothing", **facts, one=one, other=other)
                    must(
                        (look.allowed, look.retry_after) == (one.allowed, one.retry_after),
                        "C5: a peek says what a call would",
                        **facts,
                        call=one,
                    )

        self.explore(check, limit=a_limit(0), trace=a_trace(20))

    # C6 Remaining

    def test_remaining_is_what_passes_now(self) -> None:
        """C6: c passes if and only if it remains, and lowers it by c; it never just falls."""

        def check(limit: Limit, trace: list[tuple[float, float]]) -> None:
            clock = Clock()
            capacity = Rates.of(limit).capacity
            left = capacity
            with self.limiter(clock) as driver:
                for gap, size in trace:
                    time, cost = call_of(limit, gap, size)
                    clock.advance(time)
                    before = seen(driver, "k", limit).remaining or 0
                    facts = {"limit": limit, "cost": cost, "remaining": before}
                    must(
                        left <= before <= capacity,
                        "C6: `remaining` does not fall by waiting",
                        **facts,
                        was=left,
                    )
                    must(
                        not before or seen(driver, "k", limit, cost=before).allowed,
                        "C6: what remains passes",
                        **facts,
                    )
                    must(
                        not seen(driver, "k", limit, cost=before + 1).allowed,
                        "C6: one unit more than remains does not pass",
                        **facts,
                    )
                    after = says(driver.consume("k", limit, cost=cost))
                    left = after.remaining or 0
                    must(
                        after.allowed == (before >= cost),
                        "C6: a cost passes if and only if it remains",
                        **facts,
                    )
                    must(
                        left == before - cost * after.allowed,
                        "C6: a call lowers `remaining` by its cost",
                        **facts,
                        after=left,
                    )

        self.explore(check, limit=a_limit(0), trace=a_trace(20))

    # C7 Reset

    def test_a_fixed_window_ends_at_one_moment_for_everybody(self) -> None:
        """C7: a window's end is one constant, on the grid of the epoch; all rolls over at once."""
        limit = tiny("fixed-window", 3, 20)
        clock = Clock()
        clock.now -= clock.now % 20
        begin = clock.now
        with self.limiter(clock) as driver:
            for at in (0, 1, 7, 8, 12, 19):
                clock.now = begin + at
                answer = says(driver.consume("k", limit))
                outcome = answer.outcomes[0]
                ends = clock.now + (outcome.window_ends_after or 0)
                must(ends == begin + 20, "C7: a window's end does not move", at=at, answer=answer)
                must(answer.allowed == (at < 8), "C7: a window admits N", at=at)
                must(
                    clock.now + outcome.reset_after == begin + 20,
                    "C7: `reset_after` is the window's end",
                    at=at,
                    answer=answer,
                )
                must(
                    answer.allowed or answer.retry_after == 20 - at,
                    "C7: and so is `retry_after`",
                    at=at,
                    answer=answer,
                )
            clock.now = begin + 20
            answer = says(driver.consume("k", limit))
            must(
                answer.allowed
                and answer.remaining == 2
                and answer.outcomes[0].window_ends_after == 20,
                "C7: count and window roll over in one step",
                answer=answer,
            )

    # C8 Cost

    def test_costs_at_one_moment_add_up(self) -> None:
        """C8: at one tick a call of a and one of b leave what one of a + b leaves."""

        def check(
            limit: Limit, trace: list[tuple[float, float]], parts: list[int], later: float
        ) -> None:
            clock = Clock()
            with self.twins(clock) as (apart, together):
                for gap, size in trace:
                    time, cost = call_of(limit, gap, size)
                    clock.advance(time)
                    apart.consume("k", limit, cost=cost)
                    together.consume("k", limit, cost=cost)
                if not seen(together, "k", limit, cost=sum(parts)).allowed:
                    return
                ones = [says(apart.consume("k", limit, cost=cost)) for cost in parts]
                both = says(together.consume("k", limit, cost=sum(parts)))
                must(
                    ones[-1] == both,
                    "C8: costs at one tick add up",
                    limit=limit,
                    parts=parts,
                    apart=ones,
                    both=both,
                )
                clock.advance(call_of(limit, later, 1)[0])
                one, other = seen(apart, "k", limit), seen(together, "k", limit)
                must(
                    one == other,
                    "C8: and still do later",
                    limit=limit,
                    parts=parts,
                    apart=one,
                    both=other,
                )

        self.explore(
            check,
            limit=a_limit(2),
            trace=a_trace(3),
            parts=st.lists(st.integers(1, 2), min_size=2, max_size=3),
            later=st.floats(0, 2),
        )

    def test_a_cost_of_nothing_looks(self) -> None:
        """C8: cost 0 passes even where nothing else does, and charges nothing."""
        for limit in [*each(2, 10), *each(0, 10)]:
            clock = Clock()
            with self.limiter(clock) as driver:
                driver.consume("k", limit, cost=2)
                before = seen(driver, "k", limit)
                answer = says(driver.consume("k", limit, cost=0))
                must(
                    answer == before and answer.allowed,
                    "C8: a cost of 0 looks",
                    limit=limit,
                    answer=answer,
                )
                must(
                    not driver.refund(driver.consume("k", limit, cost=0)),
                    "C8: and there is nothing to give back",
                )

    def test_a_wrong_cost_is_an_error_and_changes_nothing(self) -> None:
        """C8: only integers from 0 to 2**31 are costs; anything else is refused before any I/O."""
        for limit in each(3, 10):
            clock = Clock()
            with self.limiter(clock) as driver:
                driver.consume("k", limit)
                before = seen(driver, "k", limit)
                for cost in WRONG_COSTS:
                    must_raise(
                        UsageError,
                        lambda: driver.consume("k", limit, cost=cost),
                        f"C8: cost {cost!r} is an error",
                    )
                must_raise(
                    UsageError,
                    lambda: driver.consume_many([("k", limit, -1)]),
                    "C8: cost -1 is an error",
                )
                must(
                    seen(driver, "k", limit) == before,
                    "C8: a wrong cost changes nothing",
                    limit=limit,
                )
