"""What is answered while the store is down, and what never hides behind an outage."""

import asyncio
import logging

import pytest

from noria import (
    AsyncLimiter,
    ConfigError,
    Limit,
    Limiter,
    StoreUnavailable,
    UsageError,
    open_store,
)
from noria.testing import Clock


class Failing:
    """A store that is down while `down` is set, or raises whatever is put there."""

    def __init__(self):
        self.inner = open_store("memory://")
        self.down = StoreUnavailable("the store is down")

    secret = b"secret"

    def space(self, namespace, clock):
        return FailingSpace(self, self.inner.space(namespace, clock))

    def stats(self):
        return self.inner.stats()

    def close(self):
        self.inner.close()


class FailingSpace:
    def __init__(self, store, inner):
        self._store = store
        self._inner = inner

    def __getattr__(self, name):
        def call(*arguments):
            if self._store.down is not None:
                raise self._store.down
            return getattr(self._inner, name)(*arguments)

        return call


@pytest.fixture
def store():
    return Failing()


@pytest.fixture(params=[Limiter, AsyncLimiter], ids=["blocking", "awaited"])
def ask(request, store):
    """A limiter's `consume` on the failing store, as a plain call."""

    def make(**options):
        limiter = request.param(store, clock=Clock(), **options)

        def consume(*arguments, **more):
            answer = limiter.consume(*arguments, **more)
            return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer

        consume.limiter = limiter
        return consume

    return make


TWO = Limit("5/minute"), Limit("9/hour")


@pytest.mark.parametrize("limits", [TWO[:1], TWO], ids=["one limit", "two"])
def test_open_lets_pass_and_says_so(ask, limits):
    decision = ask()("k", *limits)
    assert decision
    assert (decision.degraded, decision.reason) == ("open", "store_unavailable")
    assert decision.outcomes == ()
    assert (decision.limit, decision.remaining, decision.reset_after) == (None, None, None)
    assert (decision.retry_after, decision.charge) == (None, None)


@pytest.mark.parametrize("limits", [TWO[:1], TWO], ids=["one limit", "two"])
def test_closed_refuses_for_a_second(ask, limits):
    decision = ask(on_store_failure="closed")("k", *limits)
    assert not decision
    assert (decision.degraded, decision.reason) == ("closed", "store_unavailable")
    assert decision.retry_after == 1.0
    assert decision.outcomes == ()


def test_local_decides_in_this_process_and_says_so(ask):
    consume = ask(on_store_failure="local")
    decisions = [consume("k", "3/minute") for _ in range(4)]
    assert [bool(one) for one in decisions] == [True, True, True, False]
    assert {one.degraded for one in decisions} == {"local"}
    assert decisions[-1].retry_after > 0


def test_local_decides_with_its_share(ask):
    consume = ask(on_store_failure="local", local_share=0.5)
    assert [bool(consume("k", "7/minute")) for _ in range(5)] == [True] * 3 + [False] * 2
    one = ask(on_store_failure="local", local_share=0.01)
    assert [bool(one("k", "7/minute")) for _ in range(2)] == [True, False]
    bucket = Limit("100/minute", algorithm="token-bucket", burst=10)
    half = ask(on_store_failure="local", local_share=0.5)
    assert sum(bool(half("k", bucket)) for _ in range(20)) == 5


def test_a_local_charge_is_given_back_locally(store):
    limiter = Limiter(store, clock=Clock(), on_store_failure="local")
    decision = limiter.consume("k", "1/minute")
    assert not limiter.consume("k", "1/minute")
    assert limiter.refund(decision)
    assert not limiter.refund(decision)
    assert limiter.consume("k", "1/minute")


def test_a_call_can_have_its_own_policy(ask):
    consume = ask()
    assert not consume("k", "1/minute", on_store_failure="closed")
    assert consume("k", "1/minute", on_store_failure="local").degraded == "local"
    assert consume("k", "1/minute").degraded == "open"
    with pytest.raises(UsageError, match="on_store_failure 'ajar'"):
        consume("k", "1/minute", on_store_failure="ajar")


def test_the_store_is_asked_again_as_soon_as_it_is_back(ask, store):
    consume = ask(on_store_failure="local")
    consume("k", "1/minute")
    store.down = None
    decision = consume("k", "1/minute")
    assert decision
    assert decision.degraded is None


def test_looking_giving_back_and_resetting_raise(store):
    limiter = Limiter(store, clock=Clock())
    store.down = None
    charged = limiter.consume("k", "5/minute")
    store.down = StoreUnavailable("down")
    for call in (
        lambda: limiter.peek("k", "5/minute"),
        lambda: limiter.refund(charged),
        lambda: limiter.refund(charged.charge),
        lambda: limiter.reset("k"),
    ):
        with pytest.raises(StoreUnavailable):
            call()


def test_a_wait_follows_the_policy(store):
    assert Limiter(store, clock=Clock()).wait("k", "1/minute").degraded == "open"


@pytest.mark.parametrize("bug", [TypeError("a bug"), KeyError("k"), MemoryError()])
def test_a_bug_is_no_outage(ask, store, bug):
    """X8: a programming error is raised and never becomes "let everything pass"."""
    store.down = bug
    with pytest.raises(type(bug)):
        ask()("k", "5/minute")
    with pytest.raises(type(bug)):
        ask()("k", *TWO)


def test_a_mistake_of_the_caller_is_no_outage(ask):
    for arguments, options in (
        (("", "1/minute"), {}),
        (("k", "1/minute"), {"cost": -1}),
        (("k",), {}),
    ):
        with pytest.raises(UsageError):
            ask()(*arguments, **options)


@pytest.mark.parametrize("value", ["ajar", "", None, True, 1])
def test_an_unknown_policy_is_a_config_error(value):
    with pytest.raises(ConfigError, match="on_store_failure"):
        Limiter(on_store_failure=value)


def test_an_observer_sees_every_decision(ask, store):
    seen = []
    consume = ask(on_decision=lambda decision, facts: seen.append((decision.allowed, facts)))
    consume("k", "1/minute")
    store.down = None
    consume("k", "1/minute", cost=1)
    consume("k", "1/minute", "9/hour", cost=0)
    assert [allowed for allowed, _ in seen] == [True, True, True]
    assert [(facts["key"], facts["cost"]) for _, facts in seen] == [("k", 1), ("k", 1), ("k", 0)]


def test_an_observers_fault_stays_its_own(ask, caplog):
    def observer(*_):
        raise RuntimeError("the observer's own fault")

    with caplog.at_level(logging.ERROR, logger="noria"):
        assert ask(on_decision=observer)("k", "1/minute")
    assert "on_decision" in caplog.text
    assert "the observer's own fault" in caplog.text
