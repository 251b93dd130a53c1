"""The contract, third part: several keys, several limits, several callers at once."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from noria.model.errors import UsageError
from noria.testing.clock import Clock
from noria.testing.crowd import Call, Calls, at_once, has_an_order, in_processes
from noria.testing.driver import says
from noria.testing.promises import ALGORITHMS, must, must_raise
from noria.testing.workbench import Workbench, a_trace, call_of, each, seen, tiny

if TYPE_CHECKING:
    from collections.abc import Callable

AWKWARD_KEYS = (
    "a", "A", "a:b", "a/b", "a|b", "a#b", "a=b", "a,b", "a b", " a", "a ", "a\n", "a\nb",
    "a\0", "a\0b", "\0",
    "{a}", "{}", "%61", "*", "a*", "noria", "noria:a", "None", "0", "1|a", "1:a",
    "é", "e\u0301", "\u00a0", "\ufeff", "مفتاح", "🔑", "🔑🔑", "\U0010ffff",
    "k" * 511, "k" * 512, "k" * 10_000,
    "k" * 9_999 + "l", "ß" * 300, "ß" * 301,
)  # fmt: skip
"""Keys that differ, and that careless joining, folding, cutting or normalising would mix up."""

WRONG_KEYS = ("", None, b"k", 5, True, ["k"], ("k",), "\ud800", "a\udfff")


class Company(Workbench):
    """C11, C12, C13, C21."""

    # C11 Isolation

    def test_keys_never_meet(self) -> None:
        """C11: whatever their characters and lengths, no two keys share a count."""
        for limit in (
            tiny("fixed-window", 2, 1_000_000),
            tiny("token-bucket", 2, 1_000_000, name="n"),
        ):
            clock = Clock()
            with self.limiter(clock) as driver:
                for at, key in enumerate(AWKWARD_KEYS):
                    left = seen(driver, key, limit).remaining
                    must(
                        left == 2,
                        "C11: a key is untouched by others",
                        key=key,
                        others=AWKWARD_KEYS[:at],
                    )
                    must(
                        driver.consume(key, limit, cost=2),
                        "C11: a key has its own capacity",
                        key=key,
                    )
                for key in AWKWARD_KEYS:
                    must(not driver.consume(key, limit), "C1: a key stays limited", key=key)
                driver.reset("a")
                free = [key for key in AWKWARD_KEYS if seen(driver, key, limit).remaining]
                must(free == ["a"], "C11: a reset touches its own key", free=free)

    def test_a_wrong_key_is_an_error(self) -> None:
        """C11: only text that is not empty and has a UTF-8 form is a key."""
        for limit in (tiny("fixed-window", 2, 1_000_000), "2/second"):
            clock = Clock()
            with self.limiter(clock) as driver:
                calls: list[Callable[[Any], object]] = [
                    lambda key: driver.consume(key, limit),
                    lambda key: driver.consume(key, limit, "9/hour"),
                    lambda key: driver.consume_many([("k", limit), (key, limit)]),
                    lambda key: driver.peek(key, limit),
                    driver.reset,
                ]
                for key in WRONG_KEYS:
                    for call in calls:
                        must_raise(
                            UsageError,
                            lambda: call(key),
                            f"C11: key {key!r} is an error",
                        )
                left = driver.peek("k", limit).remaining
                must(left == 2, "C11: a wrong key changes nothing", left=left)

    def test_a_key_and_a_limit_do_not_run_together(self) -> None:
        """C11: ("a/b", "c") is not ("a", "b/c"), with any character between."""
        for mark in "/:|,#=.-_+ \n\0{}~":
            places = [
                (f"a{mark}b", "c"),
                ("a", f"b{mark}c"),
                (f"a{mark}b{mark}c", "c"),
                ("a", "b"),
                ("b", "a"),
            ]
            clock = Clock()
            with self.limiter(clock) as driver:
                for key, name in places:
                    limit = tiny("fixed-window", 1, 1_000_000, name=name)
                    must(
                        driver.consume(key, limit),
                        "C11: key and name are kept apart",
                        key=key,
                        name=name,
                        mark=mark,
                    )

    def test_different_limits_have_different_states(self) -> None:
        """C11: algorithm, numbers, unit, name and shadow tell limits apart."""
        limits = [
            *each(1, 11_000_000),
            *each(11, 1_000_000),
            *each(1, 1_000_000),
            *each(1, 1_000_000, name="1"),
            *each(1, 1_000_000, name="#1"),
            *each(1, 1_000_000, unit="1"),
            *each(1, 1_000_000, shadow=True),
            tiny("token-bucket", 1, 1_000_000, 11),
            tiny("token-bucket", 11, 1_000_000, 1),
        ]
        clock = Clock()
        with self.limiter(clock) as driver:
            for limit in limits:
                capacity = limit.burst or limit.limit
                left = seen(driver, "k", limit).remaining if not limit.shadow else capacity
                must(left == capacity, "C11: a limit's state is its own", limit=limit, left=left)
                driver.consume("k", limit, cost=capacity)

    # C12 Several limits at once

    def test_all_limits_are_charged_or_none(self) -> None:
        """C12: a denial by one leaves the others untouched, wherever it stands in the call."""
        for algorithm in ALGORITHMS:
            tight = tiny(algorithm, 1, 20, name="tight")
            wide = [tiny(name, 9, 50, name=f"wide {name}") for name in ALGORITHMS]
            for position in range(len(wide) + 1):
                clock = Clock()
                limits = [*wide[:position], tight, *wide[position:]]
                with self.limiter(clock) as driver:
                    must(
                        driver.consume("k", *limits),
                        "C12: a call that fits all passes",
                        limits=limits,
                    )
                    before = [seen(driver, "k", limit) for limit in limits]
                    must(
                        [one.remaining for one in before if one.limit == 9] == [8] * 4,
                        "C12: and is charged to all",
                        before=before,
                    )
                    denied = driver.consume("k", *limits)
                    must(not denied, "C12: one limit that refuses is enough", limits=limits)
                    driver.consume_many([("k", limit, 2) for limit in reversed(limits)])
                    after = [seen(driver, "k", limit) for limit in limits]
                    must(
                        before == after,
                        "C12: a refusal charges none of them",
                        limits=limits,
                        before=before,
                        after=after,
                    )
                    must(not driver.refund(denied), "C9: and leaves nothing to give back")

    def test_several_keys_are_charged_together(self) -> None:
        """C12: user and tenant: a full tenant costs the user nothing, in any order."""
        user, tenant = (
            tiny("fixed-window", 4, 1_000_000, name="user"),
            tiny("sliding-window", 4, 1_000_000, name="tenant"),
        )
        for turn in (1, -1):
            clock = Clock()
            with self.limiter(clock) as driver:

                def call(who: str, where: str) -> bool:
                    return bool(driver.consume_many([(who, user), (where, tenant)][::turn]))

                passed = [call("u1", "acme") for _ in range(4)]
                passed += [call("u2", "acme") for _ in range(2)]
                passed += [call("u2", "other") for _ in range(5)]
                must(
                    passed == [True] * 4 + [False] * 2 + [True] * 4 + [False],
                    "C12: all keys are charged or none",
                    order=turn,
                    passed=passed,
                )

    def test_a_decision_is_the_strictest_of_its_limits(self) -> None:
        """C12: allowed is AND, `retry_after` the longest, `remaining` the least, in any order."""

        def check(
            numbers: list[tuple[str, int, int]], trace: list[tuple[float, float]], order: int
        ) -> None:
            clock = Clock()
            limits = [
                tiny(algorithm, limit, period, name=str(at))
                for at, (algorithm, limit, period) in enumerate(numbers)
            ]
            turned = list(permutations(limits))[order % 6]
            with self.twins(clock) as (driver, other):
                for gap, size in trace:
                    time, cost = call_of(limits[0], gap, size)
                    clock.advance(time)
                    alone = [seen(driver, "k", limit, cost=cost) for limit in limits]
                    answer = says(driver.consume("k", *limits, cost=cost))
                    facts = {"limits": limits, "cost": cost, "alone": alone, "together": answer}
                    must(
                        answer.allowed == all(one.allowed for one in alone),
                        "C12: all must allow",
                        **facts,
                    )
                    if answer.allowed:
                        left = min(one.remaining for one in answer.outcomes)
                        must(answer.remaining == left, "C12: the least remaining speaks", **facts)
                    else:
                        waits = [one.retry_after for one in alone if not one.allowed]
                        longest = (
                            None
                            if None in waits
                            else max(wait for wait in waits if wait is not None)
                        )
                        must(answer.retry_after == longest, "C12: the longest wait speaks", **facts)
                    same = says(other.consume("k", *turned, cost=cost))
                    must(
                        (same.allowed, same.retry_after, sorted(same.outcomes, key=str))
                        == (answer.allowed, answer.retry_after, sorted(answer.outcomes, key=str)),
                        "C12: order does not matter",
                        **facts,
                        turned=same,
                    )

        one = st.tuples(st.sampled_from(ALGORITHMS), st.integers(1, 5), st.integers(1, 20))
        self.explore(
            check,
            numbers=st.lists(one, min_size=3, max_size=3),
            trace=a_trace(10),
            order=st.integers(0, 5),
        )

    def test_a_shadow_limit_counts_and_never_denies(self) -> None:
        """C12: charged when the real ones pass and it fits; never speaks for the decision."""
        for algorithm in ALGORITHMS:
            real = tiny("fixed-window", 3, 20, name="real")
            shadow = tiny(algorithm, 2, 20, name="shadow", shadow=True)
            clock = Clock()
            clock.now -= clock.now % 20
            with self.limiter(clock) as driver:
                answers = [says(driver.consume("k", shadow, real)) for _ in range(4)]
                must(
                    [one.allowed for one in answers] == [True, True, True, False],
                    "C12: a shadow never denies",
                    answers=answers,
                )
                must(
                    [one.remaining for one in answers] == [2, 1, 0, 0],
                    "C12: nor speaks",
                    answers=answers,
                )
                inside = [(one.outcomes[0].allowed, one.outcomes[0].remaining) for one in answers]
                must(
                    inside == [(True, 1), (True, 0), (False, 0), (False, 0)],
                    "C12: but it counts",
                    inside=inside,
                )
                alone = says(driver.consume("k", shadow))
                must(
                    alone.allowed and alone.remaining is None,
                    "C12: a shadow alone lets pass",
                    alone=alone,
                )

    def test_a_limit_given_twice_is_charged_twice_or_denied(self) -> None:
        """C12: its costs add up; if the sum does not fit, nothing is charged."""
        for limit in each(3, 20):
            clock = Clock()
            with self.limiter(clock) as driver:
                must(driver.consume("k", limit, limit), "C12: twice fits", limit=limit)
                must(
                    seen(driver, "k", limit).remaining == 1,
                    "C12: and is charged twice",
                    limit=limit,
                )
                must(not driver.consume("k", limit, limit), "C12: once is not enough", limit=limit)
                must(
                    seen(driver, "k", limit).remaining == 1,
                    "C12: a refusal charges nothing",
                    limit=limit,
                )

    # C13 Callers at once

    def test_callers_at_once_are_admitted_exactly_to_capacity(self) -> None:
        """C13: with the clock frozen, P callers of T units in all get min(T, capacity)."""
        for limit in each(21, 60_000_000):
            for calls in (2, 8):
                clock = Clock()
                with self.limiter(clock) as driver:
                    passed = sum(map(sum, at_once(driver, [Calls("k", limit, [1] * calls)] * 8)))
                    must(
                        passed == min(8 * calls, 21),
                        "C13: callers at once get exactly the capacity",
                        limit=limit,
                        callers=8,
                        calls=calls,
                        passed=passed,
                    )

    def test_calls_at_once_have_an_order(self) -> None:
        """C13: some order of the calls, true to who was before whom, explains every answer."""
        for limit in each(9, 60_000_000):
            for costs in ([1, 2, 3, 1, 0, 2], [4, 1, 1, 4, 1, 1]):
                clock = Clock()
                with self.limiter(clock) as driver:
                    asked = [Calls("k", limit, costs[at:] + costs[:at]) for at in range(4)]
                    history: list[Call] = []
                    at_once(driver, asked, history)
                    must(
                        has_an_order(history, 9),
                        "C13: no order of these calls explains their answers",
                        limit=limit,
                        history=history,
                    )

    def test_forked_processes_share_one_limit(self) -> None:
        """C13: processes that inherit a limiter are limited together, to the unit."""
        if not self.across_processes:
            return
        for limit in each(50, 60_000_000):
            clock = Clock()
            with self.limiter(clock) as driver:
                passed = int(driver.consume("k", limit).allowed)
                passed += sum(
                    in_processes(
                        lambda: sum(map(sum, at_once(driver, [Calls("k", limit, [1] * 20)] * 2))), 4
                    )
                )
                passed += int(driver.consume("k", limit).allowed)
                must(
                    passed == 50, "C13: processes are limited together", limit=limit, passed=passed
                )

    # C21 Bounded resources

    def test_looking_and_refusing_keep_nothing(self) -> None:
        """C21: a peek, a cost of 0 and a refusal leave no record behind."""
        for limit in each(5, 60_000_000):
            clock = Clock()
            with self.limiter(clock) as driver:
                driver.consume("k", limit)
                before = (driver.stats() or {}).get("entries", 0)
                for at in range(30):
                    driver.peek(f"peeked {at}", limit)
                    driver.consume(f"asked {at}", limit, cost=0)
                    driver.consume(f"refused {at}", limit, cost=6)
                    must(
                        driver.reset(f"refused {at}") == 0,
                        "C21: a refusal leaves nothing to reset",
                        limit=limit,
                    )
                after = (driver.stats() or {}).get("entries", 0)
                must(
                    after <= before + 2,
                    "C21: looking and refusing keep nothing",
                    limit=limit,
                    before=before,
                    after=after,
                )

    def test_a_flood_of_keys_frees_nobody(self) -> None:
        """C21: a drained key stays drained whatever else is touched, used once or often."""
        limit = tiny("fixed-window", 5, 3_600_000_000)
        clock = Clock()
        clock.now -= clock.now % 3_600_000_000
        with self.limiter(clock) as driver:
            for _ in range(6):
                driver.consume("drained", limit)
            for at in range(1_100):
                driver.consume(f"other {at}", limit)
                clock.advance(10)
            denied = says(driver.consume("drained", limit))
            must(
                not denied.allowed and denied.remaining == 0,
                "C21: a flood of keys frees nobody",
                says=denied,
            )

    def test_what_ran_out_makes_room(self) -> None:
        """C21: keys seen once do not pile up: once they have run out, traffic takes them away."""
        limit = tiny("fixed-window", 5, 1_000_000)
        clock = Clock()
        most = 0
        with self.limiter(clock) as driver:
            for _ in range(10):
                for at in range(100):
                    driver.consume(f"{clock.now} {at}", limit)
                most = max(most, (driver.stats() or {}).get("entries", 0))
                clock.advance(4_000_000)
        must(most <= 600, "C21: what has run out makes room", entries=most)
