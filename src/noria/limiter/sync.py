"""The limiter that blocks: plan, apply, settle, each one call."""

from __future__ import annotations

import os
import time
from functools import wraps
from threading import Event

from noria.algorithms.units import MAX_COST, SECOND
from noria.core import charges, settle
from noria.core.plan import checked_key, plan, plan_many, rules_of
from noria.limiter.decorating import Guard
from noria.limiter.options import (
    checked_callable,
    checked_clock,
    checked_failure,
    checked_namespace,
    checked_number,
)
from noria.limiter.outage import Outage
from noria.limiter.waiting import Caller, Lines
from noria.model.batch import Batch, Entry
from noria.model.decision import Decision
from noria.model.errors import ConfigError, RateLimitExceeded, StoreUnavailable, UsageError
from noria.model.limit import Limit, as_limit
from noria.stores import open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn, ParamSpec, Self, TypeVar

    from noria.model.contract import Answer, Clock, Store
    from noria.model.limit import Rule

    P = ParamSpec("P")
    R = TypeVar("R")
    Observer = Callable[[Decision, Mapping[str, object]], object]

_new = Decision.__new__
_CLOSED = "the limiter is closed"
_NO_LIMIT: Any = None
"""Nothing in the first limit's place, which is a parameter of its own because that is quicker."""
_ONE = 1
"""The usual cost, told by identity: it needs no other check, and `True` is another object."""


class Limiter:
    """Decides whether calls may pass, on the store that `store` names.

    `store` is a URL (see `noria.open_store`) or an open store, which is then not closed with the
    limiter; without one it is `NORIA_STORE_URL`, else `memory://`. Options:

    - `namespace`: keys of one namespace are unknown to another.
    - `on_store_failure`: what `consume` answers when the store fails: "open" lets pass, "closed"
      refuses, "local" decides in this process with `local_share` (0 to 1) of each limit.
    - `store_timeout`: seconds that a whole decision may take. The embedded stores keep it by being
      quick: only a stopped process that holds the shared store's lock can exceed it.
    - `clock`: a callable that returns integer microseconds since the Unix epoch, in place of the
      store's clock; for tests and replays.
    - `on_decision`: called with every decision and its facts, a mapping with "key" and "cost".

    Safe to share between threads and over a fork. A context manager.
    """

    def __init__(  # noqa: PLR0913
        self,
        store: str | Store | None = None,
        *,
        namespace: str = "noria",
        on_store_failure: str = "open",
        store_timeout: float = 0.1,
        clock: Clock | None = None,
        deny_cache: float = 0.0,
        on_decision: Observer | None = None,
        local_share: float = 1.0,
    ) -> None:
        self._failure = checked_failure(on_store_failure)
        checked_number("store_timeout", store_timeout, most=60)
        if checked_number("deny_cache", deny_cache, zero=True, most=1):
            raise ConfigError(
                f"deny_cache {deny_cache}: not in this version, which has embedded stores only"
            )
        share = checked_number("local_share", local_share, most=1)
        checked_clock(clock)
        checked_callable("on_decision", on_decision)
        checked_namespace(namespace)
        self._clock = clock
        self._observer = on_decision
        self._owned = not hasattr(store, "space")
        if store is None:
            store = os.environ.get("NORIA_STORE_URL") or "memory://"
        self._store = open_store(store)
        self._space = self._store.space(namespace, clock)
        self._ledger = settle.Ledger(self._store, self._space, namespace)
        self._decide: Callable[[str, Rule, int], Answer] = self._space.decide
        self._outage = Outage(namespace, clock, share)
        self._lines = Lines(self._space, self.consume, self.peek, self._seconds)
        self._sleep: Callable[[float], None] = time.sleep

    def consume(
        self,
        key: str,
        limit: Limit | str = _NO_LIMIT,
        /,
        *more: Limit | str,
        cost: int = 1,
        on_store_failure: str | None = None,
    ) -> Decision:
        """Charge `cost` to all of the limits, or to none, in one atomic step.

        Raises `UsageError` for a wrong key, cost or set of limits; a failing store raises nothing,
        it is answered as `on_store_failure` says.
        """
        # One limit on one key: the commonest call by far, so it goes the shortest way. Its key is
        # checked by the store, which has seen a key that it knows.
        if (
            not more
            and (cost is _ONE or (type(cost) is int and 0 <= cost <= MAX_COST))
            and on_store_failure is None
        ):
            alone = limit if isinstance(limit, Limit) else as_limit(limit)
            rule = alone.quick
            if rule is not None:
                try:
                    answer = self._decide(key, rule, cost)
                except StoreUnavailable:
                    batch = Batch([Entry(checked_key(key), rule, cost, veto=True)], charge=True)
                    decision = self._outage.decide(batch, self._failure)
                else:
                    wait = answer[2]
                    # As `Decision(...)` would, which is a call more and a third dearer.
                    decision = _new(Decision)
                    decision.allowed = answer[0]
                    decision.remaining = answer[1]
                    decision.retry_after = wait * rule.tick / SECOND if wait else None
                    decision._origin = self._ledger
                    decision._evidence = answer
                if self._observer is not None:
                    self._observe(decision, {"key": key, "cost": cost})
                return decision
        limits = () if limit is _NO_LIMIT and not more else (limit, *more)
        batch = plan(key, limits, cost, charge=True)
        return self._apply(batch, on_store_failure, {"key": key, "cost": cost})

    def consume_many(
        self,
        items: Sequence[tuple[str, Limit | str] | tuple[str, Limit | str, int]],
        *,
        on_store_failure: str | None = None,
    ) -> Decision:
        """`consume` for several keys at once: `[(key, limit), (key, limit, cost), ...]`.

        All are charged or none, in one atomic step.
        """
        return self._apply(plan_many(items, charge=True), on_store_failure, {"items": items})

    def peek(self, key: str, *limits: Limit | str, cost: int = 1) -> Decision:
        """What `consume` would say now, charging nothing.

        `allowed` and `retry_after` are for this cost; `remaining` and `reset_after` describe the
        state as it is. Raises `StoreUnavailable` when the store fails.
        """
        evidence = self._space.apply(plan(key, limits, cost, charge=False))
        return settle.many(self._ledger, evidence)

    def refund(self, decision: Decision | str) -> bool:
        """Give a decision's charge back, or that of a `charge` text; whether it changed anything.

        Works once in all processes, while the charge weighs (for a bucket, within a period) and
        never beyond capacity; it makes no key. Raises `UsageError` for a charge of another store or
        namespace, `StoreUnavailable` when the store fails.
        """
        ledger = self._ledger
        if isinstance(decision, Decision):
            if self._outage.made(decision):
                return self._outage.refund(decision)
            if decision._origin is ledger:
                parts = decision._parts()
                return self._space.refund(parts) if parts else False
            charge = decision.charge
            if charge is None:
                return False
        else:
            charge = decision
        return self._space.refund(charges.unseal(ledger.secret, ledger.namespace, charge))

    def reset(self, key: str, *limits: Limit | str) -> int:
        """Forget what was charged to those limits of a key, or to all; how many states went.

        Raises `StoreUnavailable` when the store fails.
        """
        rule_ids = [rule.id for rule in rules_of(limits)] if limits else None
        return self._space.reset(checked_key(key), rule_ids)

    def wait(
        self, key: str, *limits: Limit | str, cost: int = 1, timeout: float | None = None
    ) -> Decision:
        """Sleep until the call may pass, and charge it; first come first served for each key.

        Raises `RateLimitExceeded` at once, not after sleeping, when it cannot pass within `timeout`
        seconds, or ever.
        """
        turn = Event()
        caller = Caller(self._lines, key, limits, cost, timeout, turn.set)
        try:
            if not caller.is_first() and not turn.wait(caller.time_left()):
                raise RateLimitExceeded(caller.late())
            while not (decision := caller.ask()):
                self._sleep(caller.pause(decision))
        finally:
            caller.leave()
        return decision

    def limit(
        self,
        *limits: Limit | str,
        key: str | Callable[..., str] | None = None,
        cost: int | Callable[..., int] = 1,
        on_exceeded: str = "raise",
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator that charges each call of a plain function.

        `key` and `cost` are values, or callables that get the call's arguments; without `key` all
        calls of the function share one. A refused call raises `RateLimitExceeded`, or with
        `on_exceeded="return"` returns the decision in place of the result.
        """
        guard = Guard(limits, key, cost, on_exceeded)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            guard.check(function, coroutine=False)

            @wraps(function)
            def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                decision = self.consume(
                    guard.key(function, args, kwargs), *limits, cost=guard.cost(args, kwargs)
                )
                return function(*args, **kwargs) if decision else guard.refused(decision)

            return limited

        return decorate

    def stats(self) -> dict[str, int]:
        """The store's counters: `entries`, `bytes`, and how many decisions were `overflowed`."""
        if self._space is _closed:
            raise UsageError(_CLOSED)
        return self._store.stats()

    def close(self) -> None:
        """Let go of the store, unless it was handed in open. The limiter cannot be used after."""
        if self._space is not _closed:
            self._space = _closed
            self._decide = _closed.decide
            if self._owned:
                self._store.close()

    def __enter__(self) -> Self:
        if self._space is _closed:
            raise UsageError(_CLOSED)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _apply(
        self, batch: Batch, on_store_failure: str | None, facts: dict[str, object]
    ) -> Decision:
        failure = self._failure
        if on_store_failure is not None:
            failure = checked_failure(on_store_failure, UsageError)
        try:
            decision = settle.many(self._ledger, self._space.apply(batch))
        except StoreUnavailable:
            decision = self._outage.decide(batch, failure)
        if self._observer is not None:
            self._observe(decision, facts)
        return decision

    def _observe(self, decision: Decision, facts: Mapping[str, object]) -> None:
        observer = self._observer
        if observer is not None:
            try:
                observer(decision, facts)
            except Exception:  # its fault must not become the caller's
                from logging import getLogger

                getLogger("noria").exception("on_decision raised")

    def _seconds(self) -> float:
        return time.monotonic() if self._clock is None else self._clock() / SECOND


class _Closed:
    """What stands in for a store after `close`."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return self._refuse

    def _refuse(self, *_: object) -> NoReturn:
        raise UsageError(_CLOSED)


_closed: Any = _Closed()
