"""Every case runs on every embedded store, through the blocking limiter and the awaited one."""

import pytest

from noria import AsyncLimiter, Limiter, open_store
from noria.testing import Clock
from noria.testing.driver import Driver


class Door(Driver):
    """A limiter as plain calls, whichever it is; `clock` is its time."""

    def __init__(self, kind, store, clock, **options):
        super().__init__(kind(store, clock=clock, **options))
        self.clock = clock

    def wait(self, key, *limits, **options):
        return self.done(self.limiter.wait(key, *limits, **options))

    def at(self, second):
        """Move to so many seconds after the beginning."""
        self.clock.now = Clock().now + round(second * 1_000_000)

    def tries(self, key, *limits, times, **options):
        """Which of several calls in a row passed."""
        return [bool(self.consume(key, *limits, **options)) for _ in range(times)]


@pytest.fixture(params=["memory", "shared"])
def store(request, tmp_path):
    url = "memory://" if request.param == "memory" else f"shared://{tmp_path}?size=16MB"
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture(params=[Limiter, AsyncLimiter], ids=["blocking", "awaited"])
def door(request, store):
    """Makes limiters on one store; each `door()` is another one, on the same clock."""
    clock = Clock()
    doors = []

    def make(**options):
        doors.append(Door(request.param, store, clock, **options))
        return doors[-1]

    yield make
    for one in doors:
        one.close()
