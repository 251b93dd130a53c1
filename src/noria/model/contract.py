"""What a store is, as types: the contract that `noria.testing` tests.

Read by type checkers and by people; never imported at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from noria.algorithms.contract import State
from noria.model.batch import Batch, Evidence, Part
from noria.model.decision import Settled
from noria.model.limit import Rule

Clock: TypeAlias = Callable[[], int]
"""Microseconds since the Unix epoch."""
Figures: TypeAlias = tuple[int, int | None, int]
"""In ticks: until reset, to the window's end, until `remaining` grows; see `core.settle`."""
Answer: TypeAlias = tuple[
    bool, int, int | None, int, str, Rule, int, State, int, int, Figures | None, bool
]
"""(fits, remaining, wait, now, key, rule, cost, state, birth, number, figures, overflow)."""


class Space(Protocol):
    """A store as one limiter sees it: under a namespace, with a clock. This is the contract.

    Every method is one atomic step, may be called from any thread, and raises
    `StoreUnavailable` when the store cannot answer.
    """

    def apply(self, batch: Batch) -> Evidence:
        """Decide the batch by `core.transition`, and keep what it says."""
        ...

    @property
    def decide(self) -> Callable[[str, Rule, int], Answer]:
        """`apply` for the commonest batch, one entry with a veto: `Row.answer`.

        Alone of all it is given a key that was not checked, and raises `UsageError` for one
        that `core.plan.checked_key` refuses: a store need not look at a key it knows.
        """
        ...

    def refund(self, parts: list[Part]) -> bool:
        """Give each part back that still weighs and was not given back before."""
        ...

    def reset(self, key: str, rule_ids: list[str] | None) -> int:
        """Forget those limits of a key, or all of them; how many were still live."""
        ...

    def states(self, key: str, rules: list[Rule]) -> tuple[int, list[State]]:
        """The moment, and a copy of each limit's state that may be stepped freely."""
        ...


class Store(Protocol):
    """What `Limiter` takes; `noria.testing` holds the tests that one must pass."""

    @property
    def secret(self) -> bytes:
        """Seals charges: the same for all processes that share the store."""
        ...

    def space(self, namespace: str, clock: Clock | None) -> Space:
        """The store under a namespace; `clock` takes the place of the store's own."""
        ...

    def stats(self) -> dict[str, int]:
        """Counters worth watching: entries, bytes, overflowed (decisions on shared records)."""
        ...

    def close(self) -> None:
        """Let go of the store; another `close` does nothing."""
        ...


class Origin(Protocol):
    """Where a decision was made, and who can read its evidence."""

    def settle(self, evidence: object) -> Settled:
        """The conclusions from it."""
        ...

    def parts(self, evidence: object) -> list[Part]:
        """What was charged."""
        ...

    def seal(self, parts: list[Part]) -> str | None:
        """What was charged as text that only this store can have made."""
        ...
