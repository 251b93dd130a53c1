"""Decorators: the call is charged, refused or handed its decision; misuse is an error at once."""

import asyncio
from functools import partial

import pytest

from noria import AsyncLimiter, ConfigError, Decision, Limit, Limiter, RateLimitExceeded, UsageError


def test_a_call_is_charged_and_refused():
    limiter = Limiter()

    @limiter.limit("2/minute")
    def greet(name):
        """Say hello."""
        return f"hello {name}"

    assert [greet("you"), greet(name="you")] == ["hello you"] * 2
    with pytest.raises(RateLimitExceeded) as caught:
        greet("you")
    assert caught.value.decision.retry_after > 0
    assert (greet.__name__, greet.__doc__) == ("greet", "Say hello.")


def test_a_coroutine_is_charged_and_refused():
    limiter = AsyncLimiter()

    @limiter.limit("2/minute")
    async def greet(name):
        return f"hello {name}"

    async def main():
        assert [await greet("you"), await greet(name="you")] == ["hello you"] * 2
        with pytest.raises(RateLimitExceeded):
            await greet("you")

    asyncio.run(main())


def test_key_and_cost_may_come_from_the_arguments():
    limiter = Limiter()

    @limiter.limit("10/minute", key=lambda user, **_: f"user:{user}", cost=lambda *_, size: size)
    def upload(user, *, size):
        return user, size

    assert upload(1, size=7) == (1, 7)
    assert upload(2, size=10) == (2, 10)
    with pytest.raises(RateLimitExceeded):
        upload(1, size=4)
    assert upload(1, size=3) == (1, 3)
    with pytest.raises(UsageError, match="cost -1"):
        upload(3, size=-1)
    assert limiter.peek("user:1", "10/minute").remaining == 0


def test_functions_do_not_share_a_key_unless_they_are_told_to():
    limiter = Limiter()
    one = limiter.limit("1/minute")(lambda: 1)

    def other():
        return 2

    two = limiter.limit("1/minute")(other)
    assert (one(), two()) == (1, 2)
    shared = [limiter.limit("1/minute", key="both")(function) for function in (other, lambda: 3)]
    assert shared[0]() == 2
    with pytest.raises(RateLimitExceeded):
        shared[1]()


def test_the_decision_can_take_the_place_of_the_result():
    limiter, awaited = Limiter(), AsyncLimiter()

    @limiter.limit("1/minute", on_exceeded="return")
    def plain():
        return "result"

    @awaited.limit("1/minute", on_exceeded="return")
    async def coroutine():
        return "result"

    assert plain() == "result"
    assert isinstance(plain(), Decision)
    assert asyncio.run(coroutine()) == "result"
    assert not asyncio.run(coroutine())


def test_a_refused_call_does_not_run():
    ran = []
    limited = Limiter().limit("1/minute", on_exceeded="return")(lambda: ran.append(None))
    for _ in range(5):
        limited()
    assert len(ran) == 1


def test_a_limiter_decorates_its_own_kind_only():
    async def coroutine():
        pass

    async def stream():
        yield

    class Callable:
        async def __call__(self):
            pass

    for function in (coroutine, stream, Callable(), partial(coroutine)):
        with pytest.raises(UsageError, match="AsyncLimiter decorates coroutine functions"):
            Limiter().limit("1/minute")(function)
    for function in (lambda: None, stream, print):
        with pytest.raises(UsageError, match="AsyncLimiter decorates coroutine functions"):
            AsyncLimiter().limit("1/minute")(function)


@pytest.mark.parametrize("limiter", [Limiter(), AsyncLimiter()], ids=["blocking", "awaited"])
def test_mistakes_show_when_decorating_and_not_in_the_first_call(limiter):
    with pytest.raises(UsageError, match="no limit"):
        limiter.limit()
    with pytest.raises(ConfigError, match="soon"):
        limiter.limit("5/soon")
    with pytest.raises(UsageError, match="cost -1"):
        limiter.limit("1/minute", cost=-1)
    with pytest.raises(UsageError, match="key ''"):
        limiter.limit("1/minute", key="")
    with pytest.raises(UsageError, match="on_exceeded 'drop'"):
        limiter.limit("1/minute", on_exceeded="drop")
    with pytest.raises(UsageError, match="a function"):
        limiter.limit("1/minute")(5)


def test_bare_use_says_what_is_missing():
    def function():
        pass

    with pytest.raises(UsageError):
        Limiter().limit(function)


def test_several_limits_decorate_together():
    limiter = Limiter()
    limited = limiter.limit("5/minute", Limit("2/hour"), key="k")(lambda: None)
    limited(), limited()
    with pytest.raises(RateLimitExceeded):
        limited()
    assert limiter.peek("k", "5/minute").remaining == 3
