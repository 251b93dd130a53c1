"""How each library is driven: one small adapter per library, the same shape for all.

An adapter opens a `Session` on a limit. `bare(key)` makes a decision the fastest way the
library documents, and stops there; `figures(key)` also obtains what a 429 needs: how much is
left and when to come back. A peer's `bare` is its own bound method with no Python of ours
around it, while Noria is only ever measured through `figures`, so every doubt favours the peer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

Decide = Callable[[str], Any]

SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


class Rate(NamedTuple):
    """So many per second, minute, hour or day: what every library here can express."""

    amount: int
    unit: str

    @property
    def text(self) -> str:
        return f"{self.amount}/{self.unit}"


class Spec(NamedTuple):
    """One thing to measure. `algorithm` is Noria's name for it, `own` the library's."""

    library: str
    store: str
    algorithm: str
    own: str

    @property
    def label(self) -> str:
        return f"noria {self.store}" if self.library == "noria" else f"{self.library} {self.own}"


ALGORITHMS = ("fixed-window", "sliding-window", "sliding-window-log", "token-bucket")

NORIA = [Spec("noria", store, name, name) for name in ALGORITHMS for store in ("memory", "shared")]

LIMITS = [
    Spec("limits", "memory", "fixed-window", "FixedWindow"),
    Spec("limits", "memory", "sliding-window", "SlidingWindowCounter"),
    Spec("limits", "memory", "sliding-window-log", "MovingWindow"),
]

THROTTLED = [
    Spec("throttled-py", "memory", "fixed-window", "fixed_window"),
    Spec("throttled-py", "memory", "sliding-window", "sliding_window"),
    Spec("throttled-py", "memory", "token-bucket", "token_bucket"),
    Spec("throttled-py", "memory", "token-bucket", "gcra"),
    Spec("throttled-py", "memory", "token-bucket", "leaking_bucket"),
]


def contenders(algorithm: str) -> list[Spec]:
    """Everything that implements this algorithm, Noria first."""
    return [spec for spec in NORIA + LIMITS + THROTTLED if spec.algorithm == algorithm]


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Session:
    """An open limiter. `allowed` reads the verdict out of what either callable returned."""

    figures: Decide
    allowed: Callable[[Any], bool]
    bare: Decide | None = None
    close: Callable[[], None] = _nothing


def open_session(spec: Spec, rate: Rate, directory: str) -> Session:
    """Open `spec` with one limit; `directory` is used by the shared store alone."""
    return _OPEN[spec.library](spec, rate, directory)


def _url(spec: Spec, directory: str) -> str:
    return f"shared://{directory}?size=256MB" if spec.store == "shared" else "memory://"


def _open_noria(spec: Spec, rate: Rate, directory: str) -> Session:
    from noria import Limit, Limiter

    limiter = Limiter(_url(spec, directory))
    limit = Limit(rate.text, algorithm=spec.algorithm)
    consume = limiter.consume

    def figures(key: str) -> Any:
        decision = consume(key, limit)
        decision.remaining, decision.retry_after  # noqa: B018  reading is what is measured
        return decision

    return Session(figures, lambda decision: decision.allowed, close=limiter.close)


def _limits_item(rate: Rate) -> Any:
    import limits

    return getattr(limits, f"RateLimitItemPer{rate.unit.capitalize()}")(rate.amount)


def _open_limits(spec: Spec, rate: Rate, directory: str) -> Session:
    from limits import storage, strategies

    limiter = getattr(strategies, f"{spec.own}RateLimiter")(storage.MemoryStorage())
    item = _limits_item(rate)
    hit, stats = limiter.hit, limiter.get_window_stats

    def figures(key: str) -> bool:
        allowed: bool = hit(item, key)
        window = stats(item, key)
        window.remaining, window.reset_time  # noqa: B018
        return allowed

    return Session(figures, bool, bare=partial(hit, item))


# throttled-py's memory store forgets the least recently used of 1,024 keys by default; here it
# is made large enough to remember every key of the run, as the others do.
_ROOM = {"MAX_SIZE": 1_000_000}


def _throttled_quota(rate: Rate) -> Any:
    from datetime import timedelta

    from throttled import rate_limiter

    return rate_limiter.per_duration(timedelta(seconds=SECONDS[rate.unit]), rate.amount)


def _open_throttled(spec: Spec, rate: Rate, directory: str) -> Session:
    from throttled import MemoryStore, Throttled

    limiter = Throttled(
        using=spec.own, quota=_throttled_quota(rate), store=MemoryStore(options=_ROOM)
    )
    limit = limiter.limit

    def figures(key: str) -> Any:
        result = limit(key)
        state = result.state
        state.remaining, state.retry_after  # noqa: B018
        return result

    return Session(figures, lambda result: not result.limited, bare=limit)


_OPEN: dict[str, Callable[[Spec, Rate, str], Session]] = {
    "noria": _open_noria,
    "limits": _open_limits,
    "throttled-py": _open_throttled,
}


# The asyncio forms. Here every library is asked the plain way it documents, Noria's figures read.

AsyncDecide = Callable[[str], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class AsyncSession:
    decide: AsyncDecide
    close: Callable[[], Awaitable[None]]


async def _no_wait() -> None:
    pass


async def open_async(spec: Spec, rate: Rate, directory: str) -> AsyncSession:
    """Open `spec` for asyncio, inside a running loop."""
    return _OPEN_ASYNC[spec.library](spec, rate, directory)


def _open_async_noria(spec: Spec, rate: Rate, directory: str) -> AsyncSession:
    from noria import AsyncLimiter, Limit

    limiter = AsyncLimiter(_url(spec, directory))
    limit = Limit(rate.text, algorithm=spec.algorithm)
    consume = limiter.consume

    async def decide(key: str) -> Any:
        decision = await consume(key, limit)
        decision.remaining, decision.retry_after  # noqa: B018
        return decision

    return AsyncSession(decide, limiter.aclose)


def _open_async_limits(spec: Spec, rate: Rate, directory: str) -> AsyncSession:
    from limits.aio import storage, strategies

    limiter = getattr(strategies, f"{spec.own}RateLimiter")(storage.MemoryStorage())
    return AsyncSession(partial(limiter.hit, _limits_item(rate)), _no_wait)


def _open_async_throttled(spec: Spec, rate: Rate, directory: str) -> AsyncSession:
    from throttled.asyncio import MemoryStore, Throttled

    limiter = Throttled(
        using=spec.own, quota=_throttled_quota(rate), store=MemoryStore(options=_ROOM)
    )
    return AsyncSession(limiter.limit, _no_wait)


_OPEN_ASYNC: dict[str, Callable[[Spec, Rate, str], AsyncSession]] = {
    "noria": _open_async_noria,
    "limits": _open_async_limits,
    "throttled-py": _open_async_throttled,
}
