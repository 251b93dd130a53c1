"""The rules once more, slow and obvious: what every store is compared with.

The kernels are fast because they keep two or three integers and solve for the answers. The model
shares nothing with them. It keeps every charge, and asks only one question of them, "would this
cost pass at this tick?", in exact fractions and straight from the definition of the algorithm; how
much remains, when to retry and when all is forgotten are found by searching for the tick, or the
cost, at which that answer turns. So a slip in a formula cannot hide in both.

`Model` has the methods of a limiter. It takes `noria.Limit` objects for the numbers they carry.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING

from noria.model.errors import UsageError
from noria.model.limit import Limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_COST = 2**31
SECOND = 1_000_000


def first(test: Callable[[int], bool], at_least: int = 0) -> int:
    """The least number from `at_least` on that passes a test which, once passed, stays passed."""
    step = 1
    low = at_least
    while not test(low + step - 1):
        low += step
        step *= 2
    high = low + step - 1
    while low < high:
        middle = (low + high) // 2
        if test(middle):
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True)
class Rates:
    """The numbers of a limit, times in ticks of `tick` microseconds."""

    algorithm: str
    limit: int
    window: int
    burst: int
    tick: int

    @classmethod
    def of(cls, limit: Limit) -> Rates:
        period = round(limit.period * SECOND)
        burst = limit.limit if limit.burst is None else limit.burst
        tick = coarseness(max(limit.limit, burst, 1), period)
        return cls(limit.algorithm, limit.limit, period // tick, burst, tick)

    @property
    def period(self) -> int:
        return self.window * self.tick

    @property
    def capacity(self) -> int:
        return self.burst if self.limit else 0


def coarseness(units: int, period: int) -> int:
    """The least divisor of the period that keeps `units * period / tick` below 2**53."""
    tick = -(-units * period // (2**53 - 1))
    while period % tick or units * (period // tick) >= 2**53:
        tick += 1
    return tick


@dataclass
class Charge:
    """`units` that count from tick `time` on; a name to find it by when it is given back."""

    time: int
    units: Fraction
    name: int = -1


@dataclass
class History:
    """What was charged to one limit of one key, and `last`, the tick of the newest charge.

    From tick `ends` on it is as if nothing had been charged. `given` has what each charge was.
    """

    rates: Rates
    charges: list[Charge] = field(default_factory=list[Charge])
    last: int = 0
    exists: bool = False
    ends: int = 0
    given: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    # What the algorithms are, by definition.

    def weight(self, at: int) -> Fraction:
        """The units in use at tick `at`, which is not before `last`."""
        rates = self.rates
        window = rates.window
        if rates.algorithm == "fixed-window":
            return _sum(one.units for one in self.charges if one.time // window == at // window)
        if rates.algorithm == "sliding-window-log":
            return _sum(one.units for one in self.charges if at - window < one.time <= at)
        if rates.algorithm == "sliding-window":
            inside = Fraction(window - at % window, window)
            return _sum(
                one.units * (1 if one.time // window == at // window else inside)
                for one in self.charges
                if one.time // window in (at // window, at // window - 1)
            )
        # A bucket's debt: the largest excess of any span up to now over what it poured back.
        rate = Fraction(rates.limit, window)
        worst = span = Fraction(0)
        until = at
        for one in reversed(self.charges):
            span += one.units - rate * (until - one.time)
            until = one.time
            worst = max(worst, span)
        return worst

    # Clocks that step back.

    def moment(self, now: int) -> int:
        """The tick that counts as now: time stands still at `last` for up to a period."""
        behind = self.last - now
        return self.last if self.exists and 0 < behind <= self.rates.window else now

    def anchored(self, now: int) -> History:
        """The history with what was counted moved to now, where the clock is too far behind."""
        if not self.exists or self.last - now <= self.rates.window:
            return self
        rates = self.rates
        window = rates.window
        moved = replace(self, charges=[], last=now)
        if rates.algorithm == "token-bucket":
            moved.charges = [Charge(now, self.weight(self.last))]
        elif rates.algorithm == "sliding-window-log":
            moved.charges = [Charge(min(one.time, now), one.units) for one in self.charges]
        else:
            back = {self.last // window: now, self.last // window - 1: now - window}
            moved.charges = [
                Charge(back[one.time // window], one.units)
                for one in self.charges
                if one.time // window in back
            ]
        moved.ends = now + (moved.reset(now) if rates.limit else window)
        return moved

    # Limits that change.

    def under(self, rates: Rates, microseconds: int) -> History:
        """The history under other numbers; what has no date counts as late as it may have been."""
        old = self.rates
        if not self.exists or microseconds >= self.ends * old.tick:
            return History(rates)
        changed = replace(self, rates=rates, charges=list(self.charges), given=dict(self.given))
        if old == rates:
            return changed
        if rates.algorithm == "token-bucket":
            debt = self.weight(self.last)
            if old.window != rates.window:
                debt = Fraction(-(-debt * rates.window // 1), rates.window)
            debt = min(debt, Fraction(rates.capacity))  # no debt is deeper than the bucket
            changed.last = _up(self.last * old.tick, rates.tick)
            changed.charges = [Charge(changed.last, debt)]
        elif rates.algorithm == "sliding-window-log":
            changed.last = _up(self.last * old.tick, rates.tick)
            changed.charges = [
                replace(one, time=_up(one.time * old.tick, rates.tick)) for one in self.charges
            ]
        elif old.period == rates.period:
            changed.last = self.last * old.tick // rates.tick
            changed.charges = [
                replace(one, time=one.time * old.tick // rates.tick) for one in self.charges
            ]
        else:
            # The newest charge has a date; of the others only their window is known.
            newest = self.last // old.window
            latest = {newest: self.last * old.tick}
            if rates.algorithm == "sliding-window":
                latest[newest - 1] = newest * old.period - 1
            changed.last = self.last * old.tick // rates.tick
            changed.charges = [
                Charge(latest[one.time // old.window] // rates.tick, one.units)
                for one in self.charges
                if one.time // old.window in latest
            ]
        return changed

    # What can be asked.

    def admits(self, cost: int, now: int) -> bool:
        return self.weight(self.moment(now)) + cost <= self.rates.capacity

    def remaining(self, now: int) -> int:
        """The largest cost that would pass."""
        return first(lambda cost: not self.admits(cost + 1, now)) if self.admits(1, now) else 0

    def wait(self, cost: int, now: int) -> int | None:
        """Ticks until the cost would pass; None for never."""
        if cost == 0:
            return 0
        if cost > self.rates.capacity:
            return None
        return first(lambda ticks: self.admits(cost, now + ticks))

    def reset(self, now: int) -> int:
        """Ticks until nothing weighs any more."""
        rates = self.rates
        if not self.exists or (rates.algorithm == "token-bucket" and not rates.limit):
            return 0
        return first(lambda ticks: not self.weight(self.moment(now + ticks)))

    def grows(self, now: int) -> int:
        """Ticks until `remaining` grows; 0 when all is there."""
        here = self.remaining(now)
        return 0 if here >= self.rates.capacity else self.wait(here + 1, now) or 0

    def window_end(self, now: int) -> int | None:
        window = self.rates.window
        if self.rates.algorithm not in ("fixed-window", "sliding-window"):
            return None
        return (self.moment(now) // window + 1) * window - now

    def charge(self, cost: int, now: int, name: int) -> None:
        at = self.moment(now)
        if self.rates.algorithm == "sliding-window-log":
            self.charges = [one for one in self.charges if one.time > at - self.rates.window]
        if self.rates.algorithm == "token-bucket" and len(self.charges) > 32:
            self.charges = [Charge(at, self.weight(at))]  # only to stay quick
        self.charges.append(Charge(at, Fraction(cost), name))
        self.given[name] = at, cost
        self.last = at
        self.exists = True
        self.ends = now + self.reset(now)

    def give_back(self, name: int, now: int) -> bool:
        """Take a charge out: while it weighs, or from a bucket within a period."""
        at, cost = self.given.get(name, (self.last + 1, 0))
        if now >= self.ends or at > self.last:
            return False
        if self.rates.algorithm == "token-bucket":
            if at <= now - self.rates.window or not self.weight(self.last):
                return False
            self.charges.append(Charge(self.last, -Fraction(cost)))
            del self.given[name]
            return True
        for one in self.charges:
            if one.name == name:
                alone = replace(self, charges=[one]).anchored(now)
                if alone.weight(alone.moment(now)):
                    self.charges.remove(one)
                    del self.given[name]
                    if self.rates.algorithm == "sliding-window-log" and self.charges:
                        self.last = max(other.time for other in self.charges)
                    return True
        return False

    def state(self) -> list[object] | None:
        """The state as vectors write it, `last` first: counts, a bucket's debt, a log's calls."""
        rates = self.rates
        if not self.exists:
            return None
        if rates.algorithm == "token-bucket":
            return [self.last, int(self.weight(self.last) * rates.window)]
        if rates.algorithm == "sliding-window-log":
            at: dict[int, int] = {}
            for one in self.charges:
                at[one.time] = at.get(one.time, 0) + int(one.units)
            return [self.last, [[time, at[time]] for time in sorted(at)]]
        index = self.last // rates.window
        counts = [
            int(_sum(one.units for one in self.charges if one.time // rates.window == number))
            for number in (index - 1, index)
        ]
        return [self.last, *counts[rates.algorithm == "fixed-window" :]]


def _up(time: int, tick: int) -> int:
    return -(-time // tick)


def _sum(numbers: Iterable[Fraction]) -> Fraction:
    return sum(numbers, Fraction(0))


@dataclass(frozen=True)
class ModelOutcome:
    """As `noria.Outcome`."""

    name: str | None
    algorithm: str
    limit: int
    period: float
    burst: int | None
    remaining: int
    reset_after: float
    grows_after: float
    window_ends_after: float | None
    retry_after: float | None
    allowed: bool
    reason: str
    shadow: bool


@dataclass(frozen=True)
class ModelDecision:
    """As `noria.Decision`, as far as the contract kit reads it; `charge` is a tuple here."""

    allowed: bool
    limit: int | None
    remaining: int | None
    reset_after: float | None
    retry_after: float | None
    outcomes: tuple[ModelOutcome, ...]
    decided_at: float
    reason: str
    degraded: str | None
    charge: object

    def __bool__(self) -> bool:
        return self.allowed


class Model:
    """A limiter for one thread that is right by construction: the contract at its plainest."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.histories: dict[tuple[str, str], History] = {}
        self._names = count()

    # What a limiter does.

    def consume(self, key: str, *limits: Limit | str, cost: int = 1) -> ModelDecision:
        return self.consume_many([(key, limit, cost) for limit in limits])

    def consume_many(self, items: Sequence[tuple[object, ...]]) -> ModelDecision:
        return self._decide(items, charge=True)

    def peek(self, key: str, *limits: Limit | str, cost: int = 1) -> ModelDecision:
        return self._decide([(key, limit, cost) for limit in limits], charge=False)

    def refund(self, decision: ModelDecision) -> bool:
        now = self.clock()
        parts: Sequence[tuple[tuple[str, str], int]] = decision.charge or ()  # type: ignore[assignment]
        return sum([self._give_back(place, name, now) for place, name in parts]) > 0

    def reset(self, key: str, *limits: Limit | str) -> int:
        key = self.checked_key(key)
        wanted = {self.place(key, _limit(limit)) for limit in limits}
        found = [
            place
            for place in self.histories
            if (place in wanted if limits else self.key_of(place) == key)
        ]
        live = sum(self.lives(place) for place in found)
        for place in found:
            self.forget(place)
        return live

    def close(self) -> None:
        pass

    # Its parts, which deliberately wrong limiters replace one by one.

    def place(self, key: str, limit: Limit) -> tuple[str, str]:
        """Where the history of a limit on a key is kept."""
        numbers = (limit.limit, limit.period, limit.burst) if limit.name is None else limit.name
        return key, repr((limit.algorithm, limit.unit, limit.shadow, numbers))

    def key_of(self, place: tuple[str, str]) -> str:
        return place[0]

    def checked_cost(self, cost: object) -> int:
        if type(cost) is not int or not 0 <= cost <= MOST_COST:
            raise UsageError(f"cost {cost!r}: expected a whole number from 0 to 2**31")
        return cost

    def checked_key(self, key: object) -> str:
        if not isinstance(key, str) or not key or key.encode(errors="replace").decode() != key:
            raise UsageError(f"key {key!r}: expected text that is not empty")
        return key

    def read(self, place: tuple[str, str], rates: Rates, now: int) -> History:
        """The history as it counts now, safe to change."""
        return self.histories.get(place, History(rates)).under(rates, now)

    def write(self, place: tuple[str, str], history: History) -> None:
        self.histories[place] = history

    def forget(self, place: tuple[str, str]) -> None:
        del self.histories[place]

    def lives(self, place: tuple[str, str]) -> bool:
        kept = self.histories[place]
        return self.clock() < kept.ends * kept.rates.tick

    def weighs(self, place: tuple[str, str]) -> bool:
        kept = self.histories[place]
        tick = self.clock() // kept.rates.tick
        standing = kept.anchored(tick)
        return self.lives(place) and standing.weight(standing.moment(tick)) > 0

    def charge(self, history: History, cost: int, now: int) -> int:
        name = next(self._names)
        history.charge(cost, now, name)
        return name

    def _give_back(self, place: tuple[str, str], name: int, now: int) -> bool:
        kept = self.histories.get(place)
        return kept is not None and kept.give_back(name, now // kept.rates.tick)

    def _decide(self, items: Sequence[tuple[object, ...]], *, charge: bool) -> ModelDecision:
        asked: dict[tuple[str, str], tuple[Limit, int]] = {}
        for named, wanted, *rest in items:
            cost = self.checked_cost(next(iter(rest), 1))
            key = self.checked_key(named)
            limit = _limit(wanted)
            place = self.place(key, limit)
            asked[place] = (limit, asked[place][1] + cost if place in asked else cost)
        if not asked:
            raise UsageError("no limits given")
        now = self.clock()
        seen = {
            place: self.read(place, Rates.of(limit), now) for place, (limit, _) in asked.items()
        }
        fits: dict[tuple[str, str], bool] = {}
        for place, (_, cost) in asked.items():
            history = seen[place]
            tick = now // history.rates.tick
            fits[place] = cost == 0 or history.anchored(tick).admits(cost, tick)
        allowed = all(fits[place] or limit.shadow for place, (limit, _) in asked.items())
        names: list[tuple[tuple[str, str], int]] = []
        outcomes: list[ModelOutcome] = []
        for place, (limit, cost) in asked.items():
            history = seen[place]
            tick = now // history.rates.tick
            moved = history.anchored(tick)
            if charge and allowed and fits[place] and cost:
                names.append((place, self.charge(moved, cost, tick)))
                self.write(place, moved)
            elif charge and cost and moved is not history:
                self.write(place, moved)
            outcomes.append(_outcome(limit, moved, cost, tick, fits=fits[place]))
        return _decision(outcomes, now, names, allowed=allowed)


def _limit(wanted: object) -> Limit:
    return wanted if isinstance(wanted, Limit) else Limit(wanted)  # type: ignore[arg-type]


def _outcome(limit: Limit, history: History, cost: int, now: int, *, fits: bool) -> ModelOutcome:
    tick = history.rates.tick
    wait = None if fits else history.wait(cost, now)
    end = history.window_end(now)
    return ModelOutcome(
        name=limit.name,
        algorithm=limit.algorithm,
        limit=limit.limit,
        period=limit.period,
        burst=limit.burst,
        remaining=history.remaining(now),
        reset_after=history.reset(now) * tick / SECOND,
        grows_after=history.grows(now) * tick / SECOND,
        window_ends_after=None if end is None else end * tick / SECOND,
        retry_after=None if wait is None else wait * tick / SECOND,
        allowed=fits,
        reason="ok" if fits else "never" if wait is None else "limited",
        shadow=limit.shadow,
    )


def _decision(
    outcomes: list[ModelOutcome],
    now: int,
    names: list[tuple[tuple[str, str], int]],
    *,
    allowed: bool,
) -> ModelDecision:
    def weight(one: ModelOutcome) -> tuple[float, float]:
        if allowed:
            return -one.remaining, one.reset_after
        retry = float("inf") if one.retry_after is None else one.retry_after
        return retry, one.reset_after

    speaking = [one for one in outcomes if not one.shadow and (allowed or not one.allowed)]
    chief = max(speaking, key=weight, default=None)
    return ModelDecision(
        allowed=allowed,
        limit=chief.limit if chief else None,
        remaining=chief.remaining if chief else None,
        reset_after=chief.reset_after if chief else None,
        retry_after=chief.retry_after if chief and not allowed else None,
        outcomes=tuple(outcomes),
        decided_at=now / SECOND,
        reason="ok" if allowed else chief.reason if chief else "limited",
        degraded=None,
        charge=tuple(names) or None,
    )
