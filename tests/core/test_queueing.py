"""When the last of a line would pass: as stepping through it shows."""

from hypothesis import given
from hypothesis import strategies as st

from noria import Limit
from noria.core.queueing import soonest
from noria.testing import Clock, Model
from noria.testing.promises import ALGORITHMS
from noria.testing.workbench import tiny

NOW = 1_700_000_000_000_000


@given(
    algorithm=st.sampled_from(ALGORITHMS),
    numbers=st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 5)),
    line=st.lists(st.integers(1, 5), min_size=1, max_size=6),
)
def test_a_line_takes_as_long_as_serving_it(algorithm, numbers, line):
    limit = tiny(algorithm, *numbers)
    clock = Clock(NOW)
    model = Model(clock)
    passed = False
    for cost in line:
        decision = model.consume("k", limit, cost=cost)
        if not decision and decision.retry_after is not None:
            clock.advance(round(decision.retry_after * 1_000_000))
            decision = model.consume("k", limit, cost=cost)
        passed = bool(decision)
    wait = soonest(NOW, {}, [([limit.rule], cost) for cost in line])
    assert wait == (clock.now - NOW if passed else None)


def test_who_never_passes_holds_up_nobody():
    rule = Limit("1/second", algorithm="token-bucket").rule
    assert soonest(NOW, {}, [([rule], 1), ([rule], 5), ([rule], 1)]) == 1_000_000
    assert soonest(NOW, {}, [([rule], 1), ([rule], 5)]) is None


def test_several_limits_pass_together():
    quick, slow = (
        Limit(rate, algorithm="token-bucket", burst=1).rule for rate in ("1/second", "1/minute")
    )
    assert soonest(NOW, {}, [([quick, slow], 1), ([quick], 1), ([quick, slow], 1)]) == 60_000_000
