"""Faults that users of other limiters met in single decisions; none of them may happen here."""

import math
import random

import pytest

from noria import ConfigError, Limit, UsageError
from noria.testing.promises import ALGORITHMS

ALL = pytest.mark.parametrize("algorithm", ALGORITHMS)


def test_a_costly_call_in_a_log_leaves_as_a_whole(door):
    """T2"""
    limiter, limit = door(), Limit("5/minute", algorithm="sliding-window-log")
    assert limiter.consume("k", limit, cost=4)
    limiter.at(1)
    denied = limiter.consume("k", limit, cost=2)
    assert not denied
    assert denied.remaining == 1
    assert limiter.consume("k", limit)
    limiter.at(61)
    assert limiter.consume("k", limit, cost=4)


def test_the_oldest_call_in_the_way_says_when_to_retry(door):
    """T3: a call exactly one period old no longer counts."""
    limiter, limit = door(), Limit("2/minute", algorithm="sliding-window-log")
    for second in (0, 10):
        limiter.at(second)
        assert limiter.consume("k", limit)
    limiter.at(20)
    assert limiter.consume("k", limit).retry_after == 40
    assert limiter.consume("k", limit, cost=2).retry_after == 50
    limiter.at(60)
    assert limiter.consume("k", limit)
    assert not limiter.consume("k", limit)


@ALL
def test_waiting_as_told_is_enough(door, algorithm):
    """T4: after any traffic, in exact seconds and in a header's whole ones; a tick less is not."""
    limiter = door()
    chance = random.Random(algorithm)
    for number in range(200):
        count, period = chance.randint(1, 20), chance.choice([1, 7, 60, 3_600])
        limit = Limit(count, period, algorithm=algorithm, name=str(number))
        for _ in range(chance.randint(1, 15)):
            limiter.clock.advance(chance.randrange(period * 400_000))
            limiter.consume("k", limit, cost=chance.randint(1, count))
        cost = chance.randint(1, count)
        decision = limiter.consume("k", limit, cost=cost)
        while decision:
            decision = limiter.consume("k", limit, cost=cost)
        retry = round(decision.retry_after * 1_000_000)
        assert 0 < retry <= 2 * period * 1_000_000
        assert math.ceil(decision.retry_after) >= 1
        now = limiter.clock.now
        limiter.clock.now = now + math.ceil(decision.retry_after) * 1_000_000
        assert limiter.peek("k", limit, cost=cost)
        limiter.clock.now = now + retry - 1
        assert not limiter.consume("k", limit, cost=cost)
        limiter.clock.now = now + retry
        assert limiter.consume("k", limit, cost=cost)


@ALL
def test_a_namespace_changes_no_decision(door, algorithm):
    """T5: the same calls in two namespaces go the same way, and do not meet."""
    one, other = door(), door(namespace="another:one/")
    limit = Limit("3/10s", algorithm=algorithm)
    for second in (0, 1, 1, 2, 9, 11, 13, 25):
        one.at(second)
        answers = [limiter.consume("k", limit) for limiter in (one, other)]
        told = [answer.as_dict() | {"charge": None} for answer in answers]
        assert told[0] == told[1]
    assert one.reset("k") == 1
    assert other.peek("k", limit).remaining < 3


def test_a_reset_clears_the_window_before_too(door):
    """T8"""
    limiter, limit = door(), Limit("10/minute")
    limiter.clock.now -= limiter.clock.now % 60_000_000 - 59_000_000
    assert limiter.consume("k", limit, cost=10)
    limiter.clock.advance(2_000_000)
    assert limiter.peek("k", limit).remaining < 10
    assert limiter.reset("k", limit) == 1
    assert limiter.peek("k", limit).remaining == 10


def test_a_wait_is_told_in_fractions_of_a_second(door):
    """T9"""
    limiter, limit = door(), Limit("1/second", algorithm="token-bucket", burst=2)
    assert limiter.tries("k", limit, times=2) == [True, True]
    limiter.at(0.4)
    assert limiter.consume("k", limit).retry_after == pytest.approx(0.6, abs=1e-9)
    limiter.at(1)
    assert limiter.consume("k", limit)


def test_names_and_keys_are_limited_apart(door):
    """T10"""
    limiter = door()
    assert limiter.consume("k", Limit("1/second", name="one"))
    assert limiter.consume("k", Limit("1/second", name="other"))
    limit = Limit("1/second", name="policy")
    assert [bool(limiter.consume(key, limit)) for key in ("a", "b", "c")] == [True] * 3
    assert not limiter.consume("a", limit)


@ALL
def test_denied_retries_do_not_extend_the_block(door, algorithm):
    """T15"""
    limiter, limit = door(), Limit("1/hour", algorithm=algorithm)
    limiter.clock.now -= limiter.clock.now % 3_600_000_000
    begin = limiter.clock.now
    assert limiter.consume("k", limit)
    free = 7_200 if algorithm == "sliding-window" else 3_600
    for second in range(10, free, 10):
        limiter.clock.now = begin + second * 1_000_000
        assert not limiter.consume("k", limit)
    limiter.clock.now = begin + free * 1_000_000
    assert limiter.consume("k", limit)


@ALL
def test_a_limit_holds_to_the_end_of_its_window(door, algorithm):
    """T16: no default of a store cuts the memory of a long window short."""
    limiter, limit = door(), Limit("5/hour", algorithm=algorithm)
    limiter.clock.now -= limiter.clock.now % 3_600_000_000
    begin = limiter.clock.now
    assert all(limiter.tries("k", limit, times=5))
    bucket = algorithm == "token-bucket"
    for second in (301, 600, 3_000):
        limiter.clock.now = begin + second * 1_000_000
        assert limiter.consume("other", limit)
        assert limiter.peek("k", limit).remaining == (second // 720 if bucket else 0)


@ALL
def test_a_limit_may_be_lowered_while_it_is_used(door, algorithm):
    """T17"""
    limiter = door()
    high, low = (Limit(rate, algorithm=algorithm, name="plan") for rate in ("2000/day", "200/day"))
    assert limiter.consume("k", high, cost=1_500)
    denied = limiter.consume("k", low)
    assert not denied
    assert denied.remaining == 0
    longest = 2 * 86_400 if algorithm == "sliding-window" else 86_400
    assert 0 < denied.retry_after <= longest
    assert limiter.peek("k", high).remaining == 500


@pytest.mark.parametrize("turn", [1, -1], ids=["user first", "tenant first"])
def test_a_full_tenant_costs_the_user_nothing(door, turn):
    """T18"""
    limiter = door()
    user, tenant = Limit("4/hour", name="user"), Limit("4/hour", name="tenant")

    def call(who, where):
        return bool(limiter.consume_many([(who, user), (where, tenant)][::turn]))

    assert [call("u1", "acme") for _ in range(4)] == [True] * 4
    assert [call("u2", "acme") for _ in range(2)] == [False] * 2
    assert [call("u2", "other") for _ in range(5)] == [True] * 4 + [False]


def test_a_refused_limit_leaves_the_budget_of_the_others(door):
    """T18: of thirty calls one is served, and the wider budget is down by one."""
    limiter = door()
    narrow, wide = Limit("1/hour"), Limit("100/hour")
    assert sum(limiter.tries("k", wide, narrow, times=30)) == 1
    assert limiter.peek("k", wide).remaining == 99


def test_odd_rates_are_exact(door):
    """T19: nothing rounds to nothing, in either direction."""
    limiter = door()
    never = limiter.consume("k", Limit("0/second", algorithm="token-bucket"))
    assert (never.allowed, never.retry_after, never.reason) == (False, None, "never")
    slow = Limit("1/3650d", algorithm="token-bucket")
    assert limiter.tries("k", slow, times=2) == [True, False]
    assert limiter.consume("k", slow).retry_after == 3_650 * 86_400
    quick = Limit("1000000/second", algorithm="token-bucket", burst=1)
    assert limiter.tries("k", quick, times=2) == [True, False]
    assert limiter.consume("k", quick).retry_after == pytest.approx(1e-6)
    limiter.clock.advance(1)
    assert limiter.tries("k", quick, times=2) == [True, False]
    short = Limit("1000/second", algorithm="token-bucket", burst=10)
    assert sum(limiter.tries("k", short, times=200)) == 10


def test_a_negative_cost_mints_nothing(door):
    """X1"""
    limiter, limit = door(), Limit("10/minute")
    for cost in (-1, -100):
        with pytest.raises(UsageError, match=str(cost)):
            limiter.consume("k", limit, cost=cost)
    assert limiter.peek("k", limit).remaining == 10
    assert limiter.consume("k", limit, cost=0)
    assert limiter.reset("k") == 0


@ALL
def test_a_call_that_is_too_large_by_a_part_charges_nothing(door, algorithm):
    """X2"""
    limiter, limit = door(), Limit("10/minute", algorithm=algorithm)
    assert limiter.consume("k", limit, cost=8)
    assert not limiter.consume("k", limit, cost=5)
    assert limiter.tries("k", limit, times=3) == [True, True, False]


def test_a_refusal_that_opens_a_window_is_not_remembered(door):
    """X3: refused at the start of a window, half of the one before still weighs half-way."""
    limiter, limit = door(), Limit("10/4s")
    limiter.clock.now -= limiter.clock.now % 4_000_000
    assert limiter.consume("k", limit, cost=10)
    limiter.clock.advance(4_000_000)
    assert not limiter.consume("k", limit, cost=5)
    limiter.clock.advance(2_000_000)
    assert limiter.peek("k", limit).remaining == 5
    assert limiter.consume("k", limit, cost=5)


def test_a_bucket_that_is_asked_every_second_drifts_by_nothing(door):
    """X4: of 120 calls, one a second, 30 at 30 a minute and the first 30 at once: 89 pass."""
    limiter, limit = door(), Limit("30/minute", algorithm="token-bucket")
    passed = 0
    for second in range(120):
        limiter.at(second)
        passed += bool(limiter.consume("k", limit))
    assert passed == 89


def test_a_flood_of_other_keys_does_not_free_one(door):
    """X6"""
    limiter, limit = door(), Limit("5/minute")
    assert limiter.tries("victim", limit, times=6) == [True] * 5 + [False]
    for number in range(1_100):
        limiter.consume(f"other {number}", limit)
    assert not limiter.consume("victim", limit)


def test_another_algorithm_under_the_same_name_starts_clean(door):
    """X7"""
    limiter = door()
    for algorithm in ALGORITHMS:
        limit = Limit("2/minute", algorithm=algorithm, name="login")
        assert limiter.tries("k", limit, times=3) == [True, True, False]
    for algorithm in ALGORITHMS:
        assert not limiter.consume("k", Limit("2/minute", algorithm=algorithm, name="login"))


@pytest.mark.parametrize("rate", ["1 per fortnight", "5/2fortnight", "0 per 0 second", "10", ""])
def test_a_rate_that_is_not_understood_is_an_error_when_it_is_used(door, rate):
    """X9: and names the text; nothing is served unlimited."""
    limiter = door()
    with pytest.raises(ConfigError, match="rate") as caught:
        limiter.consume("k", rate)
    assert repr(rate) in str(caught.value)


def test_an_empty_key_is_an_error_and_no_free_pass(door):
    """X9"""
    with pytest.raises(UsageError, match="key ''"):
        door().consume("", "1/minute")


def test_keys_are_kept_apart_to_the_last_character(door):
    """X10"""
    limiter, limit = door(), Limit("1/minute")
    pairs = [
        ("a/b", "c"),
        ("a", "b/c"),
        ("a", "b"),
        ("ab", ""),
        ("a:", ":b"),
        ("a\n", "b"),
        ("a", "\nb"),
    ]
    keys = [f"{len(one)}:{one}{other}" for one, other in pairs]
    keys += ["a\0b", "a\0", "\0a", "🔑", "🗝", "k" * 10_000, "k" * 10_001, "{a}", "a", "a ", "A"]
    assert [key for key in keys if not limiter.consume(key, limit)] == []
    assert [key for key in keys if limiter.consume(key, limit)] == []


def test_what_is_left_of_a_window_is_exact(door):
    """X11"""
    limiter, limit = door(), Limit("1/3s", algorithm="fixed-window")
    limiter.clock.now -= limiter.clock.now % 3_000_000
    assert limiter.consume("k", limit)
    limiter.clock.advance(600_000)
    denied = limiter.consume("k", limit)
    assert denied.retry_after == pytest.approx(2.4, abs=1e-9)
    assert denied.reset_after == pytest.approx(2.4, abs=1e-9)


@ALL
def test_a_decision_reads_the_clock_once(door, store, algorithm):
    """X13: figures from two readings, on either side of an edge, would not fit together."""
    limiter, limit = door(), Limit("5/10s", algorithm=algorithm)
    edge = limiter.clock.now - limiter.clock.now % 10_000_000 + 10_000_000
    readings = []

    def clock():
        readings.append(limiter.clock.now)
        limiter.clock.advance(1_000)
        return readings[-1]

    space = store.space("noria", clock)
    for at in (edge - 1_000, edge - 1, edge, edge + 1_000):
        limiter.clock.now = at
        readings.clear()
        decided = space.decide("k", limit.rule, 1)
        assert readings == [at]
        assert decided[3] == at


def test_calls_around_an_edge_stay_within_the_bound(door):
    """X13: a hundred thousandths of a window before, on and after each edge."""
    limiter, limit = door(), Limit("10/second", algorithm="sliding-window")
    chance = random.Random(13)
    begin = limiter.clock.now - limiter.clock.now % 1_000_000
    admitted = []
    for window in range(30):
        for offset in sorted(
            chance.choice([0, 1, 999_999, chance.randrange(10**6)]) for _ in range(30)
        ):
            limiter.clock.now = begin + window * 1_000_000 + offset
            if limiter.consume("k", limit):
                admitted.append(limiter.clock.now)
    for first, begin in enumerate(admitted):
        for count, end in enumerate(admitted[first:], 1):
            if end - begin > 1_000_000:
                break
            assert count <= 10 + 10 * (end - begin) / 1_000_000


def test_only_a_refusal_says_when_to_come_back(door):
    """X14"""
    limiter, limit = door(), Limit("1/minute")
    passed, refused = limiter.consume("k", limit), limiter.consume("k", limit)
    assert passed.retry_after is None
    assert refused.retry_after > 0
    assert [outcome.retry_after is None for outcome in passed.outcomes] == [True]


@ALL
def test_a_cost_that_can_never_pass_is_refused_for_ever_and_takes_nothing(door, algorithm):
    """X15"""
    limiter, limit = door(), Limit("10/minute", algorithm=algorithm)
    denied = limiter.consume("k", limit, cost=11)
    assert (denied.allowed, denied.reason, denied.retry_after) == (False, "never", None)
    assert denied.remaining == 10
    assert limiter.consume("k", limit)
    assert limiter.peek("k", limit).remaining == 9


@ALL
def test_no_key_lives_for_ever(door, store, algorithm):
    """T1: whatever was called, once all has run out traffic leaves nothing of it."""
    limiter, limit = door(), Limit("3/10s", algorithm=algorithm)
    for number in range(60):
        key = f"key {number}"
        kept = [limiter.consume(key, limit) for _ in range(number % 5)]
        limiter.peek(key, limit)
        if number % 3 == 0 and kept:
            limiter.refund(kept[0])
        if number % 7 == 0:
            limiter.reset(key, limit)
    most = store.stats()["entries"]
    for number in range(120):
        limiter.clock.advance(21_000_000)
        limiter.consume(f"visitor {number}", limit)
    assert store.stats()["entries"] < most / 2
