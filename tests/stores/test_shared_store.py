"""The shared store: what is in the file, what happens when it is full, garbled or gone."""

import shutil
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria import ConfigError, Limit, Limiter, StoreUnavailable, UsageError
from noria.model.batch import Slot
from noria.stores.shared import SharedStore, pages, record

ALGORITHMS = ["sliding-window", "sliding-window-log", "fixed-window", "token-bucket"]
LOG = "sliding-window-log"
NUMBER = st.integers(-(2**62), 2**62)


class Clock:
    def __init__(self):
        self.now = 1_700_000_000_000_000

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def url(tmp_path):
    return f"shared://{tmp_path}/store"


def in_file(limiter, work):
    """What `work` finds, or does, in a transaction of the limiter's file."""
    return limiter._space._run(lambda txn: (work(txn), True))


def pages_in(limiter):
    def count(txn):
        return sum(key.startswith(pages.PREFIX) for key, _ in txn.cursor())

    return in_file(limiter, count)


@given(
    st.lists(
        st.tuples(
            st.binary(min_size=16, max_size=16),
            st.tuples(st.integers(1, 2**40), st.integers(1, 2**20)).map(
                lambda pair: (pair[0] * pair[1], pair[1])
            ),
            st.lists(NUMBER, min_size=2, max_size=3),
            st.tuples(NUMBER, NUMBER, NUMBER),
            st.lists(NUMBER, max_size=65),
        ),
        max_size=5,
        unique_by=lambda slot: slot[0],
    )
)
def test_a_record_reads_as_it_was_written(given_slots):
    value = b""
    for digest, shape, state, (expires, birth, charges), refunds in given_slots:
        slot = Slot(shape, birth)
        slot.state, slot.expires, slot.charges = tuple(state), expires, charges
        slot.refunds = tuple(refunds)
        value += record.pack(digest, slot)
    found = record.unpack(value, lambda birth: birth)
    assert list(found) == [slot[0] for slot in given_slots]
    for digest, shape, state, numbers, refunds in given_slots:
        slot = found[digest]
        assert (slot.shape, slot.state, slot.refunds) == (shape, tuple(state), tuple(refunds))
        assert (slot.expires, slot.birth, slot.charges) == numbers
    assert record.runs_out(value) == max([0, *(slot[3][0] for slot in given_slots)])


def test_keys_of_any_kind_and_size_never_meet(url, clock):
    long = "x" * 1_000_000
    keys = ["a", "a:b", "a\0b", "{a}", "a\nb", "😀", "é", "e\u0301", long, long + "x", "x" * 395]
    keys += ["x" * size for size in range(380, 420) if size != 395]
    with Limiter(url, clock=clock) as one, Limiter(url, clock=clock, namespace="noria2") as two:
        third = Limiter(url, clock=clock, namespace="n" * 1000)
        for limiter in (one, two, third):
            for key in keys:
                assert limiter.consume(key, "1/day"), key[:20]
            for key in keys:
                assert not limiter.consume(key, "1/day"), key[:20]
        third.close()


def test_limits_of_one_key_are_kept_together_and_apart(url, clock):
    limits = [Limit(5, per=3600, algorithm=name) for name in ALGORITHMS]
    with Limiter(url, clock=clock) as limiter:
        for used, limit in enumerate(limits):
            limiter.consume("k", limit, cost=used + 1)
        assert [limiter.peek("k", limit).remaining for limit in limits] == [4, 3, 2, 1]
        assert limiter.consume("k", *limits)
        assert [limiter.peek("k", limit).remaining for limit in limits] == [3, 2, 1, 0]
        assert not limiter.consume("k", *limits)
        assert limiter.reset("k", limits[0]) == 1
        assert [limiter.peek("k", limit).remaining for limit in limits] == [5, 2, 1, 0]
        assert limiter.reset("k") == 3


def test_more_live_limits_on_a_key_than_a_record_holds_are_refused_by_name(url, clock):
    with Limiter(url, clock=clock) as limiter:
        for number in range(64):
            limiter.consume("k", Limit(1000 + number, per=60))
        with pytest.raises(UsageError, match="64 different limits"):
            limiter.consume("k", Limit(2000, per=60))
        assert limiter.consume("other", Limit(2000, per=60))
        clock.now += 120_000_000
        assert limiter.consume("k", Limit(2000, per=60))


def test_a_long_log_is_exact_over_its_pages_and_leaves_none(url, clock):
    limit = Limit(2000, per=3600, algorithm=LOG)
    with Limiter(url, clock=clock) as limiter:
        start = clock.now
        decisions = []
        for _ in range(2000):
            clock.now += 1000
            decisions.append(limiter.consume("k", limit))
        assert all(decisions)
        refused = limiter.consume("k", limit)
        assert not refused
        assert start + 1000 + 3_600_000_000 - clock.now == round(refused.retry_after * 1e6)
        assert limiter.consume("k", limit, cost=70).retry_after == pytest.approx(
            refused.retry_after + 0.069
        )
        assert limiter.refund(decisions[1000])
        assert not limiter.refund(decisions[1000].charge)
        assert limiter.consume("k", limit)
        assert not limiter.consume("k", limit)
        assert pages_in(limiter) == 32
        assert limiter.reset("k") == 1
        assert pages_in(limiter) == 0


def test_a_log_in_use_keeps_only_the_pages_of_its_window(url, clock):
    limit = Limit(100, per=1, algorithm=LOG)
    with Limiter(url, clock=clock) as limiter:
        for _ in range(3000):
            clock.now += 10_000
            assert limiter.consume("k", limit)
        assert pages_in(limiter) <= 3
        clock.now += 2_000_000
        assert limiter.consume("k", limit, cost=100)
        assert pages_in(limiter) == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_full_file_shares_records_and_forgets_nobody(tmp_path, clock, algorithm):
    limit = Limit(5, per=3600, algorithm=algorithm)
    with Limiter(f"shared://{tmp_path}/store?size=4MB", clock=clock) as limiter:
        for _ in range(5):
            assert limiter.consume("victim", limit)
        decisions = [limiter.consume(f"flood-{number}", limit) for number in range(50_000)]
        assert all(decision.degraded is None for decision in decisions)
        reasons = {decision.outcomes[0].reason for decision in decisions}
        assert reasons == {"ok", "overflow"}
        assert limiter.stats()["overflowed"] > 1_000
        assert not limiter.consume("victim", limit)
        # When all has run out there is room again.
        clock.now += 3 * 3_600_000_000
        for number in range(1_000):
            limiter.consume(f"later-{number}", limit)
        assert limiter.consume("newcomer", limit).outcomes[0].reason == "ok"


def test_garbled_values_hurt_nobody_else(url, clock):
    with Limiter(url, clock=clock, on_store_failure="closed") as limiter:
        for number in range(20):
            limiter.consume(f"k{number}", "5/hour")

        def garble(txn):
            for number, (key, value) in enumerate(list(txn.cursor())):
                if key.startswith(b"r") and number % 2:
                    cut = (value[:50], value + b"x", bytes(len(value)), b"\xff" * len(value))
                    txn.put(key, cut[number // 2 % 4])

        in_file(limiter, garble)
        for number in range(20):
            decision = limiter.consume(f"k{number}", "5/hour")
            assert decision.degraded in (None, "closed")
            limiter.consume(f"k{number}", "5/hour", "9/day")
        assert limiter.consume("another", "5/hour")


def test_counts_outlive_a_close(url):
    with Limiter(url) as limiter:
        assert limiter.consume("k", "1/day")
    with Limiter(url) as limiter:
        assert not limiter.consume("k", "1/day")


def test_limiters_of_one_process_share_the_file(url):
    with Limiter(url) as one, Limiter(url) as other:
        charge = one.consume("k", "1/day")
        assert not other.consume("k", "1/day")
        assert other.refund(charge)
        assert other.consume("k", "1/day")
        one.close()
        assert not other.consume("k", "1/day")


def test_a_directory_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"file.*in the way"):
        Limiter(f"shared://{tmp_path}/file")
    with pytest.raises(ConfigError, match="size"):
        Limiter(f"shared://{tmp_path}/store?size=big")


@pytest.mark.parametrize(
    ("failure", "passes"), [("open", [True] * 3), ("closed", [False] * 3), ("local", [1, 1, 0])]
)
def test_a_store_that_is_gone_is_answered_by_policy_and_comes_back(tmp_path, failure, passes):
    place = tmp_path / "store"
    with Limiter(f"shared://{place}", on_store_failure=failure) as limiter:
        assert limiter.consume("k", "2/day").degraded is None
        shutil.rmtree(place)
        place.write_text("in the way")
        deadline = time.monotonic() + 30
        while (decision := limiter.consume("other", "1000000/day")).degraded is None:
            assert time.monotonic() < deadline
        assert decision.degraded == failure
        assert [bool(limiter.consume("k", "2/day")) for _ in range(3)] == [*map(bool, passes)]
        with pytest.raises(StoreUnavailable, match="store"):
            limiter.peek("k", "2/day")
        place.unlink()
        while limiter.consume("other", "1000000/day").degraded is not None:
            assert time.monotonic() < deadline
        assert limiter.consume("k", "2/day").degraded is None


def test_a_charge_of_a_file_that_is_gone_is_nothing_to_the_next(tmp_path):
    place = tmp_path / "store"
    with Limiter(f"shared://{place}") as limiter:
        old = limiter.consume("k", "5/day")
        text = old.charge
        shutil.rmtree(place)
        deadline = time.monotonic() + 30
        while limiter.peek("k", "5/day").remaining != 5:
            assert time.monotonic() < deadline
        new = limiter.consume("k", "5/day", cost=2)
        assert not limiter.refund(old)
        with pytest.raises(UsageError, match="has not given out"):
            limiter.refund(text)
        assert limiter.refund(new)
        assert limiter.peek("k", "5/day").remaining == 5


def test_a_closed_store_answers_no_more(tmp_path):
    store = SharedStore(str(tmp_path / "store"))
    limiter = Limiter(store)
    assert limiter.consume("k", "5/day")
    store.close()
    store.close()
    assert limiter.consume("k", "5/day").degraded == "open"
    with pytest.raises(StoreUnavailable):
        limiter.peek("k", "5/day")


@pytest.mark.parametrize(
    ("limit", "cost"),
    [
        (Limit("1/day", algorithm="token-bucket", burst=10**9), 10**8),
        (Limit("1/3650d", algorithm="token-bucket", burst=10**5), 10**5),
        (Limit("1/week", algorithm="token-bucket", burst=10**9), 10**9),
    ],
)
def test_buckets_that_are_full_again_after_ages_are_kept(url, clock, limit, cost):
    with Limiter(url, clock=clock) as shared, Limiter("memory://", clock=clock) as memory:
        for _ in range(3):
            ours, other = (one.consume("k", limit, cost=cost) for one in (shared, memory))
            assert (ours.allowed, ours.remaining) == (other.allowed, other.remaining)
            ours, other = (one.consume("k", limit, "5/day") for one in (shared, memory))
            assert (ours.allowed, ours.remaining) == (other.allowed, other.remaining)
