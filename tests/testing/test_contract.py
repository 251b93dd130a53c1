"""Noria's own stores, the blocking limiter and the awaited one, keep the contract."""

import pytest
from noria import AsyncLimiter, Limiter, open_store
from noria.testing import LimiterContract, Model


class TestTheModel(LimiterContract):
    """The model is one thread's; for the rest it must pass its own kit."""

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
