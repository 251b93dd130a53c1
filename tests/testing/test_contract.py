"""Noria's own stores, through the blocking limiter and the awaited one, keep the contract."""

from itertools import count

import pytest

from noria import AsyncLimiter, Limiter, open_store
from noria.testing import LimiterContract, Model

namespaces = count()


class TestTheModel(LimiterContract):
    """The model is for one thread; for the rest it must pass its own kit."""

    def make(self, clock):
        return Model(clock)

    test_callers_at_once_are_admitted_exactly_to_capacity = None
    test_calls_at_once_have_an_order = None


class TestMemory(LimiterContract):
    def make(self, clock):
        return Limiter("memory://", clock=clock)


class TestMemoryAwaited(LimiterContract):
    def make(self, clock):
        return AsyncLimiter("memory://", clock=clock)


class TestShared(LimiterContract):
    """A new namespace for each limiter: a new file for each would take longer than the checks."""

    across_processes = True

    @pytest.fixture(autouse=True)
    def store(self, tmp_path):
        self.store = open_store(f"shared://{tmp_path}?size=16MB")
        yield
        self.store.close()

    def make(self, clock):
        return Limiter(self.store, namespace=f"contract {next(namespaces)}", clock=clock)


class TestSharedAwaited(TestShared):
    def make(self, clock):
        return AsyncLimiter(self.store, namespace=f"contract {next(namespaces)}", clock=clock)


@pytest.mark.nightly
class TestMemoryAtNight(TestMemory):
    """The same, with the many examples of the nightly profile."""


@pytest.mark.nightly
class TestSharedAtNight(TestShared):
    """Likewise."""
