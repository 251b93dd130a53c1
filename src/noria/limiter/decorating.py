"""What the decorators of both limiters share: their arguments, checked once."""

from __future__ import annotations

from noria.core.plan import checked_cost, checked_key, plan
from noria.model.errors import RateLimitExceeded, UsageError
from noria.model.rate import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from noria.model.decision import Decision
    from noria.model.limit import Limit


class Guard:
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
                f"{shown(function)}: AsyncLimiter decorates coroutine functions, Limiter plain ones"
            )

    def key(
        self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> str:
        """The key of one call of the function."""
        if self._key is None:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            return f"{function.__module__}.{name}"
        return self._key(*args, **kwargs) if callable(self._key) else self._key

    def cost(self, args: Sequence[object], kwargs: Mapping[str, object]) -> int:
        """The cost of one call."""
        return self._cost(*args, **kwargs) if callable(self._cost) else self._cost

    def refused(self, decision: Decision) -> Any:  # noqa: ANN401 - in the place of any result
        """Raise, or hand the decision back."""
        if self._returns:
            return decision
        raise RateLimitExceeded(decision)
