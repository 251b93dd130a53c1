"""The limiters: plan a batch, let the store apply it, settle what it means.

`Limiter` blocks, `AsyncLimiter` is awaited; beyond that they are the same. The embedded stores
answer in microseconds, so the async one calls them directly, and hands the event loop over often
enough that nothing else on it is held up.
"""

from __future__ import annotations

import os
import time
from functools import wraps
from threading import Event

from noria.algorithms.units import MAX_COST, SECOND
from noria.core import charges, settle
from noria.core.plan import checked_cost, checked_key, checked_limits, plan, plan_many, rules_of
from noria.core.queueing import soonest
from noria.model.batch import Batch, Entry
from noria.model.decision import Decision, Settled
from noria.model.errors import ConfigError, RateLimitExceeded, StoreUnavailable, UsageError
from noria.model.limit import Limit, as_limit
from noria.model.rate import shown
from noria.stores import open_store
from noria.waiting import Lines, Waiter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from typing import Any, NoReturn, ParamSpec, Self, TypeVar

    from noria.model.batch import Answer, Clock, Evidence, Store
    from noria.model.limit import Rule

    P = ParamSpec("P")
    R = TypeVar("R")
    Observer = Callable[[Decision, Mapping[str, object]], object]

_FAILURES = ("open", "closed", "local")
_ONE = 1
"""The usual cost, told by identity: no other check of it is needed, and `True` is another object."""


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
        self._failure = _checked_failure(on_store_failure)
        _checked_number("store_timeout", store_timeout, above=0, most=60)
        if _checked_number("deny_cache", deny_cache, above=None, most=1):
            raise ConfigError(f"deny_cache {deny_cache}: not in this version, which has embedded stores only")
        self._share = _checked_number("local_share", local_share, above=0, most=1)
        for name, value in (("clock", clock), ("on_decision", on_decision)):
            if value is not None and not callable(value):
                raise ConfigError(f"{name} {shown(value)}: expected a callable")
        try:
            checked_key(namespace)
        except UsageError as error:
            raise ConfigError(f"namespace: {error}") from None
        self._clock = clock
        self._observer = on_decision
        self._owned = not hasattr(store, "space")
        if store is None:
            store = os.environ.get("NORIA_STORE_URL") or "memory://"
        self._store = open_store(store)
        self._space = self._store.space(namespace, clock)
        self._ledger = settle.Ledger(self._space, namespace, self._store.secret)
        self._decide: Callable[[str, Rule, int], Answer] = self._space.decide
        self._local: settle.Ledger | None = None
        self._lines = Lines()
        self._sleep: Callable[[float], None] = time.sleep

    def consume(
        self,
        key: str,
        *limits: Limit | str,
        cost: int = 1,
        on_store_failure: str | None = None,
    ) -> Decision:
        """Charge `cost` to all of the limits, or to none, in one atomic step.

        Raises `UsageError` for a wrong key, cost or set of limits; a failing store raises nothing,
        it is answered as `on_store_failure` says.
        """
        if (
            len(limits) == 1
            and type(key) is str
            and key
            and key.isascii()
            and (cost is _ONE or (type(cost) is int and 0 <= cost <= MAX_COST))
            and on_store_failure is None
        ):
            # One limit on one key: the commonest call by far, so it goes the shortest way.
            limit = limits[0]
            rule = limit.quick if type(limit) is Limit else as_limit(limit).quick
            if rule is not None:
                try:
                    answer = self._decide(key, rule, cost)
                except StoreUnavailable as error:
                    batch = Batch([Entry(key, rule, cost, veto=True)], charge=True)
                    decision = self._degraded(batch, self._failure, error)
                else:
                    wait = answer[2]
                    retry = wait * rule.tick / SECOND if wait else None
                    decision = Decision(answer[0], answer[1], retry, self._ledger, answer)
                if self._observer is not None:
                    self._observe(decision, {"key": key, "cost": cost})
                return decision
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
            origin = decision._origin
            if isinstance(origin, settle.Ledger):
                if self._local is not None and origin.secret == self._local.secret:
                    return self._local.space.refund(decision._parts())
                if origin.secret == ledger.secret and origin.namespace == ledger.namespace:
                    parts = decision._parts()
                    return self._space.refund(parts) if parts else False
            charge = decision.charge
            if charge is None:
                return False
        elif isinstance(decision, str):
            charge = decision
        else:
            raise UsageError(f"refund {shown(decision)}: expected a decision, or its charge")
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
        caller = _Caller(self, key, limits, cost, timeout, turn.set)
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
        guard = _Guard(limits, key, cost, on_exceeded)

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
        return self._store.stats()

    def close(self) -> None:
        """Let go of the store, unless it was handed in open. The limiter cannot be used after."""
        if self._space is not _closed:
            self._space = _closed
            self._decide = _closed.decide
            if self._owned:
                self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _apply(
        self, batch: Batch, on_store_failure: str | None, facts: dict[str, object]
    ) -> Decision:
        failure = self._failure if on_store_failure is None else on_store_failure
        if on_store_failure is not None and on_store_failure not in _FAILURES:
            raise UsageError(_wrong_failure(on_store_failure))
        try:
            decision = settle.many(self._ledger, self._space.apply(batch))
        except StoreUnavailable as error:
            decision = self._degraded(batch, failure, error)
        if self._observer is not None:
            self._observe(decision, facts)
        return decision

    def _degraded(self, batch: Batch, failure: str, error: StoreUnavailable) -> Decision:
        """The decision that the failure policy makes in the store's place."""
        _log().debug("store unavailable, deciding %s: %s", failure, error)
        if failure == "local":
            return self._decide_here(batch)
        passes = failure == "open"
        settled = Settled(reason="store_unavailable", decided_at=time.time(), degraded=failure)
        return Decision.known(
            settled, allowed=passes, remaining=None, retry_after=None if passes else 1.0
        )

    def _decide_here(self, batch: Batch) -> Decision:
        """Decide in this process alone, with this process's share of each limit."""
        ledger = self._local
        if ledger is None:
            store = open_store("memory://")
            namespace = self._ledger.namespace
            space = store.space(namespace, self._clock)
            ledger = self._local = settle.Ledger(space, namespace, store.secret, "local")
        entries = [
            Entry(entry.key, self._scaled(entry.rule), entry.cost, veto=entry.veto)
            for entry in batch.entries
        ]
        return settle.many(ledger, ledger.space.apply(Batch(entries, charge=batch.charge)))

    def _scaled(self, rule: Rule) -> Rule:
        if self._share == 1.0:
            return rule
        limit = rule.limit
        return Limit(
            _share(limit.limit, self._share),
            limit.period,
            algorithm=limit.algorithm,
            burst=_share(limit.burst, self._share) if limit.burst else None,
            name=limit.name,
            unit=limit.unit,
            shadow=limit.shadow,
        ).rule

    def _observe(self, decision: Decision, facts: Mapping[str, object]) -> None:
        observer = self._observer
        if observer is not None:
            try:
                observer(decision, facts)
            except Exception:  # an observer's fault must not become the caller's
                _log().exception("on_decision raised")

    def _seconds(self) -> float:
        return time.monotonic() if self._clock is None else self._clock() / SECOND


class AsyncLimiter:
    """`Limiter`, awaited: the same options, the same methods, for tasks on any event loops.

    An async context manager. On the embedded stores a decision is made without leaving the event
    loop, which is given a turn after every few dozen.
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
        self._limiter = Limiter(
            store,
            namespace=namespace,
            on_store_failure=on_store_failure,
            store_timeout=store_timeout,
            clock=clock,
            deny_cache=deny_cache,
            on_decision=on_decision,
            local_share=local_share,
        )
        self._left = _DECISIONS_A_TURN
        self._renewed_by: AbstractEventLoop | None = None
        self._sleep: Callable[[float], Awaitable[object]] | None = None

    async def consume(
        self,
        key: str,
        *limits: Limit | str,
        cost: int = 1,
        on_store_failure: str | None = None,
    ) -> Decision:
        """See `Limiter.consume`."""
        self._left -= 1
        if self._left < 0:
            await self._hand_over()
        return self._limiter.consume(key, *limits, cost=cost, on_store_failure=on_store_failure)

    async def consume_many(
        self,
        items: Sequence[tuple[str, Limit | str] | tuple[str, Limit | str, int]],
        *,
        on_store_failure: str | None = None,
    ) -> Decision:
        """See `Limiter.consume_many`."""
        await self._hand_over()
        return self._limiter.consume_many(items, on_store_failure=on_store_failure)

    async def peek(self, key: str, *limits: Limit | str, cost: int = 1) -> Decision:
        """See `Limiter.peek`."""
        await self._hand_over()
        return self._limiter.peek(key, *limits, cost=cost)

    async def refund(self, decision: Decision | str) -> bool:
        """See `Limiter.refund`."""
        await self._hand_over()
        return self._limiter.refund(decision)

    async def reset(self, key: str, *limits: Limit | str) -> int:
        """See `Limiter.reset`."""
        await self._hand_over()
        return self._limiter.reset(key, *limits)

    async def wait(
        self, key: str, *limits: Limit | str, cost: int = 1, timeout: float | None = None
    ) -> Decision:
        """See `Limiter.wait`. A cancelled waiter leaves its line and charges nothing."""
        from asyncio import get_running_loop, sleep, wait_for

        loop = get_running_loop()
        turn = loop.create_future()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda: turn.done() or turn.set_result(None))

        caller = _Caller(self._limiter, key, limits, cost, timeout, wake)
        try:
            if not caller.is_first():
                try:
                    await wait_for(turn, caller.time_left())
                except TimeoutError:
                    raise RateLimitExceeded(caller.late()) from None
            await self._hand_over()
            while not (decision := caller.ask()):
                await (self._sleep or sleep)(caller.pause(decision))
        finally:
            caller.leave()
        return decision

    def limit(
        self,
        *limits: Limit | str,
        key: str | Callable[..., str] | None = None,
        cost: int | Callable[..., int] = 1,
        on_exceeded: str = "raise",
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """`Limiter.limit` for coroutine functions."""
        guard = _Guard(limits, key, cost, on_exceeded)

        def decorate(
            function: Callable[P, Coroutine[Any, Any, R]],
        ) -> Callable[P, Coroutine[Any, Any, R]]:
            guard.check(function, coroutine=True)

            @wraps(function)
            async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                decision = await self.consume(
                    guard.key(function, args, kwargs), *limits, cost=guard.cost(args, kwargs)
                )
                return await function(*args, **kwargs) if decision else guard.refused(decision)

            return limited

        return decorate

    def stats(self) -> dict[str, int]:
        """See `Limiter.stats`."""
        return self._limiter.stats()

    async def aclose(self) -> None:
        """See `Limiter.close`."""
        self._limiter.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _hand_over(self) -> None:
        """Give the event loop a turn if decisions have had theirs: a few dozen in one go, then one
        by each task until the loop has come round."""
        if self._left >= 0:
            self._left -= 1
            return
        from asyncio import get_running_loop, sleep

        loop = get_running_loop()
        if self._renewed_by is not loop:
            self._renewed_by = loop
            loop.call_soon(self._renew)
        await sleep(0)

    def _renew(self) -> None:
        self._left = _DECISIONS_A_TURN
        self._renewed_by = None


_DECISIONS_A_TURN = 64
"""Decisions in one go on an event loop: a fraction of a millisecond."""


class _Caller:
    """One call of `wait`: its place in the line, and the deadline it must meet."""

    def __init__(  # noqa: PLR0913
        self,
        limiter: Limiter,
        key: str,
        limits: tuple[Limit | str, ...],
        cost: int,
        timeout: float | None,
        wake: Callable[[], None],
    ) -> None:
        if timeout is not None:
            _checked_number("timeout", timeout, above=None, most=None, error=UsageError)
        self._limiter = limiter
        self._key = checked_key(key)
        self._limits = checked_limits(limits)
        self._cost = checked_cost(cost)
        rules = [rule for rule in rules_of(limits) if not rule.limit.shadow]
        self._waiter = Waiter(rules, cost, wake)
        self._deadline = None if timeout is None else limiter._seconds() + timeout

    def is_first(self) -> bool:
        """Join the line; raises where the callers ahead leave no time for this one."""
        ahead = self._limiter._lines.join(self._key, self._waiter)
        if ahead and self._deadline is not None:
            self._check_line([*ahead, self._waiter])
        return not ahead

    def time_left(self) -> float | None:
        """Seconds to the deadline; None without one."""
        return None if self._deadline is None else self._deadline - self._limiter._seconds()

    def ask(self) -> Decision:
        return self._limiter.consume(self._key, *self._limits, cost=self._cost)

    def pause(self, decision: Decision) -> float:
        """How long to sleep after a refusal; raises where that would be too long."""
        retry, left = decision.retry_after, self.time_left()
        if retry is None or (left is not None and retry > left):
            raise RateLimitExceeded(decision)
        return retry

    def late(self, retry_after: float | None = None) -> Decision:
        """The refusal of a caller whose time is too short for the line ahead of it."""
        try:
            seen = self._limiter.peek(self._key, *self._limits, cost=self._cost)
        except StoreUnavailable:
            return self._limiter.consume(self._key, *self._limits, cost=0, on_store_failure="closed")
        settled = seen._read()
        settled.reason = "limited"
        return Decision.known(
            settled,
            allowed=False,
            remaining=seen.remaining,
            retry_after=seen.retry_after if retry_after is None else retry_after,
        )

    def leave(self) -> None:
        self._limiter._lines.leave(self._key, self._waiter)

    def _check_line(self, line: list[Waiter]) -> None:
        rules = {rule.id: rule for waiter in line for rule in waiter.rules}
        try:
            now, states = self._limiter._space.states(self._key, list(rules.values()))
        except StoreUnavailable:
            return
        asked = [(waiter.rules, waiter.cost) for waiter in line]
        wait = soonest(now, dict(zip(rules, states, strict=True)), asked)
        left = self.time_left()
        if wait is None or (left is not None and wait > left * SECOND):
            raise RateLimitExceeded(self.late(None if wait is None else wait / SECOND))


class _Guard:
    """What the decorators of both limiters share: their arguments, checked once."""

    def __init__(
        self,
        limits: tuple[Limit | str, ...],
        key: str | Callable[..., str] | None,
        cost: int | Callable[..., int],
        on_exceeded: str,
    ) -> None:
        plan("checked", limits, cost if isinstance(cost, int) else 1, charge=False)
        if key is not None and not callable(key):
            checked_key(key)
        if not callable(cost):
            checked_cost(cost)
        if on_exceeded not in ("raise", "return"):
            raise UsageError(f'on_exceeded {shown(on_exceeded)}: expected "raise" or "return"')
        self._key = key
        self._cost = cost
        self._returns = on_exceeded == "return"

    def check(self, function: Callable[..., object], *, coroutine: bool) -> None:
        """`UsageError` for a coroutine function on a plain limiter, and the other way round."""
        from inspect import isasyncgenfunction, iscoroutinefunction

        if not callable(function):
            raise UsageError(f"{shown(function)}: expected a function to decorate")
        call = getattr(function, "__call__", None)  # noqa: B004
        is_coroutine = iscoroutinefunction(function) or iscoroutinefunction(call)
        if is_coroutine != coroutine or isasyncgenfunction(function):
            raise UsageError(
                f"{shown(function)}: AsyncLimiter decorates coroutine functions and Limiter plain ones"
            )

    def key(
        self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> str:
        if self._key is None:
            return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
        return self._key(*args, **kwargs) if callable(self._key) else self._key

    def cost(self, args: Sequence[object], kwargs: Mapping[str, object]) -> int:
        return self._cost(*args, **kwargs) if callable(self._cost) else self._cost

    def refused(self, decision: Decision) -> Any:
        """Raise, or hand the decision back."""
        if self._returns:
            return decision
        raise RateLimitExceeded(decision)


class _Closed:
    """What stands in for a store after `close`."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return self._refuse

    def _refuse(self, *_: object) -> NoReturn:
        raise UsageError("the limiter is closed")


_closed: Any = _Closed()


def _checked_failure(value: object) -> str:
    if value not in _FAILURES:
        raise ConfigError(_wrong_failure(value))
    return str(value)


def _wrong_failure(value: object) -> str:
    return f'on_store_failure {shown(value)}: expected "open", "closed" or "local"'


def _checked_number(
    name: str,
    value: object,
    *,
    above: float | None,
    most: float | None,
    error: type[ConfigError | UsageError] = ConfigError,
) -> float:
    """`value` as a number of seconds or a share, within bounds; `above` None takes 0 too."""
    wrong = type(value) not in (int, float)
    if not wrong:
        number = float(value)  # type: ignore[arg-type]
        low = number >= 0 if above is None else number > above
        if low and (most is None or number <= most):
            return number
    floor = "0 or more" if above is None else f"above {above:g}"
    raise error(f"{name} {shown(value)}: expected a number {floor}" + (f" up to {most:g}" if most else ""))


def _share(count: int, share: float) -> int:
    return max(int(count * share), 1) if count else 0


def _log() -> Any:
    from logging import getLogger

    return getLogger("noria")
