"""The header fields: whole numbers, one limit's figures, and a wait that is long enough."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria import Limit, Limiter, StoreUnavailable
from noria.responses import fields, outranks

NOW = 1_700_000_000_300_000  # 0.3 s into a second, 20.3 s into a minute


class Clock:
    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now


def asked(*limits, times=1, cost=1, **options):
    """The last decision of so many calls at one moment."""
    with Limiter("memory://", clock=Clock(), **options) as limiter:
        decisions = [limiter.consume("k", *limits, cost=cost) for _ in range(times)]
        decisions[-1].outcomes  # noqa: B018 - read while the store is open
        return decisions[-1]


def shown(*limits, **options):
    return dict(fields(asked(*limits, **options)))


def test_a_window_resets_at_its_end():
    for algorithm in ("fixed-window", "sliding-window"):
        assert shown(Limit("5/minute", algorithm=algorithm)) == {
            "X-RateLimit-Limit": "5",
            "X-RateLimit-Remaining": "4",
            "X-RateLimit-Reset": "1700000040",
        }


def test_a_bucket_shows_its_burst_and_resets_when_it_is_full():
    limit = Limit("60/minute", algorithm="token-bucket", burst=10)
    assert shown(limit, times=4) == {
        "X-RateLimit-Limit": "10",
        "X-RateLimit-Remaining": "6",
        "X-RateLimit-Reset": "1700000005",  # 0.3 s + 4 s, rounded up
    }


def test_a_log_resets_when_its_oldest_entry_leaves():
    assert (
        shown(Limit("5/10s", algorithm="sliding-window-log"))["X-RateLimit-Reset"] == "1700000011"
    )


def test_a_moment_on_a_whole_second_is_not_rounded_to_the_next():
    # As floats 1700000000.3 + 39.7 is a little more than 1700000040.
    decision = asked(Limit("5/minute", algorithm="fixed-window"))
    assert math.ceil(decision.decided_at + decision.outcomes[0].window_ends_after) == 1700000040
    odd = asked(Limit("1/100ms", algorithm="fixed-window"))
    assert dict(fields(odd))["X-RateLimit-Reset"] == "1700000001"


def test_a_denial_has_a_retry_after_and_an_admission_has_none():
    assert "Retry-After" not in shown("2/minute", times=2)
    denied = shown(Limit("2/minute", algorithm="fixed-window"), times=3)
    assert denied["X-RateLimit-Remaining"] == "0"
    assert denied["Retry-After"] == "40"


def test_retry_after_is_one_at_least():
    assert shown(Limit("1/100ms", algorithm="fixed-window"), times=2)["Retry-After"] == "1"


def test_never_has_no_retry_after():
    assert "Retry-After" not in shown("0/minute")
    assert shown("5/minute", cost=6) == {
        "X-RateLimit-Limit": "5",
        "X-RateLimit-Remaining": "5",
        "X-RateLimit-Reset": "1700000040",
    }


ALGORITHMS = ("sliding-window", "sliding-window-log", "fixed-window", "token-bucket")


@given(
    st.sampled_from(ALGORITHMS),
    st.integers(1, 20),
    st.sampled_from(["ms", "100ms", "s", "7s", "m", "h"]),
    st.integers(0, 10**7),
)
def test_on_a_denial_the_reset_is_never_before_retry_after(algorithm, count, period, offset):
    clock = Clock(NOW + offset)
    with Limiter("memory://", clock=clock) as limiter:
        limit = Limit(f"{count}/{period}", algorithm=algorithm)
        decision = limiter.consume("k", limit)
        while decision:
            assert "Retry-After" not in dict(fields(decision))
            decision = limiter.consume("k", limit)
        found = {name: int(value) for name, value in fields(decision)}
        assert found["X-RateLimit-Reset"] >= clock.now / 1e6 + found["Retry-After"]
        # Who waits as told is let in.
        clock.now += found["Retry-After"] * 1_000_000
        assert limiter.consume("k", limit)


@given(
    st.lists(
        st.sampled_from(["3/s", "5/minute", "9/h", "2/7s", "3/minute"]), min_size=1, unique=True
    )
)
def test_the_figures_are_those_of_the_tightest_limit(rates):
    tightest = min(int(rate.partition("/")[0]) for rate in rates)
    found = shown(*rates)
    assert found["X-RateLimit-Remaining"] == str(tightest - 1)
    assert found["X-RateLimit-Limit"] == str(tightest)


def test_a_bucket_and_a_window_of_the_same_figures_are_told_apart():
    window = Limit("5/minute", algorithm="fixed-window")
    bucket = Limit("5/minute", algorithm="token-bucket")
    # Denied: the window says 39.7 s, the bucket 12 s.
    assert shown(bucket, window, times=6)["Retry-After"] == "40"


def test_shadow_limits_are_in_no_header():
    assert shown("9/minute", Limit("2/minute", shadow=True), times=4)["X-RateLimit-Limit"] == "9"
    assert shown(Limit("2/minute", shadow=True), times=4) == {}


class Down:
    """A store that does not answer."""

    secret = b"s"

    def space(self, *_):
        return self

    def decide(self, *_):
        raise StoreUnavailable

    def apply(self, *_):
        raise StoreUnavailable

    def close(self):
        pass


@pytest.mark.parametrize(
    ("policy", "expected"), [("open", {}), ("closed", {"Retry-After": "1"}), ("local", {})]
)
def test_a_decision_without_the_store_has_no_figures(policy, expected):
    with Limiter(Down(), on_store_failure=policy) as limiter:
        assert dict(fields(limiter.consume("k", "5/minute"))) == expected


def test_a_local_denial_still_says_when_to_retry():
    with Limiter(Down(), on_store_failure="local", clock=Clock()) as limiter:
        limit = Limit("1/minute", algorithm="fixed-window")
        limiter.consume("k", limit)
        assert fields(limiter.consume("k", limit)) == [("Retry-After", "40")]


def triple(limit, remaining, reset):
    names = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
    return list(zip(names, map(str, (limit, remaining, reset)), strict=True))


def lower(pairs):
    return {name.lower(): value for name, value in pairs}


def test_the_tighter_of_two_answers_wins():
    loose, tight = triple(20, 19, 100), triple(2, 1, 100)
    assert outranks(tight, lower(loose))
    assert not outranks(loose, lower(tight))
    assert outranks(triple(2, 1, 200), lower(tight)), "a tie goes to the longer reset"


def test_a_refusal_from_within_keeps_its_fields():
    inner = lower(triple(9, 3, 100)) | {"retry-after": "7"}
    assert not outranks(triple(2, 0, 50), inner)


def test_fields_that_are_no_numbers_are_replaced():
    assert outranks(triple(5, 4, 3), {"x-ratelimit-limit": "5"})
    assert outranks(triple(5, 4, 3), lower(triple(5, "0.5", 3)))
    assert outranks(triple(5, 4, 3), lower(triple(5, "٣", 3)))
