"""The contract, second part: what is given back, forgotten or altered, and odd clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from noria.testing.clock import Clock
from noria.testing.driver import Driver, says
from noria.testing.model import Rates
from noria.testing.promises import ALGORITHMS, lookback, must, must_be_bounded
from noria.testing.workbench import Workbench, a_limit, a_trace, call_of, each, seen, tiny

if TYPE_CHECKING:
    from noria.model.limit import Limit


class Changing(Workbench):
    """C9, C10, C15, C19, and resets."""

    # C9 Refund

    def test_a_refund_undoes_its_charge(self) -> None:
        """C9: charge and refund leave what no charge would have left, at every later moment."""

        def check(
            limit: Limit, trace: list[tuple[float, float]], delay: float, later: list[float]
        ) -> None:
            clock = Clock()
            with self.twins(clock) as (refunded, spared):
                for gap, size in trace:
                    time, cost = call_of(limit, gap, size)
                    clock.advance(time)
                    refunded.consume("k", limit, cost=cost)
                    spared.consume("k", limit, cost=cost)
                charged = refunded.consume("k", limit)
                if not charged:
                    return
                clock.advance(call_of(limit, delay, 1)[0])
                lives = says(charged).reset_after or 0
                done = refunded.refund(charged)
                # Waits are whole ticks, from the beginning of the one it was charged in.
                began = says(charged).decided_at // limit.rule.tick * limit.rule.tick
                must(
                    done or clock.now >= began + min(lives, _period(limit) + 1),
                    "C9: a charge that weighs can be given back",
                    limit=limit,
                )
                too_much = Rates.of(limit).capacity + 1
                for gap in (0.0, *later):
                    clock.advance(call_of(limit, gap, 1)[0])
                    for ask in (Driver.peek, Driver.consume):
                        one = says(ask(refunded, "k", limit, cost=too_much))
                        other = says(ask(spared, "k", limit, cost=too_much))
                        must(
                            not done or one == other,
                            "C9: a refund undoes its charge",
                            limit=limit,
                            refunded=one,
                            spared=other,
                        )

        self.explore(
            check,
            limit=a_limit(),
            trace=a_trace(4),
            delay=st.floats(0, 0.9),
            later=st.lists(st.floats(0, 0.9), max_size=3),
        )

    def test_a_refund_works_once(self) -> None:
        """C9: a second refund, and one of a denied call, are nothing; units are never minted."""
        for limit in each(5, 20):
            clock = Clock()
            with self.limiter(clock) as driver:
                charged = [driver.consume("k", limit) for _ in range(3)]
                denied = driver.consume("k", limit, cost=5)
                must(not denied, "C1: a limit limits", limit=limit)
                for one in charged[:2]:
                    must(driver.refund(one), "C9: a charge can be given back", limit=limit)
                    left = seen(driver, "k", limit)
                    must(not driver.refund(one), "C9: but once", limit=limit)
                    must(
                        not driver.refund(denied),
                        "C9: a denied call has nothing to give back",
                        limit=limit,
                    )
                    must(
                        seen(driver, "k", limit) == left,
                        "C9: a refund too many changes nothing",
                        limit=limit,
                    )
                must(
                    seen(driver, "k", limit).remaining == 4,
                    "C9: refunds add up to no more than charges",
                    limit=limit,
                    says=seen(driver, "k", limit),
                )

    def test_a_refund_never_passes_capacity_nor_makes_a_key(self) -> None:
        """C9: clipped at capacity; nothing to give back once all has run out or was reset."""
        for limit in each(5, 20):
            clock = Clock()
            with self.limiter(clock) as driver:
                first = driver.consume("k", limit, cost=4)
                clock.advance(lookback(limit))
                fresh = seen(driver, "k", limit)
                must(fresh.remaining == 5, "C2: all is back", limit=limit)
                must(
                    not driver.refund(first),
                    "C9: what has run out cannot be given back",
                    limit=limit,
                )
                must(seen(driver, "k", limit) == fresh, "C9: never beyond capacity", limit=limit)
                second = driver.consume("k", limit, cost=2)
                must(not driver.refund(first), "C9: nor out of a later charge", limit=limit)
                must(
                    seen(driver, "k", limit).remaining == 3,
                    "C9: nor out of a later charge",
                    limit=limit,
                )
                driver.reset("k")
                must(not driver.refund(second), "C9: nor after a reset", limit=limit)
                must(driver.reset("k") == 0, "C9: a refund makes no key", limit=limit)

    def test_a_charge_that_ran_out_is_not_refunded_from_the_next(self) -> None:
        """C9, C15: a bucket full again has forgotten its charges, record or no record."""
        limit = tiny("token-bucket", 10, 20)
        clock = Clock()
        with self.limiter(clock) as driver:
            first = driver.consume("k", limit)
            clock.advance(5)
            driver.consume("k", limit)
            must(not driver.refund(first), "C9: a charge that has run out cannot be given back")
            must(seen(driver, "k", limit).remaining == 9, "C9: not out of a later charge either")

    def test_many_refunds_are_told_apart(self) -> None:
        """C9: dozens of refunds of one key, in any order, and each of them once."""
        for limit in each(100, 1_000_000):
            clock = Clock()
            with self.limiter(clock) as driver:
                charged = [driver.consume("k", limit) for _ in range(60)]
                order = [*charged[1::2], *reversed(charged[::2])]
                done = [driver.refund(one) for one in order] + [
                    driver.refund(one) for one in charged
                ]
                must(
                    done == [True] * 60 + [False] * 60,
                    "C9: each charge is given back once",
                    limit=limit,
                    done=done,
                )
                must(seen(driver, "k", limit).remaining == 100, "C9: and all of it", limit=limit)

    # Reset

    def test_a_reset_forgets_everything(self) -> None:
        """A reset key is as new at once, the window before included, and its neighbour is not."""
        for limit in each(10, 20):
            clock = Clock()
            clock.now -= clock.now % 20 - 19
            with self.limiter(clock) as driver:
                for key in ("k", "other"):
                    driver.consume(key, limit, cost=10)
                clock.advance(1)
                before = seen(driver, "other", limit)
                driver.consume("k", limit)
                live = before.remaining != 10 or limit.algorithm == "fixed-window"
                must(
                    driver.reset("k", limit) == 1 and live,
                    "reset says how many states went",
                    limit=limit,
                )
                left = seen(driver, "k", limit)
                fresh = seen(driver, "new", limit)
                must(left == fresh, "a reset key is as new", limit=limit, says=left, fresh=fresh)
                must(
                    seen(driver, "other", limit) == before,
                    "C11: a reset touches its own key",
                    limit=limit,
                )
                must(driver.consume("k", limit, cost=10), "and has its whole capacity", limit=limit)
                must(
                    driver.reset("never used") == 0,
                    "nothing to reset where nothing was",
                    limit=limit,
                )

    def test_a_reset_can_name_limits(self) -> None:
        """Without limits all of the key's states go, with limits those."""
        limits = [tiny(name, 3, 20, name=name) for name in ALGORITHMS]
        clock = Clock()
        with self.limiter(clock) as driver:
            driver.consume("k", *limits)
            must(driver.reset("k", limits[0], limits[2]) == 2, "reset says how many states went")
            left = [seen(driver, "k", limit).remaining for limit in limits]
            must(left == [3, 2, 3, 2], "a reset forgets the limits it is given", left=left)
            must(driver.reset("k") == 2, "reset says how many states went")
            left = [seen(driver, "k", limit).remaining for limit in limits]
            must(left == [3] * 4, "a reset without limits forgets them all", left=left)

    # C10 Time backwards

    def test_a_clock_that_steps_back_frees_nothing(self) -> None:
        """C10: up to a period back, time stands still: nothing is freed, no wait grows by more."""
        for limit in each(4, 20):
            for step in (1, 7, 19, 20):
                clock = Clock()
                clock.now -= clock.now % 20 - 10
                with self.limiter(clock) as driver:
                    driver.consume("k", limit, cost=3)
                    before = seen(driver, "k", limit, cost=2)
                    clock.advance(-step)
                    after = seen(driver, "k", limit, cost=2)
                    facts = {"limit": limit, "step": step, "before": before, "after": after}
                    must(
                        after.remaining == before.remaining,
                        "C10: a clock that steps back frees nothing",
                        **facts,
                    )
                    must(
                        after.retry_after == (before.retry_after or 0) + step,
                        "C10: nobody waits longer than the step",
                        **facts,
                    )
                    must(driver.consume("k", limit), "C10: what was left is still there", **facts)
                    must(not driver.consume("k", limit), "C10: and no more", **facts)
                    clock.advance(step)
                    must(not driver.consume("k", limit), "C10: nor when the clock is back", **facts)

    def test_a_clock_far_behind_frees_nothing_and_locks_nobody_out(self) -> None:
        """C10: further back than a period, what was counted moves to now: kept, but no longer."""
        for limit in each(4, 20):
            for step in (21, 40, 3_600_000_000):
                clock = Clock()
                with self.limiter(clock) as driver:
                    driver.consume("k", limit, cost=4)
                    clock.advance(-step)
                    denied = says(driver.consume("k", limit, cost=4))
                    facts = {"limit": limit, "step": step, "denied": denied}
                    must(not denied.allowed, "C10: a clock that steps back frees nothing", **facts)
                    must(
                        0 < (denied.retry_after or 0) <= lookback(limit),
                        "C10: nobody is locked out for longer than the look-back",
                        **facts,
                    )
                    clock.advance(denied.retry_after or 0)
                    must(
                        driver.consume("k", limit, cost=4),
                        "C3: the same call passes at `retry_after`",
                        **facts,
                    )

    def test_any_order_of_timestamps_stays_within_the_bound(self) -> None:
        """C10: on a clock that jitters, what is admitted keeps the bound."""

        def check(algorithm: str, steps: list[tuple[int, int, int]]) -> None:
            limit = tiny(algorithm, 3, 20, 4)
            clock = Clock()
            time = clock.now
            admitted: list[tuple[int, int]] = []
            with self.limiter(clock) as driver:
                for step, back, cost in steps:
                    time += step
                    clock.now = time - back
                    if driver.consume("k", limit, cost=cost):
                        newest = admitted[-1][0] if admitted else 0
                        admitted.append((max(clock.now, newest), cost))
            must_be_bounded(limit, admitted)

        step = st.tuples(st.integers(0, 5), st.integers(0, 10), st.sampled_from([1, 1, 2]))
        self.explore(
            check, algorithm=st.sampled_from(ALGORITHMS), steps=st.lists(step, max_size=40)
        )

    def test_a_client_with_a_wrong_clock_is_limited_with_the_others(self) -> None:
        """C10: time is the store's: clients whose clocks are apart share one limit."""
        for limit in each(3, 10_000_000):
            clock = Clock()
            makes = self.make_clients(clock, [0, 30_000_000, -3_600_000_000])
            clients = [Driver(one) for one in makes]
            passed = 0
            for call in range(9):
                passed += bool(clients[call % 3].consume("k", limit))
                clock.advance(100_000)
            for client in clients:
                client.close()
            must(passed == 3, "C10: a client's clock does not matter", limit=limit, passed=passed)

    # C15 Expiry

    def test_what_has_run_out_equals_nothing(self) -> None:
        """C15: from `reset_after` on a key is as new; that it is thrown away shows in nothing."""

        def check(
            limit: Limit, trace: list[tuple[float, float]], later: list[tuple[float, float]]
        ) -> None:
            clock = Clock()
            with self.twins(clock) as (used, fresh):
                for gap, size in trace:
                    time, cost = call_of(limit, gap, size)
                    clock.advance(time)
                    used.consume("k", limit, cost=cost)
                clock.advance(seen(used, "k", limit).reset_after or 0)
                for gap, size in ((0.0, 0.6), *later):
                    time, cost = call_of(limit, gap, size)
                    clock.advance(time)
                    one = says(used.consume("k", limit, cost=cost))
                    other = says(fresh.consume("k", limit, cost=cost))
                    must(
                        one == other,
                        "C15: what has run out equals nothing",
                        limit=limit,
                        used=one,
                        fresh=other,
                    )

        self.explore(check, limit=a_limit(), trace=a_trace(6), later=a_trace(4))

    def test_reset_after_and_grows_after_are_exact(self) -> None:
        """No charge weighs after `reset_after`, more remains after `grows_after`; no sooner."""

        def check(limit: Limit, trace: list[tuple[float, float]]) -> None:
            clock = Clock()
            rates = Rates.of(limit)
            clock.now -= clock.now % rates.tick
            with self.limiter(clock) as driver:
                for gap, size in trace:
                    time, cost = call_of(limit, gap, size)
                    clock.advance(time)
                    driver.consume("k", limit, cost=cost)
                now = clock.now
                for name in ("grows_after", "reset_after"):
                    clock.now = now
                    here = seen(driver, "k", limit).outcomes[0]
                    after = getattr(here, name)
                    if not after:
                        must(
                            here.remaining == rates.capacity,
                            f"`{name}` is 0 only when all is there",
                            says=here,
                        )
                        continue
                    clock.advance(after - rates.tick)
                    early = seen(driver, "k", limit).outcomes[0]
                    clock.advance(rates.tick)
                    then = seen(driver, "k", limit).outcomes[0]
                    facts = {"limit": limit, "here": here, "early": early, "then": then}
                    if name == "grows_after":
                        must(
                            early.remaining == here.remaining < then.remaining,
                            "`remaining` grows in `grows_after`, not a tick earlier",
                            **facts,
                        )
                    else:
                        must(
                            early.reset_after > 0 == then.reset_after
                            and then.remaining == rates.capacity,
                            "no charge weighs after `reset_after`",
                            **facts,
                        )

        self.explore(check, limit=a_limit(), trace=a_trace(6))

    # C19 Reconfigure

    def test_a_named_limit_keeps_its_count_when_n_changes(self) -> None:
        """C19: lowered, it is used up and says so; raised again, what was used is still used."""
        for algorithm in ALGORITHMS:
            high = tiny(algorithm, 2_000, 86_400_000_000, name="plan")
            low = tiny(algorithm, 200, 86_400_000_000, name="plan")
            clock = Clock()
            with self.limiter(clock) as driver:
                driver.consume("k", high, cost=1_500)
                lowered = says(driver.consume("k", low))
                facts = {"limit": low, "says": lowered}
                must(
                    not lowered.allowed and lowered.remaining == 0,
                    "C19: a lowered limit is used up",
                    **facts,
                )
                must((lowered.retry_after or 0) > 0, "C19: and says when it no longer is", **facts)
                must(
                    (lowered.retry_after or 0) <= lookback(low), "C2: within the look-back", **facts
                )
                raised = says(driver.consume("k", high, cost=1))
                must(
                    raised.allowed and raised.remaining == 499,
                    "C19: raised, it goes on where it was",
                    says=raised,
                )

    def test_a_named_limit_keeps_its_count_when_the_period_changes(self) -> None:
        """C19: used up just now, it stays so under a shorter and under a longer period."""
        for algorithm in ALGORITHMS:
            for period in (1, 10, 19, 21, 40, 400):
                old, new = (tiny(algorithm, 5, one, name="plan") for one in (20, period))
                clock = Clock()
                with self.limiter(clock) as driver:
                    driver.consume("k", old, cost=5)
                    denied = says(driver.consume("k", new))
                    facts = {"old": old, "new": new, "denied": denied}
                    must(not denied.allowed, "C19: a new period does not start anew", **facts)
                    retry = denied.retry_after or 0
                    must(0 < retry <= lookback(new), "C19: and counts to its own end", **facts)
                    clock.advance(retry)
                    must(driver.consume("k", new), "C3: a call passes at `retry_after`", **facts)

    def test_a_change_of_limit_admits_no_more_than_the_larger(self) -> None:
        """C19: N or the period changes in mid-use: the bound of the larger limit holds."""

        def check(
            algorithm: str,
            numbers: list[tuple[int, int]],
            calls: list[tuple[int, int]],
            change: int,
        ) -> None:
            clock = Clock()
            limits = [tiny(algorithm, count, period, name="plan") for count, period in numbers]
            most = max(count for count, _ in numbers)
            shortest = min(period for _, period in numbers)
            admitted: list[tuple[int, int]] = []
            with self.limiter(clock) as driver:
                for at, (gap, cost) in enumerate(calls):
                    clock.advance(gap)
                    answer = says(driver.consume("k", limits[at >= change], cost=cost))
                    must(
                        (answer.remaining or 0) >= 0,
                        "C6: `remaining` is never negative",
                        answer=answer,
                    )
                    if answer.allowed:
                        admitted.append((clock.now, cost))
            if algorithm == "token-bucket":
                rates = [(count, period) for count, period in numbers]
                best = max(rates, key=lambda rate: rate[0] / rate[1])
                larger = tiny(algorithm, best[0], best[1], most)
                must_be_bounded(larger, admitted)
                return
            for at, (start, _) in enumerate(admitted):
                total = sum(units for time, units in admitted[at:] if time < start + shortest)
                # A change may end a fixed window early: it is one more edge.
                edges = {"sliding-window-log": 1, "sliding-window": 2, "fixed-window": 3}
                bound = edges[algorithm] * most
                must(
                    total <= bound,
                    "C19: the larger limit's bound holds across a change",
                    limits=limits,
                    change=change,
                    admitted=admitted,
                )

        self.explore(
            check,
            algorithm=st.sampled_from(ALGORITHMS),
            numbers=st.lists(
                st.tuples(st.integers(1, 5), st.integers(1, 20)), min_size=2, max_size=2
            ),
            calls=st.lists(
                st.tuples(st.integers(0, 6), st.sampled_from([1, 1, 2, 3])), max_size=30
            ),
            change=st.integers(0, 15),
        )


def _period(limit: Limit) -> int:
    return round(limit.period * 1_000_000)
