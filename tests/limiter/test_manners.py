"""What a reader of the documentation would try next."""

import asyncio
import json
import pickle

import pytest

from noria import (
    AsyncLimiter,
    ConfigError,
    Decision,
    Limit,
    Limiter,
    NoriaError,
    UsageError,
    open_store,
)
from noria.testing import Clock
from noria.testing.promises import ALGORITHMS


@pytest.fixture(params=["memory", "shared"])
def store(request, tmp_path):
    opened = open_store(
        "memory://" if request.param == "memory" else f"shared://{tmp_path}?size=16MB"
    )
    yield opened
    opened.close()


@pytest.fixture
def limiter(store):
    with Limiter(store, clock=Clock()) as opened:
        yield opened


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_decision_is_json(limiter, algorithm):
    limit = Limit("2/minute", algorithm=algorithm)
    for cost in (1, 2, 3, 0):
        told = limiter.consume(
            "k", limit, Limit("9/hour", name="n", shadow=True), cost=cost
        ).as_dict()
        again = json.loads(json.dumps(told, allow_nan=False))
        assert again == told
        assert set(told) == {
            "allowed", "limit", "remaining", "reset_after", "retry_after", "outcomes", "policy",
            "decided_at", "degraded", "reason", "charge", "delay",
        }  # fmt: skip
        assert set(told["outcomes"][0]) == {
            "name", "algorithm", "limit", "period", "burst", "remaining", "reset_after",
            "grows_after", "window_ends_after", "retry_after", "allowed", "reason", "shadow",
        }  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_pickled_decision_says_the_same_and_can_be_given_back(limiter, algorithm):
    decision = limiter.consume("k", Limit("5/minute", algorithm=algorithm), "9/hour", cost=3)
    copy = pickle.loads(pickle.dumps(decision))  # noqa: S301 - our own
    assert copy.as_dict() == decision.as_dict()
    assert bool(copy)
    assert limiter.refund(copy)
    assert not limiter.refund(decision)
    assert not limiter.refund(decision.charge)
    assert limiter.peek("k", Limit("5/minute", algorithm=algorithm)).remaining == 5


def test_a_charge_is_given_back_by_another_limiter_of_the_store(store, limiter):
    charge = limiter.consume("k", "5/minute").charge
    other = Limiter(store, clock=Clock())
    assert other.refund(charge)
    assert not limiter.refund(charge)


def test_a_charge_is_of_one_store_and_one_namespace(store, limiter):
    charge = limiter.consume("k", "5/minute").charge
    with pytest.raises(UsageError, match="namespace"):
        Limiter(store, namespace="another").refund(charge)
    with pytest.raises(UsageError, match="not given out"):
        Limiter("memory://").refund(charge)


def test_what_was_not_charged_has_no_charge(limiter):
    limit = Limit("1/minute")
    assert limiter.consume("k", limit, cost=0).charge is None
    assert limiter.peek("k", limit).charge is None
    limiter.consume("k", limit)
    denied = limiter.consume("k", limit)
    assert denied.charge is None
    assert not limiter.refund(denied)


@pytest.mark.parametrize("wrong", [None, 5, b"charge", object(), [], True])
def test_only_decisions_and_charges_are_given_back(limiter, wrong):
    with pytest.raises(UsageError, match="refund"):
        limiter.refund(wrong)


@pytest.mark.parametrize("wrong", ["", "x", "é", "AAAA", "A" * 100, "=" * 8, "\ud800", "a b"])
def test_a_charge_that_was_made_up_is_an_error(limiter, wrong):
    with pytest.raises(UsageError, match="charge"):
        limiter.refund(wrong)


def test_a_charge_that_was_tampered_with_is_an_error(limiter):
    charge = limiter.consume("k", "5/minute").charge
    for at in (0, 10, len(charge) // 2, len(charge) - 5):
        changed = charge[:at] + ("A" if charge[at] != "A" else "B") + charge[at + 1 :]
        with pytest.raises(UsageError, match="not given out"):
            limiter.refund(changed)
    assert limiter.refund(charge)


def test_the_oldest_of_many_refunds_can_not_be_made_any_more(limiter):
    """A state tells 64 refunds apart; beyond that the oldest charges count as given back."""
    limit = Limit("1000/minute")
    charged = [limiter.consume("k", limit) for _ in range(200)]
    newest_first = [limiter.refund(one) for one in reversed(charged)]
    assert newest_first[:64] == [True] * 64
    assert sum(newest_first) <= 200
    assert not any(limiter.refund(one) for one in charged)
    assert limiter.peek("k", limit).remaining == 1_000 - 200 + sum(newest_first)


def test_a_closed_limiter_says_so(store):
    limiter = Limiter(store)
    limiter.close()
    limiter.close()
    for call in (
        lambda: limiter.consume("k", "1/minute"),
        lambda: limiter.consume("k", "1/minute", "2/hour"),
        lambda: limiter.consume_many([("k", "1/minute")]),
        lambda: limiter.peek("k", "1/minute"),
        lambda: limiter.reset("k"),
        lambda: limiter.wait("k", "1/minute"),
    ):
        with pytest.raises(UsageError, match="closed"):
            call()
    assert Limiter(store).consume("k", "1/minute")


def test_a_closed_awaited_limiter_says_so(store):
    async def main():
        async with AsyncLimiter(store) as limiter:
            assert await limiter.consume("k", "1/minute")
        with pytest.raises(UsageError, match="closed"):
            await limiter.consume("k", "1/minute")
        await limiter.aclose()

    asyncio.run(main())


def test_a_store_that_was_handed_in_open_is_not_closed(store):
    with Limiter(store) as limiter:
        limiter.consume("k", "1/minute")
    assert not Limiter(store).consume("k", "1/minute")


def test_several_limits_and_keys_in_the_words_of_the_documentation(limiter):
    decision = limiter.consume("user:42", Limit("5/second"), Limit("1000/hour"), cost=1)
    assert decision
    assert decision.limit == 5
    assert decision.remaining == 4
    assert [outcome.limit for outcome in decision.outcomes] == [5, 1_000]
    assert limiter.consume_many([("a", "1/minute"), ("b", Limit("9/minute"), 9)])
    assert not limiter.consume_many([("c", "1/minute"), ("b", Limit("9/minute"), 1)])
    assert limiter.peek("c", "1/minute").remaining == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"namespace": ""}, "namespace"),
        ({"namespace": 5}, "namespace"),
        ({"store_timeout": 0}, "store_timeout"),
        ({"store_timeout": float("nan")}, "store_timeout"),
        ({"deny_cache": 0.5}, "deny_cache"),
        ({"deny_cache": 2}, "deny_cache"),
        ({"clock": 5}, "clock"),
        ({"on_decision": "print"}, "on_decision"),
        ({"local_share": 0}, "local_share"),
        ({"local_share": 1.5}, "local_share"),
        ({"store": "redis://localhost"}, "redis"),
        ({"store": "memory:/"}, "memory:/"),
        ({"store": "memory://?max_entries=none"}, "max_entries"),
        ({"store": "memory://?entries=5"}, "entries"),
        ({"store": 5}, "5"),
    ],
)
@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_a_wrong_option_is_a_config_error_that_names_it(kind, options, named):
    with pytest.raises(ConfigError, match=named):
        kind(**options)


def test_every_error_is_of_one_tree():
    for error in (ConfigError, UsageError):
        assert issubclass(error, NoriaError)
        assert issubclass(error, ValueError)


def test_a_decision_shows_itself(limiter):
    text = repr(limiter.consume("k", "5/minute"))
    assert text.startswith("Decision(allowed=True, limit=5, remaining=4")
    assert isinstance(limiter.consume("k", "5/minute"), Decision)


def test_memory_of_one_name_is_one_store():
    one, other = Limiter("memory://tests"), Limiter("memory://tests")
    assert one.consume("k", "1/minute")
    assert not other.consume("k", "1/minute")
    assert Limiter("memory://").consume("k", "1/minute")
