"""Waiting lines: those who wait for one key are served first come first served, in this process.

Only the head of a line asks the store; the others sleep until they are the head, so a caller with a
large cost is not overtaken by small ones, and those who wait for one key never hold up another.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from threading import Lock

from noria.algorithms.units import SECOND
from noria.core.plan import checked_cost, checked_key, checked_limits, rules_of
from noria.core.queueing import soonest
from noria.limiter.options import checked_number
from noria.model.decision import Decision
from noria.model.errors import RateLimitExceeded, StoreUnavailable, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from noria.model.contract import Space
    from noria.model.limit import Limit


LONGEST = 1e9
"""Seconds, some thirty years: the longest timeout; more than that overflows system calls."""


class Caller:
    """One call of `wait`: what it asks for, its place in the line, the deadline it must meet."""

    def __init__(  # noqa: PLR0913
        self,
        lines: Lines,
        key: str,
        limits: tuple[Limit | str, ...],
        cost: int,
        timeout: float | None,
        wake: Callable[[], None],
    ) -> None:
        if timeout is not None:
            checked_number("timeout", timeout, zero=True, most=LONGEST, error=UsageError)
        self._lines = lines
        self._key = checked_key(key)
        self._limits = checked_limits(limits)
        self._deadline = None if timeout is None else lines.seconds() + timeout
        self.cost = checked_cost(cost)
        self.rules = [rule for rule in rules_of(limits) if not rule.limit.shadow]
        self.wake = wake

    def is_first(self) -> bool:
        """Join the line; raises where the callers ahead leave no time for this one."""
        ahead = self._lines.join(self._key, self)
        if ahead and self._deadline is not None:
            self._check_line([*ahead, self])
        return not ahead

    def time_left(self) -> float | None:
        """Seconds to the deadline; None without one."""
        if self._deadline is None:
            return None
        return max(self._deadline - self._lines.seconds(), 0.0)

    def ask(self) -> Decision:
        """Consume, as the head of the line."""
        return self._lines.consume(self._key, *self._limits, cost=self.cost)

    def pause(self, decision: Decision) -> float:
        """How long to sleep after a refusal; raises where that would be too long."""
        retry, left = decision.retry_after, self.time_left()
        if retry is None or (left is not None and retry > left):
            raise RateLimitExceeded(decision)
        return retry

    def late(self, retry_after: float | None = None) -> Decision:
        """The refusal of a caller for whom the line ahead leaves no time."""
        try:
            seen = self._lines.peek(self._key, *self._limits, cost=self.cost)
        except StoreUnavailable:
            return self._lines.consume(
                self._key, *self._limits, cost=self.cost, on_store_failure="closed"
            )
        settled = seen._settled()
        settled.reason = "limited"
        retry = seen.retry_after if retry_after is None else retry_after
        return Decision.known(settled, allowed=False, remaining=seen.remaining, retry_after=retry)

    def leave(self) -> None:
        """Step out of the line, served or not."""
        self._lines.leave(self._key, self)

    def _check_line(self, line: list[Caller]) -> None:
        rules = {rule.id: rule for caller in line for rule in caller.rules}
        try:
            now, states = self._lines.space.states(self._key, list(rules.values()))
        except StoreUnavailable:
            return  # each will be answered as the failure policy says
        asked = [(caller.rules, caller.cost) for caller in line]
        wait = soonest(now, dict(zip(rules, states, strict=True)), asked)
        left = self.time_left()
        if wait is None or (left is not None and wait > left * SECOND):
            raise RateLimitExceeded(self.late(None if wait is None else wait / SECOND))


class Lines:
    """The lines of one limiter, by key; safe for threads, empty in a forked child.

    `consume`, `peek` and `space` are the limiter's; `seconds` tells the time for deadlines.
    """

    def __init__(
        self,
        space: Space,
        consume: Callable[..., Decision],
        peek: Callable[..., Decision],
        seconds: Callable[[], float],
    ) -> None:
        self.space = space
        self.consume = consume
        self.peek = peek
        self.seconds = seconds
        self._lock = Lock()
        self._lines: dict[str, deque[Caller]] = {}
        _all.add(self)

    def join(self, key: str, caller: Caller) -> list[Caller]:
        """Stand at the end of the key's line; the callers ahead, none for the head."""
        with self._lock:
            line = self._lines.setdefault(key, deque())
            ahead = list(line)
            line.append(caller)
            return ahead

    def leave(self, key: str, caller: Caller) -> None:
        """Step out; who becomes the head by that is woken."""
        with self._lock:
            line = self._lines.get(key)
            if line is None or caller not in line:
                return
            was_head = line[0] is caller
            line.remove(caller)
            if not line:
                del self._lines[key]
                return
            head = line[0]
        if was_head:
            head.wake()

    def clear(self) -> None:
        """Forget everybody: in a forked child their threads do not exist."""
        self._lock = Lock()
        self._lines = {}


_all: weakref.WeakSet[Lines] = weakref.WeakSet()


def _after_fork() -> None:
    for lines in list(_all):
        lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
