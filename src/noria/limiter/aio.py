"""The limiter that is awaited.

The embedded stores answer in microseconds, so it calls them directly, and hands the event loop over
often enough that nothing else on it is held up.
"""

from __future__ import annotations

from functools import wraps

from noria.limiter.decorating import Guard
from noria.limiter.sync import Limiter
from noria.limiter.waiting import Caller
from noria.model.errors import RateLimitExceeded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from typing import Any, ParamSpec, Self, TypeVar

    from noria.limiter.sync import Observer
    from noria.model.contract import Clock, Store
    from noria.model.decision import Decision
    from noria.model.limit import Limit

    P = ParamSpec("P")
    R = TypeVar("R")


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
        self,
        key: str,
        *limits: Limit | str,
        cost: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109 - it refuses at once, cancelling would not
    ) -> Decision:
        """See `Limiter.wait`. A cancelled waiter leaves its line and charges nothing."""
        from asyncio import get_running_loop, sleep, wait_for

        loop = get_running_loop()
        turn = loop.create_future()

        def take_turn() -> None:
            if not turn.done():
                turn.set_result(None)

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(take_turn)

        caller = Caller(self._limiter._lines, key, limits, cost, timeout, wake)
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
        guard = Guard(limits, key, cost, on_exceeded)

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
        self._limiter.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _hand_over(self) -> None:
        """Give the event loop a turn if decisions have had theirs.

        That is a few dozen in one go, then one by each task until the loop has come round.
        """
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
