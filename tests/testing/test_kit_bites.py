"""The kit is worth what it catches: each wrong limiter fails the check that is meant for it."""

import re

import pytest
from hypothesis import Phase, settings
from wrong_limiters import WRONG

from noria.testing import LimiterContract


def contract_of(limiter):
    """The contract over a class of limiters. What fails is not made smaller: it is known."""

    class Contract(LimiterContract):
        def make(self, clock):
            return limiter(clock)

        def make_clients(self, clock, skews):
            if hasattr(limiter, "clients"):
                return limiter.clients(clock, skews)
            return super().make_clients(clock, skews)

        def profile(self):
            return settings(
                super().profile(),
                derandomize=True,
                database=None,
                max_examples=200,
                phases=[Phase.explicit, Phase.generate],
                report_multiple_bugs=False,
            )

    return Contract()


@pytest.mark.parametrize("limiter", WRONG, ids=lambda limiter: limiter.__name__)
def test_a_wrong_limiter_fails_its_check(limiter):
    with pytest.raises(AssertionError, match=re.escape(limiter.broken)):
        getattr(contract_of(limiter), limiter.caught_by)()


def test_every_check_catches_somebody():
    checks = {name for name in dir(LimiterContract) if name.startswith("test_")}
    # A limiter that only forked processes can break would need a store that they share.
    assert checks - {limiter.caught_by for limiter in WRONG} == {
        "test_forked_processes_share_one_limit"
    }
