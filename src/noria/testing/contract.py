"""The contract that every store keeps: subclass it, say how to make a limiter, run pytest.

    from noria import Limiter
    from noria.testing import LimiterContract

    class TestMyStore(LimiterContract):
        def make(self, clock):
            return Limiter(MyStore(), clock=clock)

Nothing sleeps: time is the clock that `make` is given. Each check says which promise it holds, by
the number it has among Noria's invariants, and what it promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from noria.testing.changing import Changing
from noria.testing.clock import Clock
from noria.testing.company import Company
from noria.testing.deciding import Deciding
from noria.testing.machine import Histories
from noria.testing.vectors import load, run

if TYPE_CHECKING:
    from noria.testing.driver import AnyLimiter


class LimiterContract(Deciding, Changing, Company):
    """All checks; a subclass gives `make`, and may change what `Workbench` lists."""

    def test_the_vectors(self) -> None:
        """C14: the recorded histories, figure by figure."""
        for case in load():
            clock = Clock()
            with self.limiter(clock) as driver:
                run(driver, clock, case)

    def test_any_history_goes_as_in_the_model(self) -> None:
        """C14, and C1, C3, C5, C6, C9, C10, C19 on the way: limiter and model, step by step."""
        bench = self

        class Here(Histories):
            @staticmethod
            def make(clock: Clock) -> AnyLimiter:
                return bench.make(clock)

        many = self.profile().max_examples * 3
        run_state_machine_as_test(
            Here, settings=settings(self.profile(), max_examples=many, stateful_step_count=30)
        )
