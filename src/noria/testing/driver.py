"""One way to drive every limiter: blocking or awaited, ours or another's.

The contract is written once, against `Driver`; figures come back as whole microseconds, so that
they can be compared to the last one.
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noria.model.limit import Limit

SECOND = 1_000_000


class AnyLimiter(Protocol):
    """What the contract asks of a limiter; each method may also be a coroutine function."""

    def consume(self, key: str, *limits: Limit | str, cost: int = 1) -> Any:
        """As `noria.Limiter.consume`."""
        ...

    def consume_many(self, items: Sequence[Any], /) -> Any:
        """As `noria.Limiter.consume_many`."""
        ...

    def peek(self, key: str, *limits: Limit | str, cost: int = 1) -> Any:
        """As `noria.Limiter.peek`."""
        ...

    def refund(self, decision: Any, /) -> Any:
        """As `noria.Limiter.refund`."""
        ...

    def reset(self, key: str, *limits: Limit | str) -> Any:
        """As `noria.Limiter.reset`."""
        ...


class Figures(NamedTuple):
    """What one limit says; times in microseconds."""

    name: str | None
    algorithm: str
    limit: int
    burst: int | None
    allowed: bool
    reason: str
    remaining: int
    reset_after: int
    grows_after: int
    window_ends_after: int | None
    retry_after: int | None
    shadow: bool


class Says(NamedTuple):
    """What a decision says; times in microseconds."""

    allowed: bool
    limit: int | None
    remaining: int | None
    reset_after: int | None
    retry_after: int | None
    reason: str
    decided_at: int
    outcomes: tuple[Figures, ...]


def says(decision: Any) -> Says:
    """The figures of a decision."""
    return Says(
        allowed=decision.allowed,
        limit=decision.limit,
        remaining=decision.remaining,
        reset_after=_whole(decision.reset_after),
        retry_after=_whole(decision.retry_after),
        reason=decision.reason,
        decided_at=round(decision.decided_at * SECOND),
        outcomes=tuple(figures(outcome) for outcome in decision.outcomes),
    )


def figures(outcome: Any) -> Figures:
    """The figures of an outcome."""
    return Figures(
        name=outcome.name,
        algorithm=outcome.algorithm,
        limit=outcome.limit,
        burst=outcome.burst,
        allowed=outcome.allowed,
        reason=outcome.reason,
        remaining=outcome.remaining,
        reset_after=round(outcome.reset_after * SECOND),
        grows_after=round(outcome.grows_after * SECOND),
        window_ends_after=_whole(outcome.window_ends_after),
        retry_after=_whole(outcome.retry_after),
        shadow=outcome.shadow,
    )


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)


class Driver:
    """A limiter as plain calls: one that is awaited runs on an event loop of its own."""

    def __init__(self, limiter: AnyLimiter) -> None:
        self.limiter: Any = limiter
        self._runner: asyncio.Runner | None = None

    def done(self, answer: Any) -> Any:
        """The answer itself, awaited where it has to be."""
        if not isawaitable(answer):
            return answer
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(_awaited(answer))

    def consume(self, key: str, *limits: Limit | str, cost: Any = 1) -> Any:
        return self.done(self.limiter.consume(key, *limits, cost=cost))

    def consume_many(self, items: Sequence[Any]) -> Any:
        return self.done(self.limiter.consume_many(items))

    def peek(self, key: str, *limits: Limit | str, cost: int = 1) -> Any:
        return self.done(self.limiter.peek(key, *limits, cost=cost))

    def refund(self, decision: Any) -> bool:
        return bool(self.done(self.limiter.refund(decision)))

    def reset(self, key: str, *limits: Limit | str) -> int:
        return int(self.done(self.limiter.reset(key, *limits)))

    def stats(self) -> dict[str, int] | None:
        """The store's counters, where the limiter has some."""
        stats = getattr(self.limiter, "stats", None)
        return None if stats is None else self.done(stats())

    @property
    def is_awaited(self) -> bool:
        """Whether calls are coroutines, which run as tasks rather than in threads."""
        return iscoroutinefunction(self.limiter.consume)

    def close(self) -> None:
        for name in ("close", "aclose"):
            close = getattr(self.limiter, name, None)
            if close is not None:
                self.done(close())
                break
        if self._runner is not None:
            self._runner.close()


async def _awaited(answer: Any) -> Any:
    return await answer
