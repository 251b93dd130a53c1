"""Waiting: in turn, not a moment longer than needed, and refused at once where it would be in vain.

No test sleeps: where a limiter would, the clock is moved on.
"""

import asyncio
from threading import Event, Thread

import pytest

from noria import AsyncLimiter, Limit, Limiter, RateLimitExceeded, UsageError
from noria.testing import Clock


def resting(limiter, clock, naps):
    """The limiter, its sleep replaced: the clock goes on by what it would have slept."""

    def sleep(seconds):
        naps.append(seconds)
        clock.advance(round(seconds * 1_000_000))

    async def rest(seconds):
        sleep(seconds)
        await asyncio.sleep(0)

    limiter._sleep = rest if isinstance(limiter, AsyncLimiter) else sleep
    return limiter


@pytest.fixture
def clock():
    clock = Clock()
    clock.now -= clock.now % 60_000_000
    return clock


@pytest.fixture(params=[Limiter, AsyncLimiter], ids=["blocking", "awaited"])
def waiter(request, clock):
    """(a call of `wait` as a plain one, what was slept)"""
    naps = []
    limiter = resting(request.param(clock=clock), clock, naps)

    def wait(*arguments, **options):
        if request.param is Limiter:
            return limiter.wait(*arguments, **options)
        return asyncio.run(limiter.wait(*arguments, **options))

    return wait, naps


def test_a_wait_lasts_as_long_as_retry_after_says(waiter):
    wait, naps = waiter
    assert wait("k", "1/second")
    assert naps == []
    limit = Limit("2/10s", algorithm="fixed-window")
    decisions = [wait("k", limit) for _ in range(5)]
    assert all(decisions)
    assert naps == [10, 10]


def test_a_timeout_that_cannot_be_met_is_refused_before_sleeping(waiter):
    wait, naps = waiter
    limit = Limit("1/10s", algorithm="fixed-window")
    wait("k", limit)
    with pytest.raises(RateLimitExceeded) as caught:
        wait("k", limit, timeout=9.999)
    assert naps == []
    assert caught.value.decision.retry_after == 10
    assert "10" in str(caught.value)
    assert wait("k", limit, timeout=10)
    assert naps == [10]


def test_a_timeout_of_nothing_tries_once(waiter):
    wait, naps = waiter
    assert wait("k", "1/minute", timeout=0)
    with pytest.raises(RateLimitExceeded):
        wait("k", "1/minute", timeout=0)
    assert naps == []


def test_what_never_passes_is_not_waited_for(waiter):
    """X15"""
    wait, naps = waiter
    for limit, cost in (("10/minute", 11), ("0/minute", 1)):
        with pytest.raises(RateLimitExceeded) as caught:
            wait("k", limit, cost=cost)
        assert caught.value.decision.reason == "never"
    assert naps == []


@pytest.mark.parametrize("timeout", [-1, "1", float("nan"), float("inf"), True, 1e300])
def test_a_wrong_timeout_is_an_error(waiter, timeout):
    with pytest.raises(UsageError, match="timeout"):
        waiter[0]("k", "1/minute", timeout=timeout)


def test_those_who_wait_are_served_in_turn_whatever_they_cost(clock):
    """X12: a large call that came first is not overtaken by thirty small ones."""
    limiter = resting(AsyncLimiter(clock=clock), clock, [])
    limit = Limit("10/second", algorithm="token-bucket")
    served = []

    async def caller(name, cost):
        await limiter.wait("k", limit, cost=cost)
        served.append(name)

    async def main():
        await limiter.consume("k", limit, cost=10)
        await asyncio.gather(caller("large", 10), *(caller(number, 1) for number in range(30)))

    asyncio.run(main())
    assert served == ["large", *range(30)]
    assert clock.now == Clock().now - Clock().now % 60_000_000 + 4_000_000


def test_threads_that_wait_are_served_in_turn(clock):
    """X12, with threads: each joins the line while the head of it sleeps."""
    limiter = Limiter(clock=clock)
    asleep, go_on = Event(), Event()
    served = []

    def sleep(seconds):
        asleep.set()
        assert go_on.wait(30)
        clock.advance(round(seconds * 1_000_000))

    limiter._sleep = sleep
    limit = Limit("10/second", algorithm="token-bucket")
    limiter.consume("k", limit, cost=10)
    join = limiter._lines.join
    joined = Event()

    def joining(key, caller):
        ahead = join(key, caller)
        joined.set()
        return ahead

    limiter._lines.join = joining

    def work(cost):
        limiter.wait("k", limit, cost=cost)
        served.append(cost)

    threads = []
    for cost in (10, 1, 2, 3, 4):
        joined.clear()
        threads.append(Thread(target=work, args=(cost,)))
        threads[-1].start()
        assert joined.wait(30)
    assert asleep.wait(30)
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert served == [10, 1, 2, 3, 4]


def test_those_who_wait_for_one_key_hold_up_no_other(clock):
    """T13: key A sleeps for five seconds; a hundred calls for key B do not notice."""
    limiter = Limiter(clock=clock)
    asleep, wake = Event(), Event()

    def sleep(seconds):
        asleep.set()
        assert wake.wait(30)
        clock.advance(round(seconds * 1_000_000))

    limiter._sleep = sleep
    limit = Limit("100/minute", algorithm="token-bucket")
    limiter.consume("a", limit, cost=100)
    thread = Thread(target=limiter.wait, args=("a", limit), kwargs={"timeout": 5})
    thread.start()
    assert asleep.wait(30)
    assert [bool(limiter.wait("b", limit)) for _ in range(100)] == [True] * 100
    assert not limiter.consume("a", limit)
    wake.set()
    thread.join(30)
    assert not thread.is_alive()


def test_a_deadline_counts_the_whole_line(clock):
    """T13: twenty wait already, so the next one is told at once that its time is too short."""
    limiter = AsyncLimiter(clock=clock)
    limit = Limit("1/second", algorithm="token-bucket", burst=1)

    async def main():
        refused = asyncio.Event()

        async def rest(seconds):
            await refused.wait()
            clock.advance(round(seconds * 1_000_000))

        limiter._sleep = rest
        await limiter.consume("k", limit)
        line = [asyncio.create_task(limiter.wait("k", limit)) for _ in range(20)]
        await asyncio.sleep(0)
        with pytest.raises(RateLimitExceeded) as caught:
            await limiter.wait("k", limit, timeout=20.9)
        in_time = asyncio.create_task(limiter.wait("k", limit, timeout=21))
        await asyncio.sleep(0)
        refused.set()
        assert all(await asyncio.gather(*line, in_time))
        return caught.value.decision

    begin = clock.now
    assert asyncio.run(main()).retry_after == 21
    assert clock.now == begin + 21_000_000


def test_a_cancelled_waiter_leaves_the_line_and_charges_nothing(clock):
    limiter = AsyncLimiter(clock=clock)
    limit = Limit("1/second", algorithm="token-bucket", burst=1)

    async def main():
        await limiter.consume("k", limit)
        first = asyncio.create_task(limiter.wait("k", limit))
        second = asyncio.create_task(limiter.wait("k", limit))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        clock.advance(1_000_000)
        assert await second
        assert not limiter._limiter._lines._lines

    asyncio.run(main())


def test_one_limiter_serves_several_event_loops(clock):
    limiter = AsyncLimiter(clock=clock)
    passed = [asyncio.run(limiter.wait("k", "3/minute", timeout=0)) for _ in range(3)]
    assert all(passed)
    with pytest.raises(RateLimitExceeded):
        asyncio.run(limiter.wait("k", "3/minute", timeout=0))
