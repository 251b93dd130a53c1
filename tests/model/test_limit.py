"""A limit that exists is right, stays as it is, and is one value."""

import copy
import itertools
import pickle
from datetime import timedelta

import pytest

from noria import ConfigError, Limit, UsageError
from noria.model.limit import as_limit
from noria.testing.promises import ALGORITHMS


def test_numbers_say_the_same_as_text():
    same = [
        Limit("100/minute"),
        Limit(100, 60),
        Limit(100, per=60.0),
        Limit(100, per=timedelta(minutes=1)),
    ]
    assert len(set(same)) == 1
    assert same[0] == same[3]
    assert same[0] != "100/minute"


def test_its_attributes_are_what_was_given():
    limit = Limit("7/10m", algorithm="gcra", burst=3, name="login", unit="bytes", shadow=True)
    assert (limit.limit, limit.period, limit.algorithm, limit.burst) == (
        7,
        600.0,
        "token-bucket",
        3,
    )
    assert (limit.name, limit.unit, limit.shadow, limit.lease) == ("login", "bytes", True, None)
    assert Limit("7/10m", algorithm="token-bucket").burst == 7
    assert Limit("7/10m").algorithm == "sliding-window"
    assert Limit("7/10m").burst is None


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        ((100,), {}, "100"),
        (("100/minute", 60), {}, "60"),
        ((-1, 60), {}, "-1"),
        ((10**9 + 1, 60), {}, "1000000001"),
        ((1.0, 60), {}, "1.0"),
        ((True, 60), {}, "True"),
        ((None, 60), {}, "None"),
        ((b"5/s",), {}, "b'5/s'"),
        ((5, 0), {}, "0"),
        ((5, -1), {}, "-1"),
        ((5, "60"), {}, "'60'"),
        ((5, True), {}, "True"),
        ((5, float("nan")), {}, "nan"),
        ((5, float("inf")), {}, "inf"),
        ((5, 1e-9), {}, "1e-09"),
        ((5, 3_654 * 86_400), {}, "315705600"),
        ((5, timedelta(days=4_000)), {}, "4000"),
        (("5/s",), {"algorithm": "leaky"}, "'leaky'"),
        (("5/s",), {"algorithm": ""}, "''"),
        (("5/s",), {"algorithm": None}, "None"),
        (("5/s",), {"burst": 5}, "burst 5"),
        (("5/s",), {"burst": 5, "algorithm": "fixed-window"}, "burst 5"),
        (("5/s",), {"burst": 0, "algorithm": "gcra"}, "burst 0"),
        (("5/s",), {"burst": -1, "algorithm": "gcra"}, "burst -1"),
        (("5/s",), {"burst": 1.5, "algorithm": "gcra"}, "burst 1.5"),
        (("5/s",), {"burst": True, "algorithm": "gcra"}, "burst True"),
        (("5/s",), {"burst": 10**9 + 1, "algorithm": "gcra"}, "1000000001"),
        (("100001/s",), {"algorithm": "sliding-window-log"}, "100001/s"),
        (("5/s",), {"name": ""}, "name ''"),
        (("5/s",), {"name": 5}, "name 5"),
        (("5/s",), {"name": "n" * 201}, "name"),
        (("5/s",), {"name": "\ud800"}, "name"),
        (("5/s",), {"unit": ""}, "unit ''"),
        (("5/s",), {"unit": None}, "unit None"),
        (("5/s",), {"shadow": 1}, "shadow 1"),
        (("5/s",), {"lease": 5}, "lease 5"),
        (("5/s",), {"lease": "10%"}, "lease '10%'"),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it(arguments, options, named):
    with pytest.raises(ConfigError) as caught:
        Limit(*arguments, **options)
    assert named in str(caught.value)


def test_a_limit_does_not_change():
    limit = Limit("5/s")
    for change in (lambda: setattr(limit, "limit", 9), lambda: delattr(limit, "limit")):
        with pytest.raises(AttributeError, match="cannot be changed"):
            change()
    assert limit.limit == 5


def every_limit():
    for algorithm, name, unit, shadow in itertools.product(
        ALGORITHMS, (None, "n", "5|1000000|5", "é"), ("requests", "bytes"), (False, True)
    ):
        for count, per in ((5, 1), (5, 10), (51, 1), (0, 1), (100_000, 3_650 * 86_400)):
            burst = 2 if algorithm == "token-bucket" and count == 51 else None
            yield Limit(
                count, per, algorithm=algorithm, name=name, unit=unit, shadow=shadow, burst=burst
            )


def test_a_limit_is_the_same_after_a_copy_a_pickle_and_its_own_words():
    for limit in every_limit():
        assert pickle.loads(pickle.dumps(limit)) == limit  # noqa: S301 - our own
        assert copy.deepcopy(limit) == limit
        assert hash(copy.copy(limit)) == hash(limit)
        assert eval(repr(limit)) == limit  # noqa: S307


def test_only_a_name_makes_two_limits_one_state():
    ids = {}
    for limit in every_limit():
        known = ids.setdefault(limit.rule.id, limit)
        assert known == limit or (known.name == limit.name is not None and known.unit == limit.unit)
        assert (known.algorithm, known.shadow) == (limit.algorithm, limit.shadow)
    named = [Limit(rate, name="plan") for rate in ("5/s", "9/h")]
    assert named[0] != named[1]
    assert named[0].rule.id == named[1].rule.id


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("count", [0, 1, 7, 999, 99_991])
@pytest.mark.parametrize("per", [1e-6, 0.001, 1, 60, 86_400, 3_650 * 86_400])
def test_products_stay_exact_and_ticks_divide_periods(algorithm, count, per):
    limit = Limit(count, per, algorithm=algorithm)
    period, tick = limit.rule.shape
    assert period % tick == 0
    assert max(count, 1) * (period // tick) < 2**53
    assert period == round(per * 1_000_000)


def test_a_tick_is_a_microsecond_unless_that_would_be_inexact():
    assert Limit("1000/minute").rule.tick == 1
    assert Limit("1000000/day").rule.tick == 10


def test_rate_text_is_taken_for_a_limit():
    assert as_limit("5/s") is as_limit("5/s")
    assert as_limit("5/s") == Limit("5/s")
    for number in range(3_000):
        assert as_limit(f"{number}/s").limit == number
    for wrong in (None, 5, b"5/s", ("5/s",), object):
        with pytest.raises(UsageError, match="limit"):
            as_limit(wrong)
